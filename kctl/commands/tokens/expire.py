"""`kctl tokens expire`."""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.admin.tokens import expire_token
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.tokens.options import EXPIRY_COLUMNS, TOKEN, ExpiryRow, duration_ms
from kctl.commands.topics.options import YES
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
    yes: Annotated[bool, YES] = False,
) -> ExitStatus:
    """Expire a delegation token, now or after a time.

    The user must be its owner or a renewer.  Asks for confirmation on a terminal; elsewhere --yes is required
    (exit status 5).
    """
    run: Invocation = ctx.obj
    period_ms = duration_ms(after, "--after", _AT_ONCE)
    run.consent(f"Expire delegation token {token_id}?", yes=yes)
    expiry_ms = run.on_cluster(lambda client: expire_token(client, token_id, period_ms=period_ms))
    status = "removed" if period_ms == _AT_ONCE else "changed"
    run.console.show(EXPIRY_COLUMNS, [ExpiryRow(token_id, format_time(expiry_ms), status)])
    return ExitStatus.DONE
