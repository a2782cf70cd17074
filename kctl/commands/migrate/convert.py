"""`kctl migrate`: convert, revert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kctl.commands.broker.zookeeper import TlsConfigFile, run_on_zookeeper
from kctl.commands.frame.command import LocalChange
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.commands.migrate.plan import read_cluster, read_document
from kctl.config.properties import decode_properties, format_properties, parse_properties
from kctl.errors import UsageError
from kctl.migration.converting import conversion
from kctl.migration.converting.journal import State, read_journal
from kctl.migration.converting.preconditions import check_room, check_same_state, check_stopped, hold_directories
from kctl.migration.documents import digest_of_bytes
from kctl.migration.planning.plan import MigrationPlan, NodePlan, parse_plan
from kctl.migration.reverting.going_back import is_interrupted, take_back, versions_read, write_znodes
from kctl.migration.reverting.image import Image, partitions_elsewhere
from kctl.migration.reverting.metadata_log import check_not_older, parse_log_end, read_metadata_log, unknown_ends
from kctl.migration.reverting.znode_changes import ZnodeChanges, znode_changes
from kctl.migration.target.properties import translate_server
from kctl.migration.target.snapshot import METADATA_FOLDER
from kctl.output.quantities import INT32_MAX, counted
from kctl.storage.files import RealFiles
from kctl.system.user_files import read_regular, replace_private

verbs = typer.Typer(add_completion=False)

PlanFile = Annotated[str, typer.Option("--plan", metavar="FILE", help="Document of 'kctl migrate plan'.")]
Node = Annotated[int, typer.Option("--node", metavar="ID", help="Node of this host.", min=0, max=INT32_MAX)]
ZooKeeperOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", metavar="HOST:PORT[,...][/CHROOT]", help="Ensemble of the cluster.  Default: that of the plan."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, and show what would be written.")]


class FileRow(NamedTuple):
    """A file of the node."""

    node: int
    path: str
    status: str


def read_plan(path: str) -> MigrationPlan:
    """Return the plan in a file.  Raises UsageError."""
    return parse_plan(read_document(path), path)


@verbs.command(
    "convert",
    cls=LocalChange,
    epilog=examples(
        "kctl migrate convert --plan plan.json --node 1 --dry-run",
        "kctl migrate convert --plan plan.json --node 1 --yes",
    ),
)
@shows(FileRow)
def convert(
    ctx: typer.Context,
    *,
    plan: PlanFile,
    node: Node,
    zookeeper: ZooKeeperOption = None,
    zk_tls_config_file: TlsConfigFile = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Convert the directories of a stopped node to KRaft, as the plan says.

    Refuses while a broker is registered in ZooKeeper or a process has the directories, and when ZooKeeper or they have
    changed since the plan was made.  Writes the files that the plan lists; never a segment.  The originals are in
    .kctl-migration.json of the first log directory, from which 'kctl migrate revert' restores them.

    It can be interrupted, and run again.  Start 4.x on no node before all are converted.
    """
    run: Invocation = ctx.obj
    planned = read_plan(plan)
    of_node = conversion.node_of(planned, node)
    files = RealFiles()
    check_same_state(read_cluster(run, zookeeper or planned.zookeeper, zk_tls_config_file), planned)
    with hold_directories(of_node.homes):
        journal = conversion.check_conversion(files, planned, of_node)
        contents = conversion.new_contents(planned, of_node)
        if journal is not None and journal.state is State.CONVERTED:
            run.console.note(f"node {node} was converted by this plan before")
            run.console.show(FileRow, [FileRow(node, path, "unchanged") for path in contents])
            return ExitStatus.DONE
        config = _new_config(of_node)
        check_room(contents | {of_node.new_config: config})
        if dry_run:
            paths = [*contents, of_node.new_config]
            run.console.show(FileRow, [FileRow(node, path, "to be written") for path in paths])
            return ExitStatus.DONE
        run.consent(f"Convert node {node} to KRaft, {counted(len(contents) + 1, 'file')}?")
        replace_private(Path(of_node.new_config), config)
        written = conversion.convert(files, planned, of_node)
    run.console.show(FileRow, [FileRow(node, path, "written") for path in [*written, of_node.new_config]])
    run.console.note(f"when all nodes are converted, start this one with {of_node.new_config}")
    return ExitStatus.DONE


def _new_config(node: NodePlan) -> bytes:
    """Return server.properties of 4.x.  Raises UsageError if a file is not what it was, or is in the way."""
    settings = dict(node.settings)
    if node.old_config is not None:
        try:
            data = read_regular(node.old_config)
        except OSError as error:
            raise UsageError(f"cannot read {node.old_config}: {error.strerror}") from None
        if digest_of_bytes(data) != node.old_config_sha256:
            raise UsageError(f"{node.old_config} has changed since its inventory was taken: make a new plan")
        settings, _ = translate_server(parse_properties(decode_properties(data)), settings)
    config = format_properties(settings).encode()
    target = Path(node.new_config)
    if target.exists() and target.read_bytes() != config:
        raise UsageError(f"{node.new_config} exists with other contents: move it away")
    return config


