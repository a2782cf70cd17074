"""`kctl tokens create`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.tokens import BROKER_DEFAULT, create_token
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.tokens.options import (
    CREATED_COLUMNS,
    SecretTokenRow,
    check_principals,
    duration_ms,
    secret_token_row,
)

app = typer.Typer(add_completion=False)


@app.command(
    "create",
    cls=ChangingCommand,
    epilog=examples(
        "kctl tokens create --command-config alice.properties",
        "kctl tokens create --renewer User:scheduler --max-lifetime 12h --command-config alice.properties",
    ),
)
@shows(SecretTokenRow)
def create(
    ctx: typer.Context,
    *,
    renewer: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer", metavar="PRINCIPAL", help="Principal that may renew and expire the token, as its owner may."
        ),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        typer.Option(
            "--max-lifetime",
            metavar="DURATION",
            help="How long the token can be renewed.  Default and limit: delegation.token.max.lifetime.ms.",
        ),
    ] = None,
) -> ExitStatus:
    """Create a delegation token of the user that this command authenticates as.

    A client authenticates with the token by SCRAM: username is token_id, password is hmac, and tokenauth="true" is set
    in sasl.jaas.config.  Anyone who has the hmac can act as the user, and the output contains it: write it to a file
    that only you can read.
    """
    run: Invocation = ctx.obj
    check_principals(renewer or (), "--renewer")
    lifetime_ms = duration_ms(max_lifetime, "--max-lifetime", BROKER_DEFAULT)
    token = run.on_cluster(lambda client: create_token(client, renewer or (), max_lifetime_ms=lifetime_ms))
    run.console.show(CREATED_COLUMNS, [secret_token_row(token)])
    return ExitStatus.DONE
