"""`kctl users delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin import users, users_in_zookeeper
from kctl.admin.outcome import Outcome
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.topics.options import DRY_RUN
from kctl.commands.users.options import NAME, ZK_TLS_CONFIG_FILE, ZOOKEEPER, ensemble_of, mechanisms_of, on_users
from kctl.commands.users.rows import CHANGE_COLUMNS, UserChangeRow, user_change_row, user_change_rows
from kctl.errors import ErrorCode
from kctl.security.scram_credentials import Mechanism

app = typer.Typer(add_completion=False)


@app.command(
    "delete",
    cls=ChangingCommand,
    epilog=examples("kctl users delete alice --yes", "kctl users delete alice --mechanism SCRAM-SHA-256 --yes"),
)
@shows(UserChangeRow)
def delete(
    ctx: typer.Context,
    name: Annotated[str, NAME],
    *,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", metavar="NAME", help="Delete only this credential.  Default: all."),
    ] = None,
    zookeeper: Annotated[str | None, ZOOKEEPER] = None,
    zk_tls_config_file: Annotated[str | None, ZK_TLS_CONFIG_FILE] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Delete the SCRAM credentials of a user.

    Quotas and ACLs of the user are kept, and authenticated connections stay open.  Asks for confirmation on a terminal;
    elsewhere --yes is required (exit status 5).
    """
    run: Invocation = ctx.obj
    ensemble = ensemble_of(zookeeper, zk_tls_config_file)
    chosen: tuple[Mechanism, ...] = mechanisms_of(mechanism) if mechanism else ()
    (described,) = on_users(
        run,
        ensemble,
        on_cluster=lambda client: users.describe_users(client, [name]),
        on_zookeeper=lambda session: users_in_zookeeper.describe_users(session, [name]),
    )
    outcome, chosen = described.outcome, chosen or tuple(described.iterations)
    missing = [each.config_key for each in chosen if each not in described.iterations]
    if outcome.is_done and missing:
        text = f"the user has no credential of {', '.join(missing)}; nothing is deleted"
        outcome = Outcome(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    if outcome.is_done and not dry_run:
        run.consent(f"Delete {', '.join(each.config_key for each in chosen)} of {name}?")
        outcomes = on_users(
            run,
            ensemble,
            on_cluster=lambda client: users.delete_credentials(client, name, chosen),
            on_zookeeper=lambda session: users_in_zookeeper.delete_credentials(session, name, chosen),
        )
        rows = user_change_rows(outcomes, "deleted")
    else:
        rows = [user_change_row(outcome, chosen, "would be deleted")]
    run.console.show(CHANGE_COLUMNS, rows)
    return run.status_of(rows)
