"""`kctl apply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.placement.execution import start_moves
from kctl.admin.placement.throttling import key_of
from kctl.admin.state.applying import Applying, read_state
from kctl.admin.state.diff import differences
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus, Terminated
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Rate
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.profiles.secrets import resolved
from kctl.commands.plan import NOT_DONE, PLANNED, ChangeRow, outcome_row, planned_row, read_desired
from kctl.commands.reassign.rows import StateDir
from kctl.commands.reassign.throttling import records_of
from kctl.commands.reassign.throttling import throttle as set_throttle
from kctl.errors import ClusterUnreachable
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.placement.plan import Move
    from kctl.admin.state.applying import Start
    from kctl.admin.state.diff import Change
    from kctl.admin.state.document import DesiredState
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome
    from kctl.model import TopicPartition


# `kctl apply`.


app = typer.Typer(add_completion=False)


@app.command(
    "apply",
    cls=ChangingCommand,
    epilog=examples(
        "kctl apply cluster.yaml --dry-run", "kctl apply cluster.yaml --yes", "kctl apply cluster.yaml --delete --yes"
    ),
)
@shows(ChangeRow)
def apply(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="YAML document with topics, ACLs, quotas and users.", metavar="FILE")],
    *,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="Also remove what the section 'managed' of the document covers and the document lacks."
        ),
    ] = False,
    throttle: Annotated[
        Rate | None,
        typer.Option(
            "--throttle",
            parser=Rate.within("1"),
            help="Limit on the replication traffic of each broker while replicas are added, such as 50m; 'kctl reassign"
            " verify' removes it.",
        ),
    ] = None,
    state_dir: StateDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the brokers validate the changes without making them.")
    ] = False,
) -> ExitStatus:
    """Change a cluster so that it has what a YAML document requires.

    Creates topics, adds partitions, starts reassignments for another replication factor, sets properties and quotas,
    adds ACLs, and sets passwords of SCRAM users.  A cluster that has all of it is not changed.  Partitions are never
    removed: if the document requires that, nothing is changed.

    One row per change.  After a failure nothing is removed; rows with the status 'not done' were not attempted.  Asks
    for confirmation on a terminal; elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    rate = throttle
    desired = read_desired(file)
    found = differences(desired, run.on_brokers(lambda client: read_state(client, desired)))
    changes = [change for change in found if delete or not change.is_removal]
    kept = len(found) - len(changes)
    if kept:
        items = counted(kept, "item that the document lacks is", "items that the document lacks are")
        run.console.note(f"{items} kept; --delete removes what the document lacks")
    rows = [planned_row(change, deletes=delete) for change in changes]
    if any(row.error for row in rows):
        run.console.show(ChangeRow, [row if row.error else row._replace(status=NOT_DONE) for row in rows])
        return ExitStatus.FAILED
    if not changes:
        run.console.note("the cluster has what the document requires")
        run.console.show(ChangeRow, [])
        return ExitStatus.DONE
    # Before anything is changed: a secret that cannot be read is an error of the whole document.
    passwords = _passwords(desired, changes)
    if not dry_run:
        _show_before_consent(run, rows)
        removals = sum(change.is_removal for change in changes)
        run.consent(f"Make {counted(len(changes), 'change')}, with {counted(removals, 'removal')}?")
    start = start_moves if rate is None else _throttled(run, rate, state_dir)
    return _perform(run, Applying(desired, passwords.__getitem__, start), changes, dry_run=dry_run)


def _throttled(run: Invocation, rate: int, state_dir: str | None) -> Start:
    """Start moves with a throttle, which stays until they have ended."""

    async def start(client: ClusterClient, moves: Sequence[Move]) -> dict[TopicPartition, Outcome]:
        records = records_of(state_dir, (await client.metadata([])).cluster_id)
        run.console.note("the throttle stays until 'kctl reassign verify' finds the partitions moved")
        # Locked until the moves have started: `verify` would remove the throttle as one of a move that has ended.
        with records.locked():
            await set_throttle(run, client, records, key_of([move.tp for move in moves]), moves, rate)
            return await start_moves(client, moves)

    return start


def _perform(run: Invocation, applying: Applying, changes: list[Change], *, dry_run: bool) -> ExitStatus:
    """Make the changes, and show what was done also if the command is interrupted."""
    status = None
    try:
        run.on_brokers(lambda client: applying.run(client, changes, validate_only=dry_run))
    except KeyboardInterrupt as error:
        status = ExitStatus.TERMINATED if isinstance(error, Terminated) else ExitStatus.INTERRUPTED
        run.console.warn("interrupted: the outcome of the first change that is 'not done' is unknown")
    except (ClusterUnreachable, TimeoutError) as error:
        status = ExitStatus.UNREACHABLE
        run.console.warn(f"{error}; the outcome of the first change that is 'not done' is unknown")
    rows = [outcome_row(change, applying.outcomes.get(change), is_dry_run=dry_run) for change in changes]
    run.console.show(ChangeRow, rows)
    return run.status_of(rows) if status is None else status


def _passwords(desired: DesiredState, changes: list[Change]) -> dict[str, str]:
    """Return the secrets that are needed, by their references.  Raises UsageError."""
    users = {
        key: user for key, user in (desired.users or {}).items() if any(change.target == key for change in changes)
    }
    return {
        user.password: resolved(f"password of {key.name}", user.password)
        for key, user in users.items()
        if user.password
    }


def _show_before_consent(run: Invocation, rows: list[ChangeRow]) -> None:
    """On a terminal, shows the changes on stderr before the question."""
    if run.has_consent or run.console.quiet:
        return
    for row in rows:
        values = f" {row.property}={row.after}" if row.property and row.status == PLANNED else ""
        run.console.note(f"{row.action} {row.kind} {row.name}{values}")
