"""`kctl loggers list`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.configs import describe_configs
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.loggers.options import Brokers, loggers_of
from kctl.commands.query import QueryCommand
from kctl.commands.rows import outcome_error
from kctl.commands.shown import shows
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)

COLUMNS = (Column("broker", numeric=True), Column("logger"), Column("level"), *ERROR_COLUMNS)


class LoggerRow(NamedTuple):
    """A logger of a broker, or a broker whose loggers could not be described."""

    broker: int
    logger: str | None = None
    level: str | None = None
    error: str | None = None
    message: str | None = None


@app.command(
    "list",
    cls=QueryCommand,
    epilog=examples("kctl loggers list", "kctl loggers list --broker 1 --match 'kafka\\.controller.*' --format json"),
)
@shows(LoggerRow)
def list_loggers(
    ctx: typer.Context,
    *,
    brokers: Brokers = None,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="REGEX", help="Only loggers whose whole name matches."),
    ] = None,
) -> ExitStatus:
    """List the loggers of brokers with their levels, by name.

    The level is the one in force: a logger without a level of its own has that of its parent.  A kctl broker lists its
    own loggers, and those of Kafka's names that correspond to one of them.  Requires Kafka 2.4 or later.
    """
    run: Invocation = ctx.obj
    try:
        pattern = re.compile(match or "")
    except re.error as error:
        raise UsageError(f"--match {match}: {error}") from None

    async def query(client: ClusterClient) -> list[LoggerRow]:
        rows = []
        for resource, found in (await describe_configs(client, await loggers_of(client, brokers))).items():
            broker = int(resource.name)
            if isinstance(found, list):
                shown = [entry for entry in found if match is None or pattern.fullmatch(entry.name)]
                rows += [LoggerRow(broker, entry.name, entry.value) for entry in shown]
            else:
                rows.append(LoggerRow(broker, **outcome_error(found)))
        return sorted(rows, key=lambda row: (row.broker, row.logger or ""))

    rows = run.on_brokers(query)
    run.console.show(COLUMNS, rows)
    return run.status_of(rows)
