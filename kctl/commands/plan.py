"""`kctl plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.state.applying import Applying, export_state, read_state
from kctl.admin.state.diff import REPLICATION_FACTOR, Action, differences
from kctl.admin.state.document import format_state, parse_state
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.output.rows import outcome_error
from kctl.commands.frame.output.shown import shows
from kctl.errors import ErrorCode, UsageError
from kctl.output.console import Column, ErrorName, ErrorText
from kctl.output.yaml_text import read_yaml, write_yaml
from kctl.system.user_files import read_input

if TYPE_CHECKING:
    from kctl.admin.state.diff import Change
    from kctl.admin.state.document import DesiredState
    from kctl.client.cluster import ClusterClient
    from kctl.client.outcome import Outcome


# Rows of `kctl plan` and `kctl apply`, and the document that both read.


PLANNED = "planned"
ONLY_WITH_DELETE = "only with --delete"
NOT_DONE = "not done"
_DONE = {Action.CREATE: "created", Action.ALTER: "altered", Action.RESET: "reset", Action.DELETE: "deleted"}


class ChangeRow(NamedTuple):
    """One difference between a cluster and a document."""

    kind: str
    name: str
    action: str
    property: str | None
    before: str | None
    after: Annotated[str | None, Column(wraps=True)]
    status: Annotated[str | None, "planned, only with --delete, or what was done; null if it failed."]
    error: ErrorName = None
    message: ErrorText = None


def read_desired(path: str) -> DesiredState:
    """Return the document in a file.  Raises UsageError."""
    try:
        return parse_state(read_yaml(read_input(path), path), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def planned_row(change: Change, *, deletes: bool) -> ChangeRow:
    """Return a change that has not been tried."""
    row = _row(change, ONLY_WITH_DELETE if change.is_removal and not deletes else PLANNED)
    if change.problem is None:
        return row
    return row._replace(status=None, error=ErrorCode.INVALID_REQUEST.name, message=change.problem)


def outcome_row(change: Change, outcome: Outcome | None, *, is_dry_run: bool) -> ChangeRow:
    """Return a change with its outcome; None if it was not tried or the outcome is unknown."""
    if outcome is None:
        return _row(change, NOT_DONE)
    if not outcome.is_done:
        return _row(change, None)._replace(**outcome_error(outcome))
    if is_dry_run:
        return _row(change, PLANNED)
    return _row(change, "reassignment started" if change.item == REPLICATION_FACTOR else _DONE[change.action])


def _row(change: Change, status: str | None) -> ChangeRow:
    return ChangeRow(
        change.kind.value, change.name, change.action.value, change.item, change.before, change.after, status
    )


# `kctl plan`.


app = typer.Typer(add_completion=False)


@app.command(
    "plan",
    cls=ClusterCommand,
    epilog=examples(
        "kctl plan cluster.yaml", "kctl plan cluster.yaml --format json", "kctl plan --export > cluster.yaml"
    ),
)
@shows(ChangeRow, instead=dict[str, object])
def plan(
    ctx: typer.Context,
    file: Annotated[
        str | None, typer.Argument(help="YAML document with topics, ACLs, quotas and users.", metavar="FILE")
    ] = None,
    *,
    delete: Annotated[
        bool, typer.Option("--delete", help="Plan for 'kctl apply --delete': also remove what the document lacks.")
    ] = False,
    export: Annotated[bool, typer.Option("--export", help="Write a document with what the cluster has.")] = False,
) -> ExitStatus:
    """Show how a cluster differs from a YAML document, or write such a document.

    One row per difference; the exit status is 3 if there are any.  Nothing is changed; the brokers validate the
    changes, and what they would refuse is an error (exit status 1).  Properties, ACLs, quotas, users
    and topics that only the cluster has are shown if the section 'managed' of the document covers them.

    --export writes topics with their properties, ACLs, quotas and SCRAM users, without passwords and internal topics.
    docs/plan-and-apply.md describes the document.
    """
    run: Invocation = ctx.obj
    if export == (file is not None):
        raise UsageError("give either a file or --export")
    if file is None:
        state, notes = run.on_brokers(export_state)
        for note in notes:
            run.console.note(note)
        document = format_state(state)
        if run.console.is_machine_readable:
            run.console.show_one(document)
        else:
            run.console.verbatim(write_yaml(document))
        return ExitStatus.DONE
    desired = read_desired(file)

    async def compare(client: ClusterClient) -> tuple[list[Change], dict[Change, Outcome]]:
        changes = differences(desired, await read_state(client, desired))
        # A password is not read: nothing is sent for users.
        validation = Applying(desired, str)
        possible = [change for change in changes if change.problem is None and not change.is_removal]
        await validation.run(client, possible, validate_only=True)
        return changes, validation.outcomes

    changes, outcomes = run.on_brokers(compare)
    rows = [
        outcome_row(change, outcome, is_dry_run=True)
        if (outcome := outcomes.get(change)) is not None and _is_refused(outcome)
        else planned_row(change, deletes=delete)
        for change in changes
    ]
    run.console.show(ChangeRow, rows)
    status = run.status_of(rows)
    return ExitStatus.UNMET if changes and status is ExitStatus.DONE else status


def _is_refused(outcome: Outcome) -> bool:
    """Whether the brokers refuse a change for what it is, and not for who plans it."""
    return not outcome.is_done and not outcome.error.name.endswith("AUTHORIZATION_FAILED")
