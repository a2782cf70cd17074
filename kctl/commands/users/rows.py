"""Rows of `kctl users`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.rows import outcome_error
from kctl.console import ERROR_COLUMNS, Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kctl.admin.outcome import Outcome
    from kctl.admin.users import DescribedUser
    from kctl.security.scram_credentials import Mechanism

USER_COLUMNS = (Column("user"), Column("mechanism"), Column("iterations", numeric=True), *ERROR_COLUMNS)
CHANGE_COLUMNS = (Column("user"), Column("mechanisms"), Column("status"), *ERROR_COLUMNS)


class UserRow(NamedTuple):
    """A credential of a user, or a user that could not be described."""

    user: str
    mechanism: str | None
    iterations: int | None
    error: str | None = None
    message: str | None = None


class UserChangeRow(NamedTuple):
    """A user that is created, altered or deleted."""

    user: str
    mechanisms: list[str]
    status: str | None
    error: str | None = None
    message: str | None = None


def user_rows(described: DescribedUser) -> list[UserRow]:
    """A row for each credential."""
    outcome = described.outcome
    if not outcome.is_done:
        return [UserRow(outcome.name, None, None, **outcome_error(outcome))]
    return [UserRow(outcome.name, each.config_key, count) for each, count in described.iterations.items()]


def user_change_rows(outcomes: Mapping[Mechanism, Outcome], status: str) -> list[UserChangeRow]:
    """A row for all mechanisms with the same outcome."""
    mechanisms: dict[Outcome, list[Mechanism]] = {}
    for mechanism, outcome in outcomes.items():
        mechanisms.setdefault(outcome, []).append(mechanism)
    return [user_change_row(outcome, each, status) for outcome, each in mechanisms.items()]


def user_change_row(outcome: Outcome, mechanisms: Sequence[Mechanism], status: str) -> UserChangeRow:
    """The outcome of a change; `status` is shown if it succeeded."""
    return UserChangeRow(
        user=outcome.name,
        mechanisms=[each.config_key for each in mechanisms],
        status=status if outcome.is_done else None,
        **outcome_error(outcome),
    )
