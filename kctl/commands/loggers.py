"""`kctl loggers`: list, set and reset the log levels of brokers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.topics.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    alter_configs,
    describe_configs,
    entry_named,
)
from kctl.client.outcome import Outcome
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.options.values import parse_pair
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.errors import UsageError
from kctl.output.console import ErrorName, ErrorText

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient


app = typer.Typer(
    cls=verb_group(__name__, ["list", "set", "reset"]),
    help="List, set and reset the log levels of brokers.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# The common part of the verbs of `kctl loggers`: options, and the change of levels with its rows.


LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Kafka: LogLevelConfig."""

Brokers = Annotated[
    list[int] | None,
    typer.Option("--broker", metavar="ID", help="Only this broker.  Default: all brokers.", min=0),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the brokers validate the change without making it.")]


class LevelChangeRow(NamedTuple):
    """A logger of a broker whose level is changed."""

    broker: int
    logger: str
    before: str | None
    after: Annotated[
        str | None,
        "Null if it is not known: the change failed, or a dry run does not show which level the logger would inherit.",
    ]
    status: str | None
    error: ErrorName = None
    message: ErrorText = None


async def loggers_of(client: ClusterClient, brokers: list[int] | None) -> list[ConfigResource]:
    """Return the loggers of the named brokers, or of all, by broker id."""
    ids = brokers if brokers is not None else (await client.metadata([])).brokers
    return [ConfigResource(ResourceType.BROKER_LOGGER, str(broker_id)) for broker_id in sorted(set(ids))]


def alter(run: Invocation, changes: list[ConfigChange], brokers: list[int] | None, *, dry_run: bool) -> ExitStatus:
    """Change the levels, describe them again, and show a row per broker and logger."""
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
    run.console.show(LevelChangeRow, rows)
    return run.status_of(rows)


def _level(found: list[ConfigEntry] | Outcome, name: str) -> str | None:
    entry = entry_named(found, name) if isinstance(found, list) else None
    return entry.value if entry else None


# `kctl loggers list`.


verbs = typer.Typer(add_completion=False)


class LoggerRow(NamedTuple):
    """A logger of a broker, or a broker whose loggers could not be described."""

    broker: int
    logger: str | None = None
    level: str | None = None
    error: ErrorName = None
    message: ErrorText = None


@verbs.command(
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
    run.console.show(LoggerRow, rows)
    return run.status_of(rows)


# `kctl loggers set`.


@verbs.command(
    "set",
    cls=ChangingCommand,
    epilog=examples(
        "kctl loggers set kafka.controller=DEBUG",
        "kctl loggers set kafka.request.logger=DEBUG kafka.log.LogCleaner=DEBUG --broker 1",
        "kctl loggers set root=ERROR --dry-run",
    ),
)
@shows(LevelChangeRow)
def set_levels(
    ctx: typer.Context,
    levels: Annotated[
        list[str],
        typer.Argument(help=f"Loggers with their new levels: {', '.join(LEVELS)}.", metavar="LOGGER=LEVEL"),
    ],
    *,
    brokers: Brokers = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Set the levels of loggers, until they are reset or the broker stops.

    One row per broker and logger.  The changes of one broker are validated together.  Requires Kafka 2.4 or later.
    """
    run: Invocation = ctx.obj
    changes = []
    for name, text in dict(map(parse_pair, levels)).items():
        if text.upper() not in LEVELS:
            raise UsageError(f"{name}={text}: the level must be one of {', '.join(LEVELS)}")
        changes.append(ConfigChange(name, ConfigOperation.SET, text.upper()))
    return alter(run, changes, brokers, dry_run=dry_run)


# `kctl loggers reset`.


@verbs.command(
    "reset",
    cls=ChangingCommand,
    epilog=examples("kctl loggers reset kafka.controller", "kctl loggers reset kafka.log.LogCleaner --broker 1"),
)
@shows(LevelChangeRow)
def reset(
    ctx: typer.Context,
    loggers: Annotated[list[str], typer.Argument(help="Loggers.", metavar="LOGGER")],
    *,
    brokers: Brokers = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Remove the levels of loggers, which then have those of their parents.

    One row per broker and logger.  A kctl broker gives a logger the level back that it had at the start, if it had one.
    The root logger cannot be reset.  Requires Kafka 2.4 or later.
    """
    run: Invocation = ctx.obj
    changes = [ConfigChange(name, ConfigOperation.DELETE) for name in dict.fromkeys(loggers)]
    return alter(run, changes, brokers, dry_run=dry_run)