@verbs.command(
    "revert",
    cls=LocalChange,
    epilog=examples(
        "kctl migrate revert --plan plan.json --node 1 --dry-run",
        "kctl migrate revert --plan plan.json --node 1 --yes",
        "kctl migrate revert --plan plan.json --node 1 --metadata-end 2=9:4711 --yes",
        "kctl migrate revert --plan plan.json --node 2 --files-only --yes",
    ),
)
@shows(FileRow)
def revert(
    ctx: typer.Context,
    *,
    plan: PlanFile,
    node: Node,
    zookeeper: ZooKeeperOption = None,
    zk_tls_config_file: TlsConfigFile = None,
    files_only: Annotated[
        bool,
        typer.Option("--files-only", help="After 4.x has run: leave ZooKeeper to the revert of another controller."),
    ] = False,
    metadata_end: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata-end",
            metavar="NODE=EPOCH:OFFSET",
            help="Where the metadata log of another controller ends, as --dry-run there shows it.  Repeatable.",
        ),
    ] = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Take a converted node back to ZooKeeper: its original files are restored.

    If 4.x has run on the node, the metadata log of a controller is carried into ZooKeeper before that: topics, states
    with their leader epochs, configurations, ACLs, users, quotas, tokens and producer ids.  Values of internal topics
    that older brokers do not read are rewritten; the segments and the metadata log of 4.x are kept under other names.
    What cannot be carried is shown as 'not carried'.

    Stop all nodes first.  With several controllers, run it with --dry-run on a majority of them: each shows where its
    metadata log ends.  Begin with the one that ends last, give it the ends of the others, and use --files-only on them.
    A controller whose metadata log is older, or may be, is refused.

    It can be interrupted, and run again.  Start the old brokers when all nodes are reverted.
    """
    run: Invocation = ctx.obj
    ends = dict(map(parse_log_end, metadata_end or ()))
    planned = read_plan(plan)
    of_node = conversion.node_of(planned, node)
    files = RealFiles()
    with hold_directories(of_node.homes):
        journal = read_journal(files, of_node.home)
        if journal is None:
            raise UsageError(f"{of_node.home} has no journal of a conversion; nothing was changed there")
        if (journal.plan_digest, journal.node_id) != (planned.digest, node):
            raise UsageError(
                f"{of_node.home} was converted by another plan or as another node; give that plan and node"
            )
        has_run = conversion.has_started(files, planned, of_node)
        rows: list[FileRow] = []
        changes = ZnodeChanges()
        connect = zookeeper or planned.zookeeper
        if has_run and of_node.metadata_dir is not None and not files_only:
            log = read_metadata_log(files, of_node.metadata_dir)
            check_not_older(node, log, ends)
            unknown = unknown_ends(node, log, _controllers(planned), ends)
            if unknown is not None:
                if not dry_run:
                    raise UsageError(unknown)
                run.console.note(unknown)
            rows.append(FileRow(node, f"{of_node.metadata_dir}/{METADATA_FOLDER}", f"ends at {log.end}"))
            cluster = read_cluster(run, connect, zk_tls_config_file)
            check_stopped(cluster)
            if cluster.cluster_id != planned.cluster_id:
                raise UsageError(f"the plan is of cluster {planned.cluster_id}, but ZooKeeper has {cluster.cluster_id}")
            changes = znode_changes(log.image, cluster)
            changes.not_carried += _replicas_elsewhere(log.image, planned)
        status = "to be restored" if dry_run else "restored"
        rows += [
            FileRow(node, f"znode {path}", "to be written" if dry_run else "written") for path, _ in changes.writes
        ]
        rows += [FileRow(node, text, "not carried") for text in changes.not_carried]
        rows += [FileRow(node, path, status) for path in journal.originals if journal.state is not State.REVERTED]
        if dry_run:
            run.console.show(FileRow, rows)
            return ExitStatus.DONE
        run.consent(f"Revert node {node}, with {counted(len(changes.writes), 'znode')}?")
        if changes.writes:
            run_on_zookeeper(
                run, connect, "/", lambda session, _: write_znodes(session, changes), tls_config=zk_tls_config_file
            )
        if has_run or is_interrupted(files, of_node):
            done = take_back(files, of_node, versions_read(journal.originals))
            rows += [
                FileRow(node, segment.path, f"{counted(segment.records, 'record')} rewritten")
                for segment in done.segments
            ]
            rows += [FileRow(node, path, "kept") for path in done.kept]
        conversion.restore(files, planned, of_node)
    run.console.show(FileRow, rows)
    return ExitStatus.DONE


def _controllers(planned: MigrationPlan) -> frozenset[int]:
    return frozenset(number for number, node in planned.nodes.items() if node.metadata_dir is not None)


def _replicas_elsewhere(image: Image, planned: MigrationPlan) -> list[str]:
    """Return what to say of replicas on nodes that were added on 4.x.

    Raises UsageError if a partition has in-sync replicas on such nodes only.
    """
    brokers = [number for number, node in planned.nodes.items() if node.directories]
    lost, others = partitions_elsewhere(image, brokers)
    if lost:
        raise UsageError(
            f"no in-sync replica of {counted(len(lost), 'partition')} is on a broker of the plan, such as {lost[0]}: "
            "start 4.x, and move them to these brokers ('kctl cluster remove-broker ID' for each added one)"
        )
    if not others:
        return []
    return [f"replicas on brokers added on 4.x: of {counted(len(others), 'partition')}, such as {others[0]}"]
