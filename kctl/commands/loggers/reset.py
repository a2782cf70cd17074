"""`kctl loggers reset`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.configs import ConfigChange, ConfigOperation
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.loggers.options import Brokers, DryRun, alter

app = typer.Typer(add_completion=False)


@app.command(
    "reset",
    cls=ChangingCommand,
    epilog=examples("kctl loggers reset kafka.controller", "kctl loggers reset kafka.log.LogCleaner --broker 1"),
)
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
