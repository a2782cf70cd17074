"""ACLs as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.rows import outcome_error
from kctl.console import ERROR_COLUMNS, Column

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome
    from kctl.security.acls import AclBinding

_ACL_COLUMNS = (
    Column("resource_type"),
    Column("resource_name"),
    Column("pattern_type"),
    Column("principal"),
    Column("host"),
    Column("operation"),
    Column("permission"),
)
LIST_COLUMNS = _ACL_COLUMNS
CHANGE_COLUMNS = (*_ACL_COLUMNS, Column("status"), *ERROR_COLUMNS)


class AclRow(NamedTuple):
    """An ACL, in the fields of an exported document."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class AclChangeRow(NamedTuple):
    """An ACL that was changed, or that would be changed without --dry-run."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str
    status: str | None
    error: str | None = None
    message: str | None = None


def acl_row(binding: AclBinding) -> AclRow:
    """The row of an ACL."""
    pattern, entry = binding
    return AclRow(
        pattern.type.label,
        pattern.name,
        pattern.pattern_type.label,
        entry.principal,
        entry.host,
        entry.operation.label,
        entry.permission.label,
    )


def change_row(binding: AclBinding, status: str, outcome: Outcome | None = None) -> AclChangeRow:
    """The row of a changed ACL with its outcome; without an outcome for a dry run."""
    row = AclChangeRow(*acl_row(binding), status=status)
    if outcome is None or outcome.is_done:
        return row
    return row._replace(status=None, **outcome_error(outcome))
