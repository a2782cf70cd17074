"""Rows of `kctl plan` and `kctl apply`, and the document that both read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.desired_state import parse_state
from kctl.admin.state_diff import REPLICATION_FACTOR, Action
from kctl.admin.yaml_text import read_yaml
from kctl.commands.rows import outcome_error
from kctl.console import ERROR_COLUMNS, Column
from kctl.errors import ErrorCode, UsageError
from kctl.input_files import read_input

if TYPE_CHECKING:
    from kctl.admin.desired_state import DesiredState
    from kctl.admin.outcome import Outcome
    from kctl.admin.state_diff import Change

COLUMNS = (
    Column("kind"),
    Column("name"),
    Column("action"),
    Column("property"),
    Column("before"),
    Column("after", wraps=True),
    Column("status"),
    *ERROR_COLUMNS,
)
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
    after: str | None
    status: str | None
    """planned, only with --delete, or what was done; None if it failed."""
    error: str | None = None
    message: str | None = None


def read_desired(path: str) -> DesiredState:
    """The document in a file.  Raises UsageError."""
    try:
        return parse_state(read_yaml(read_input(path), path), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def planned_row(change: Change, *, deletes: bool) -> ChangeRow:
    """A change that has not been tried."""
    row = _row(change, ONLY_WITH_DELETE if change.is_removal and not deletes else PLANNED)
    if change.problem is None:
        return row
    return row._replace(status=None, error=ErrorCode.INVALID_REQUEST.name, message=change.problem)


def outcome_row(change: Change, outcome: Outcome | None, *, is_dry_run: bool) -> ChangeRow:
    """A change with its outcome; None if it was not tried or the outcome is unknown."""
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
