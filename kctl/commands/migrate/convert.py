"""`kctl migrate`: convert, revert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kctl.commands.broker.zookeeper import TlsConfigFile
from kctl.commands.frame.command import LocalChange
from kctl.commands.frame.exit_status import ExitStatus, Refused
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.commands.migrate.plan import read_cluster
from kctl.config.properties import decode_properties, format_properties, parse_properties
from kctl.errors import UsageError
from kctl.migration.converting import conversion
from kctl.migration.converting.journal import State, read_journal
from kctl.migration.converting.preconditions import check_room, check_same_state, hold_directories
from kctl.migration.documents import digest_of_bytes
from kctl.migration.planning.plan import MigrationPlan, NodePlan, parse_plan
from kctl.migration.target.properties import translate_server
from kctl.output.documents import read_json
from kctl.output.quantities import INT32_MAX, counted
from kctl.storage.files import RealFiles
from kctl.system.user_files import read_regular, read_text, replace_private

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
    return parse_plan(read_json(read_text(path)), path)


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
    with hold_directories([directory.path for directory in of_node.directories]):
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
        "kctl migrate revert --plan plan.json --node 1 --dry-run", "kctl migrate revert --plan plan.json --node 1 --yes"
    ),
)
@shows(FileRow)
def revert(
    ctx: typer.Context,
    *,
    plan: PlanFile,
    node: Node,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Restore the files of a node that was converted, before 4.x has run on it.

    It can be interrupted, and run again.  The exit status is 5 if a node of 4.x has run on the directories.
    """
    run: Invocation = ctx.obj
    planned = read_plan(plan)
    of_node = conversion.node_of(planned, node)
    files = RealFiles()
    with hold_directories([directory.path for directory in of_node.directories]):
        journal = read_journal(files, of_node.home)
        if journal is not None and conversion.has_started(files, planned, of_node):
            raise Refused(f"4.x has run on the directories of node {node} since the conversion")
        paths = [] if journal is None else list(journal.originals)
        if dry_run:
            run.console.show(FileRow, [FileRow(node, path, "to be restored") for path in paths])
            return ExitStatus.DONE
        run.consent(f"Restore {counted(len(paths), 'file')} of node {node}?")
        restored = conversion.restore(files, planned, of_node)
    run.console.show(FileRow, [FileRow(node, path, "restored") for path in restored])
    return ExitStatus.DONE
