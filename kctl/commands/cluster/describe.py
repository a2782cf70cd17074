"""`kctl cluster describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import typer

from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.rows import known
from kctl.commands.shown import shows_one
from kctl.console import Column, Format

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient
    from kctl.client.metadata import ClusterMetadata

app = typer.Typer(add_completion=False)


BROKER_COLUMNS = (
    Column("broker", numeric=True),
    Column("host"),
    Column("port", numeric=True),
    Column("rack"),
    Column("controller"),
)


class BrokerRow(NamedTuple):
    """A live broker."""

    broker: int
    host: str
    port: int
    rack: str | None
    controller: bool


class ClusterOverview(NamedTuple):
    """The cluster above the table of its brokers."""

    cluster_id: str | None
    controller: int | None


class ClusterItem(NamedTuple):
    """The cluster as a JSON object."""

    cluster_id: str | None
    controller: int | None
    brokers: list[BrokerRow]


@app.command(
    "describe", cls=QueryCommand, epilog=examples("kctl cluster describe", "kctl cluster describe --format json")
)
@shows_one(ClusterItem)
def describe(ctx: typer.Context) -> ExitStatus:
    """Describe the cluster: its id, its controller and its live brokers.

    One row per broker; with json, jsonl and yaml one object.  Brokers of a KRaft cluster name any one of themselves as
    the controller; 'kctl metadata-quorum describe' shows the leader of the controllers.
    """
    run: Invocation = ctx.obj

    async def query(client: ClusterClient) -> ClusterMetadata:
        return await client.metadata([])

    metadata = run.on_cluster(query)
    brokers = [
        BrokerRow(broker.node_id, broker.host, broker.port, broker.rack, broker.node_id == metadata.controller_id)
        for broker in metadata.brokers.values()
    ]
    run.store_names("brokers", (str(row.broker) for row in brokers))
    overview = ClusterOverview(metadata.cluster_id, known(metadata.controller_id))
    if run.console.is_machine_readable:
        run.console.show_one(ClusterItem(*overview, brokers))
        run.console.listed = len(brokers)
        return ExitStatus.DONE
    if run.console.format is Format.TABLE:
        run.console.show_one(overview)
        run.console.text("")
    run.console.show(BROKER_COLUMNS, brokers)
    return ExitStatus.DONE
