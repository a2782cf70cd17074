"""`kctl tokens renew`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.tokens import BROKER_DEFAULT, find_token, renew_token
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.tokens.options import EXPIRY_COLUMNS, TOKEN, ExpiryRow, duration_ms
from kctl.commands.topics.options import DRY_RUN
from kctl.commands.values import format_time

app = typer.Typer(add_completion=False)


@app.command(
    "renew",
    cls=ChangingCommand,
    epilog=examples("kctl tokens renew 7nBcGm7JQuqhCbVdNdrUyA --period 1d --command-config alice.properties"),
)
@shows(ExpiryRow)
def renew(
    ctx: typer.Context,
    token_id: Annotated[str, TOKEN],
    *,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="DURATION",
            help="Time from now until the token expires.  Default: the broker's delegation.token.expiry.time.ms.",
        ),
    ] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Renew a delegation token, up to its maximum lifetime.

    The user must be its owner or a renewer.
    """
    run: Invocation = ctx.obj
    period_ms = duration_ms(period, "--period", BROKER_DEFAULT)
    if dry_run:
        token = run.on_cluster(lambda client: find_token(client, token_id))
        run.console.show(EXPIRY_COLUMNS, [ExpiryRow(token_id, format_time(token.expiry_ms), "would be renewed")])
        return ExitStatus.DONE
    expiry_ms = run.on_cluster(lambda client: renew_token(client, token_id, period_ms=period_ms))
    run.console.show(EXPIRY_COLUMNS, [ExpiryRow(token_id, format_time(expiry_ms), "renewed")])
    return ExitStatus.DONE
