"""`kctl users list`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin import users, users_in_zookeeper
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows
from kctl.commands.users.options import ZK_TLS_CONFIG_FILE, ZOOKEEPER, ensemble_of, on_users
from kctl.commands.users.rows import USER_COLUMNS, UserRow, user_rows

app = typer.Typer(add_completion=False)


@app.command(
    "list",
    cls=QueryCommand,
    epilog=examples(
        "kctl users list", "kctl users list alice bob --format json", "kctl users list --zookeeper zk1:2181"
    ),
)
@shows(UserRow)
def list_users(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Users to list.  Default: all.", metavar="USER")] = None,
    *,
    zookeeper: Annotated[str | None, ZOOKEEPER] = None,
    zk_tls_config_file: Annotated[str | None, ZK_TLS_CONFIG_FILE] = None,
) -> ExitStatus:
    """List users with SCRAM credentials.

    Requires Kafka 2.7 or later; use --zookeeper for earlier versions.
    """
    run: Invocation = ctx.obj
    ensemble = ensemble_of(zookeeper, zk_tls_config_file)
    described = on_users(
        run,
        ensemble,
        on_cluster=lambda client: users.describe_users(client, set(names or ())),
        on_zookeeper=lambda session: users_in_zookeeper.describe_users(session, set(names or ())),
    )
    rows = [row for user in described for row in user_rows(user)]
    if not names and ensemble is None:
        run.store_names("users", (user.outcome.name for user in described))
    run.console.show(USER_COLUMNS, rows)
    return run.status_of(rows)
