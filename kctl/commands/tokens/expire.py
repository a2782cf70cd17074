"""`kctl tokens expire`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.tokens import expire_token, find_token
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.shown import shows
from kctl.commands.tokens.options import EXPIRY_COLUMNS, TOKEN, ExpiryRow, duration_ms
from kctl.commands.topics.options import DRY_RUN
from kctl.commands.values import format_time

app = typer.Typer(add_completion=False)

_AT_ONCE = -1


@app.command(
    "expire",
    cls=ChangingCommand,
    epilog=examples(
        "kctl tokens expire 7nBcGm7JQuqhCbVdNdrUyA --yes --command-config alice.properties",
        "kctl tokens expire 7nBcGm7JQuqhCbVdNdrUyA --after 10m --yes --command-config alice.properties",
    ),
)
@shows(ExpiryRow)
def expire(
    ctx: typer.Context,
    token_id: Annotated[str, TOKEN],
    *,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="DURATION", help="Time from now until the token expires.  Default: delete it now."
        ),
    ] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Expire a delegation token, now or after a time.

    The user must be its owner or a renewer.  Asks for confirmation on a terminal; elsewhere --yes is required
    (exit status 5).
    """
    run: Invocation = ctx.obj
    period_ms = duration_ms(after, "--after", _AT_ONCE)
    status = "removed" if period_ms == _AT_ONCE else "changed"
    if dry_run:
        token = run.on_cluster(lambda client: find_token(client, token_id))
        run.console.show(EXPIRY_COLUMNS, [ExpiryRow(token_id, format_time(token.expiry_ms), f"would be {status}")])
        return ExitStatus.DONE
    run.consent(f"Expire delegation token {token_id}?")
    expiry_ms = run.on_cluster(lambda client: expire_token(client, token_id, period_ms=period_ms))
    run.console.show(EXPIRY_COLUMNS, [ExpiryRow(token_id, format_time(expiry_ms), status)])
    return ExitStatus.DONE
