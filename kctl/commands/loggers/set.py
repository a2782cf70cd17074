"""`kctl loggers set`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.configs import ConfigChange, ConfigOperation
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.loggers.options import LEVELS, Brokers, DryRun, alter
from kctl.commands.values import parse_pairs
from kctl.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command(
    "set",
    cls=ChangingCommand,
    epilog=examples(
        "kctl loggers set kafka.controller=DEBUG",
        "kctl loggers set kafka.request.logger=DEBUG kafka.log.LogCleaner=DEBUG --broker 1",
        "kctl loggers set root=ERROR --dry-run",
    ),
)
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
    for name, text in parse_pairs(levels, "LOGGER=LEVEL").items():
        if text.upper() not in LEVELS:
            raise UsageError(f"{name}={text}: the level must be one of {', '.join(LEVELS)}")
        changes.append(ConfigChange(name, ConfigOperation.SET, text.upper()))
    return alter(run, changes, brokers, dry_run=dry_run)
