"""Sets the password of an existing or new user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.admin import users, users_in_zookeeper
from kctl.admin.outcome import Outcome
from kctl.admin.users import NewPassword
from kctl.commands.exit_status import ExitStatus
from kctl.commands.users.options import mechanisms_of, on_users, read_password
from kctl.commands.users.rows import CHANGE_COLUMNS, user_change_row, user_change_rows
from kctl.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.commands.invocation import Invocation
    from kctl.commands.users.options import Ensemble


def set_user_password(
    run: Invocation,
    name: str,
    *,
    mechanism_names: Sequence[str] | None,
    iterations: int,
    password_file: str | None,
    ensemble: Ensemble | None,
    is_new: bool,
    dry_run: bool,
) -> ExitStatus:
    """Checks whether the user exists, sets the password and shows the outcome."""
    mechanisms = mechanisms_of(mechanism_names)
    password = None if password_file is None else read_password(password_file, name)
    (described,) = on_users(
        run,
        ensemble,
        on_cluster=lambda client: users.describe_users(client, [name]),
        on_zookeeper=lambda session: users_in_zookeeper.describe_users(session, [name]),
    )
    outcome = described.outcome
    if outcome.error is ErrorCode.RESOURCE_NOT_FOUND:
        outcome = Outcome(name) if is_new else outcome
    elif outcome.is_done and is_new:
        known = ", ".join(each.config_key for each in described.iterations)
        outcome = Outcome(name, ErrorCode.DUPLICATE_RESOURCE, f"the user exists, with {known}; use kctl users alter")
    if outcome.is_done and not mechanism_names and not is_new:
        mechanisms = tuple(described.iterations)
    done = "created" if is_new else "altered"
    if outcome.is_done and not dry_run:
        new = NewPassword(password or read_password(None, name), mechanisms, iterations)
        run.restart_timeout()
        outcomes = on_users(
            run,
            ensemble,
            on_cluster=lambda client: users.set_password(client, name, new),
            on_zookeeper=lambda session: users_in_zookeeper.set_password(session, name, new),
        )
        rows = user_change_rows(outcomes, done)
    else:
        rows = [user_change_row(outcome, mechanisms, f"would be {done}")]
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)
