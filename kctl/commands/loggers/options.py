"""The common part of the verbs of `kctl loggers`: options, and the change of levels with its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    alter_configs,
    describe_configs,
    entry_named,
)
from kctl.admin.outcome import Outcome
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.rows import outcome_error
from kctl.console import ERROR_COLUMNS, Column

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Kafka: LogLevelConfig."""

Brokers = Annotated[
    list[int] | None,
    typer.Option("--broker", metavar="ID", help="Only this broker.  Default: all brokers.", min=0),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the brokers validate the change without making it.")]

CHANGE_COLUMNS = (
    Column("broker", numeric=True),
    Column("logger"),
    Column("before"),
    Column("after"),
    Column("status"),
    *ERROR_COLUMNS,
)


class LevelChangeRow(NamedTuple):
    """A logger of a broker whose level is changed."""

    broker: int
    logger: str
    before: str | None
    after: str | None
    """Null if it is not known: the change failed, or a dry run does not show which level the logger would inherit."""
    status: str | None
    error: str | None = None
    message: str | None = None


async def loggers_of(client: ClusterClient, brokers: list[int] | None) -> list[ConfigResource]:
    """The loggers of the named brokers, or of all, by broker id."""
    ids = brokers if brokers is not None else (await client.metadata([])).brokers
    return [ConfigResource(ResourceType.BROKER_LOGGER, str(broker_id)) for broker_id in sorted(set(ids))]


def alter(run: Invocation, changes: list[ConfigChange], brokers: list[int] | None, *, dry_run: bool) -> ExitStatus:
    """Changes the levels, describes them again, and shows a row per broker and logger."""
    names = [change.name for change in changes]

    async def send(client: ClusterClient) -> list[LevelChangeRow]:
        resources = await loggers_of(client, brokers)
        before = await describe_configs(client, resources, names=names)
        outcomes = await alter_configs(client, dict.fromkeys(resources, changes), validate_only=dry_run)
        after = before if dry_run else await describe_configs(client, resources, names=names)
        return [
            LevelChangeRow(
                broker=int(resource.name),
                logger=change.name,
                before=_level(before[resource], change.name),
                after=change.value if dry_run and outcome.is_done else _level(after[resource], change.name),
                status=("would be altered" if dry_run else "altered") if outcome.is_done else None,
                **outcome_error(outcome),
            )
            for resource in resources
            for outcome in [outcomes[resource]]
            for change in changes
        ]

    rows = run.on_brokers(send)
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)


def _level(found: list[ConfigEntry] | Outcome, name: str) -> str | None:
    entry = entry_named(found, name) if isinstance(found, list) else None
    return entry.value if entry else None
