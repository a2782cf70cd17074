"""`kctl tokens`: create, describe, renew and expire delegation tokens."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.security.tokens import (
    BROKER_DEFAULT,
    create_token,
    describe_tokens,
    expire_token,
    find_token,
    renew_token,
)
from kctl.commands.frame.command import ChangingCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.options.values import format_time
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.commands.topics.options import DRY_RUN
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.security.tokens import DelegationToken


app = typer.Typer(
    cls=verb_group(__name__, ["create", "describe", "renew", "expire"]),
    help="Create, describe, renew and expire delegation tokens.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# Options and rows that several verbs of `kctl tokens` share.


TOKEN = typer.Argument(help="Id of the token.", metavar="TOKEN_ID")


class TokenRow(NamedTuple):
    """A token without its secret."""

    token_id: str
    owner: str
    renewers: list[str]
    issued: str | None
    expires: str | None
    renewable_until: str | None


class SecretTokenRow(NamedTuple):
    """A token with its secret: for SCRAM, token_id is the user name and hmac the password."""

    token_id: str
    owner: str
    renewers: list[str]
    issued: str | None
    expires: str | None
    renewable_until: str | None
    hmac: str


class ExpiryRow(NamedTuple):
    """A token that was renewed or expired."""

    token_id: str
    expires: str | None
    status: str


def token_row(token: DelegationToken) -> TokenRow:
    """Return the row of a token."""
    return TokenRow(
        token.token_id,
        token.owner,
        list(token.renewers),
        format_time(token.issue_ms),
        format_time(token.expiry_ms),
        format_time(token.max_ms),
    )


def secret_token_row(token: DelegationToken) -> SecretTokenRow:
    """Return the row of a token with its secret."""
    return SecretTokenRow(*token_row(token), base64.b64encode(token.hmac).decode())


def check_principals(principals: Sequence[str], option: str) -> None:
    """Raise UsageError unless all have the form User:name."""
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise UsageError(f"{option} {principal}: principals are written as User:name")


# `kctl tokens create`.


verbs = typer.Typer(add_completion=False)


@verbs.command(
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
        Duration | None,
        typer.Option(
            "--max-lifetime",
            parser=Duration.within("1ms"),
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
    lifetime_ms = BROKER_DEFAULT if max_lifetime is None else max_lifetime
    token = run.on_cluster(lambda client: create_token(client, renewer or (), max_lifetime_ms=lifetime_ms))
    run.console.show(SecretTokenRow, [secret_token_row(token)])
    return ExitStatus.DONE


# `kctl tokens describe`.


@verbs.command(
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
        run.console.show(SecretTokenRow, [secret_token_row(token) for token in tokens])
    else:
        run.console.show(TokenRow, [token_row(token) for token in tokens])
    return ExitStatus.DONE


# `kctl tokens expire`.


_AT_ONCE = -1


@verbs.command(
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
        Duration | None,
        typer.Option(
            "--after",
            parser=Duration.within("1ms"),
            help="Time from now until the token expires.  Default: delete it now.",
        ),
    ] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Expire a delegation token, now or after a time.

    The user must be its owner or a renewer.  Asks for confirmation on a terminal; elsewhere --yes is required
    (exit status 5).
    """
    run: Invocation = ctx.obj
    period_ms = _AT_ONCE if after is None else after
    status = "removed" if period_ms == _AT_ONCE else "changed"
    if dry_run:
        token = run.on_cluster(lambda client: find_token(client, token_id))
        run.console.show(ExpiryRow, [ExpiryRow(token_id, format_time(token.expiry_ms), f"would be {status}")])
        return ExitStatus.DONE
    run.consent(f"Expire delegation token {token_id}?")
    expiry_ms = run.on_cluster(lambda client: expire_token(client, token_id, period_ms=period_ms))
    run.console.show(ExpiryRow, [ExpiryRow(token_id, format_time(expiry_ms), status)])
    return ExitStatus.DONE


# `kctl tokens renew`.


@verbs.command(
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
        Duration | None,
        typer.Option(
            "--period",
            parser=Duration.within("1ms"),
            help="Time from now until the token expires.  Default: the broker's delegation.token.expiry.time.ms.",
        ),
    ] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
) -> ExitStatus:
    """Renew a delegation token, up to its maximum lifetime.

    The user must be its owner or a renewer.
    """
    run: Invocation = ctx.obj
    period_ms = BROKER_DEFAULT if period is None else period
    if dry_run:
        token = run.on_cluster(lambda client: find_token(client, token_id))
        run.console.show(ExpiryRow, [ExpiryRow(token_id, format_time(token.expiry_ms), "would be renewed")])
        return ExitStatus.DONE
    expiry_ms = run.on_cluster(lambda client: renew_token(client, token_id, period_ms=period_ms))
    run.console.show(ExpiryRow, [ExpiryRow(token_id, format_time(expiry_ms), "renewed")])
    return ExitStatus.DONE
