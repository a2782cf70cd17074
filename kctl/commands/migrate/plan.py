"""`kctl migrate`: inventory, plan."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import typer

from kctl.commands.broker.zookeeper import DEFAULT_CONNECT, Connect, TlsConfigFile, run_on_zookeeper
from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.config.addresses import parse_addresses
from kctl.config.properties import decode_properties, parse_properties
from kctl.errors import UsageError
from kctl.migration.planning.making import Choices, ControllerSpec, check_choices, make_plan
from kctl.migration.planning.plan import MigrationPlan, NodePlan, plan_text
from kctl.migration.source.cluster import StoredCluster, parse_cluster
from kctl.migration.source.inventory import NodeInventory, inventory_document, parse_inventory, take_inventory
from kctl.migration.source.reading import read_znodes
from kctl.migration.target.records import Findings
from kctl.migration.target.snapshot import FILE_NAME, METADATA_FOLDER
from kctl.model import uuid_text
from kctl.output.console import Column
from kctl.output.documents import read_json
from kctl.output.quantities import INT32_MAX, counted, parse_integer
from kctl.storage.files import RealFiles
from kctl.system.user_files import read_input, read_text, replace_private

verbs = typer.Typer(add_completion=False)

BrokerConfigs = Annotated[
    list[str] | None,
    typer.Option(
        "--broker-config",
        metavar="FILE",
        help="server.properties of a broker whose log directories are on this machine.  Repeatable.",
    ),
]
Output = Annotated[str | None, typer.Option("--output", metavar="FILE", help="Where to write the document.")]

_CONTROLLER = re.compile(r"(?P<id>[0-9]+)@(?P<address>[^=]+)(?:=(?P<directory>/.*))?")


def read_inventory(path: str) -> NodeInventory:
    """Take the inventory of the broker with these properties.  Raises UsageError."""
    try:
        data = read_input(path)
        properties = parse_properties(decode_properties(data))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    return take_inventory(RealFiles(), properties, config_path=os.path.abspath(path), config_data=data)


def read_document(path: str) -> Any:
    """Return the JSON document in a file.  Raises UsageError with its name."""
    text = read_text(path)
    try:
        return read_json(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def read_cluster(run: Invocation, connect: str, tls_config: str | None) -> StoredCluster:
    """Return what the cluster stores in ZooKeeper.  Raises ClusterUnreachable, UsageError and ZooKeeperError."""
    znodes = run_on_zookeeper(run, connect, "/", lambda session, _: read_znodes(session), tls_config=tls_config)
    return parse_cluster(znodes)


# `kctl migrate inventory`.


class InventoryRow(NamedTuple):
    """A log directory of the broker."""

    node: int
    directory: str
    logs: int
    clean: bool
    """Whether the broker was shut down cleanly."""
    directory_id: str | None
    left: list[str]


@verbs.command(
    "inventory",
    cls=LocalCommand,
    epilog=examples(
        "kctl migrate inventory --broker-config /etc/kafka/server.properties --output broker-1.json",
    ),
)
@shows(InventoryRow)
def inventory(
    ctx: typer.Context,
    *,
    broker_config: Annotated[
        str, typer.Option("--broker-config", metavar="FILE", help="server.properties of the broker, which is stopped.")
    ],
    output: Output = None,
) -> ExitStatus:
    """Take the inventory of a stopped broker, for 'kctl migrate plan' on another host.

    Reads the properties and the log directories; changes nothing.  The document has the names of all logs, and no
    password: their values are hidden.
    """
    run: Invocation = ctx.obj
    node = read_inventory(broker_config)
    if output is not None:
        _write(output, json.dumps(inventory_document(node)) + "\n")
    rows = [
        InventoryRow(
            node.node_id,
            directory.path,
            len(directory.logs),
            directory.is_clean,
            directory.meta.get("directory.id"),
            list(directory.left),
        )
        for directory in node.directories
    ]
    run.console.show(InventoryRow, rows)
    return ExitStatus.DONE


# `kctl migrate plan`.


class PlanRow(NamedTuple):
    """Something that the migration does, or that the operator has to know."""

    node: int | None
    action: str
    subject: str
    detail: Annotated[str | None, Column(drop_order=1)]


@verbs.command(
    "plan",
    cls=LocalCommand,
    epilog=examples(
        "kctl migrate plan --broker-config server.properties --controller 0@kafka-0:9093 --output plan.json",
        "kctl migrate plan --inventory 1.json --inventory 2.json --controller 1@kafka-1:9093 --zookeeper zk:2181",
        "kctl migrate plan --inventory 1.json --controller 100@controller:9093=/var/lib/kafka --dynamic-quorum",
    ),
)
@shows(PlanRow)
def plan(
    ctx: typer.Context,
    *,
    broker_config: BrokerConfigs = None,
    inventory: Annotated[
        list[str] | None,
        typer.Option(
            "--inventory", metavar="FILE", help="Document of 'kctl migrate inventory' of another host.  Repeatable."
        ),
    ] = None,
    controller: Annotated[
        list[str] | None,
        typer.Option(
            "--controller",
            metavar="ID@HOST:PORT[=DIR]",
            help="A controller of the new cluster: the id of a broker, which then is both, or a new id and its"
            " directory.  Repeatable.",
        ),
    ] = None,
    dynamic_quorum: Annotated[
        bool,
        typer.Option("--dynamic-quorum", help="Store the voters in the metadata log (KIP-853), not in the properties."),
    ] = False,
    controller_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        typer.Option("--controller-protocol", help="Security protocol of the controllers' listeners."),
    ] = "PLAINTEXT",
    target: Annotated[
        Literal["4.0", "4.1", "4.2", "4.3", "4.4"],
        typer.Option("--target", help="Version of Apache Kafka that will run on the directories."),
    ] = "4.3",
    zookeeper: Connect = DEFAULT_CONNECT,
    zk_tls_config_file: TlsConfigFile = None,
    output: Output = None,
) -> ExitStatus:
    """Plan the conversion of a stopped cluster to KRaft; changes nothing.

    Reads ZooKeeper and the log directories, and writes one document for 'kctl migrate convert' of each node.  It
    contains ACLs and SCRAM credentials: only its owner can read it.

    Shows what each node gets, and what is not carried.  With problems the exit status is 3, and no document is written.
    """
    run: Invocation = ctx.obj
    nodes = [read_inventory(path) for path in broker_config or []]
    nodes += [parse_inventory(read_document(path), path) for path in inventory or []]
    choices = Choices(
        [parse_controller(text) for text in controller or []], zookeeper, target, dynamic_quorum, controller_protocol
    )
    check_choices(nodes, choices)
    planned, findings = make_plan(
        read_cluster(run, zookeeper, zk_tls_config_file),
        nodes,
        choices,
        new_id=_new_id,
        now_ms=round(time() * 1000),
    )
    run.console.show(PlanRow, list(_plan_rows(planned, findings)))
    if findings.problems:
        run.console.note(f"{counted(len(findings.problems), 'problem')}: no plan was written")
        return ExitStatus.UNMET
    if output is not None:
        _write(output, plan_text(planned))
        run.console.note(f"next, on each node: kctl migrate convert --plan {output} --node ID --dry-run")
    return ExitStatus.DONE


def parse_controller(text: str) -> ControllerSpec:
    """Return the controller in `ID@HOST:PORT` or `ID@HOST:PORT=DIR`.  Raises UsageError."""
    match = _CONTROLLER.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--controller {text}: write ID@HOST:PORT, and for a node of its own =DIR with an absolute path"
        )
    ((host, port),) = parse_addresses(match["address"], default_port=9093)[:1]
    directory = match["directory"]
    number = parse_integer(match["id"], "--controller: the id", low=0, high=INT32_MAX)
    return ControllerSpec(number, host, port, None if directory is None else os.path.normpath(directory))


def _new_id() -> UUID:
    """Return a random id as Kafka makes them: its text does not begin with a dash, which would look like an option."""
    make: Callable[[], UUID] = lambda: UUID(bytes=os.urandom(16), version=4)  # noqa: E731
    chosen = make()
    while uuid_text(chosen).startswith("-"):
        chosen = make()
    return chosen


def _plan_rows(planned: MigrationPlan, findings: Findings) -> Iterator[PlanRow]:
    yield from (PlanRow(None, "problem", problem, None) for problem in findings.problems)
    yield from (PlanRow(None, "note", note, None) for note in findings.notes)
    for name, level in planned.features.items():
        yield PlanRow(None, "feature", name, str(level))
    for node in planned.nodes.values():
        yield from _node_rows(planned, node)


def _node_rows(planned: MigrationPlan, node: NodePlan) -> Iterator[PlanRow]:
    yield PlanRow(node.node_id, "roles", node.roles, None)
    if node.metadata_dir is not None:
        path = f"{node.metadata_dir}/{METADATA_FOLDER}/{FILE_NAME}"
        size = len(planned.snapshot)
        yield PlanRow(node.node_id, "write", path, f"{counted(size, 'byte')}, sha256 {planned.snapshot_sha256[:16]}")
    yield PlanRow(
        node.node_id, "write", node.new_config, f"translated from {node.old_config}" if node.old_config else None
    )
    metadata = [path for path in node.files if path.endswith("/partition.metadata")]
    for path in node.files:
        if path not in metadata:
            yield PlanRow(node.node_id, "replace", path, None)
    if metadata:
        yield PlanRow(node.node_id, "write", f"partition.metadata of {counted(len(metadata), 'log')}", None)
    for name, value in node.settings.items():
        yield PlanRow(node.node_id, "set property", name, value)
    for name, reason in node.changes:
        yield PlanRow(node.node_id, "change property", name, reason or None)


def _write(path: str, text: str) -> None:
    try:
        replace_private(Path(path), text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
