"""`kctl migrate rescue`."""

from __future__ import annotations

import posixpath
from typing import Annotated, NamedTuple

import typer

from kctl.commands.frame.command import LocalChange
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.shown import shows
from kctl.errors import UsageError
from kctl.migration.converting.journal import State, read_journal
from kctl.migration.converting.preconditions import hold_directories
from kctl.migration.rescue import Renaming, plan_rescue, rescue
from kctl.output.quantities import counted
from kctl.storage.files import RealFiles

verbs = typer.Typer(add_completion=False)


class RescueRow(NamedTuple):
    """A directory or file that gets its name back."""

    directory: str
    name: str
    new_name: str
    status: str
    message: str | None


@verbs.command(
    "rescue",
    cls=LocalChange,
    epilog=examples(
        "kctl migrate rescue --log-dir /var/lib/kafka/data --dry-run",
        "kctl migrate rescue --log-dir /disk1/kafka --log-dir /disk2/kafka --yes",
    ),
)
@shows(RescueRow)
def rescue_logs(
    ctx: typer.Context,
    *,
    log_dir: Annotated[list[str], typer.Option("--log-dir", metavar="DIR", help="Log directory.  Repeatable.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be renamed.")] = False,
) -> ExitStatus:
    """Put back the logs that Kafka 4 has renamed to -stray, because it was started on directories with ZooKeeper.

    Stop the broker first.  The metadata log that 4.x began is kept, under names that brokers ignore.  Nothing is
    deleted.  Then start the old broker, or plan the conversion.

    The exit status is 1 if a log cannot be put back, because 4.x has created its partition again.
    """
    run: Invocation = ctx.obj
    files = RealFiles()
    directories = [posixpath.abspath(path) for path in log_dir]
    with hold_directories(directories):
        for directory in directories:
            journal = read_journal(files, directory)
            if journal is not None and journal.state is not State.REVERTED:
                raise UsageError(f"{directory} was converted: use 'kctl migrate revert'")
        renamings = [renaming for directory in directories for renaming in plan_rescue(files, directory)]
        possible = [renaming for renaming in renamings if renaming.problem is None]
        if possible and not dry_run:
            run.consent(f"Rename {counted(len(possible), 'file or directory', 'files and directories')}?")
            rescue(files, possible)
    run.console.show(RescueRow, [_row(renaming, "to be renamed" if dry_run else "renamed") for renaming in renamings])
    return ExitStatus.DONE if len(possible) == len(renamings) else ExitStatus.FAILED


def _row(renaming: Renaming, status: str) -> RescueRow:
    done = status if renaming.problem is None else "left"
    return RescueRow(renaming.directory, renaming.name, renaming.new_name, done, renaming.problem)
