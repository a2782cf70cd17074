"""`kctl tokens describe`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.tokens import describe_tokens
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows
from kctl.commands.tokens.options import (
    CREATED_COLUMNS,
    TOKEN_COLUMNS,
    SecretTokenRow,
    TokenRow,
    check_principals,
    secret_token_row,
    token_row,
)

app = typer.Typer(add_completion=False)


@app.command(
    "describe",
    cls=QueryCommand,
    epilog=examples(
        "kctl tokens describe --command-config alice.properties",
        "kctl tokens describe --owner User:alice --show-hmac --command-config alice.properties",
    ),
)
@shows(TokenRow, SecretTokenRow)
def describe(
    ctx: typer.Context,
    *,
    owner: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="PRINCIPAL", help="Only tokens of this owner or renewer."),
    ] = None,
    show_hmac: Annotated[
        bool, typer.Option("--show-hmac", help="Also show the hmac of each token, which is its secret.")
    ] = False,
) -> ExitStatus:
    """Describe the delegation tokens that the user owns, may renew, or may describe according to ACLs."""
    run: Invocation = ctx.obj
    check_principals(owner or (), "--owner")
    tokens = run.on_cluster(lambda client: describe_tokens(client, owner or ()))
    if show_hmac:
        run.console.show(CREATED_COLUMNS, [secret_token_row(token) for token in tokens])
    else:
        run.console.show(TOKEN_COLUMNS, [token_row(token) for token in tokens])
    return ExitStatus.DONE
