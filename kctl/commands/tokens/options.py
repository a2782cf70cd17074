"""Options and rows that several verbs of `kctl tokens` share."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

from kctl.commands.times import parse_duration_ms
from kctl.commands.values import format_time
from kctl.console import Column
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.tokens import DelegationToken

TOKEN = typer.Argument(help="Id of the token.", metavar="TOKEN_ID")
TOKEN_COLUMNS = (
    Column("token_id"),
    Column("owner"),
    Column("renewers"),
    Column("issued"),
    Column("expires"),
    Column("renewable_until"),
)
CREATED_COLUMNS = (*TOKEN_COLUMNS, Column("hmac"))
EXPIRY_COLUMNS = (Column("token_id"), Column("expires"), Column("status"))


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
    """The row of a token."""
    return TokenRow(
        token.token_id,
        token.owner,
        list(token.renewers),
        format_time(token.issue_ms),
        format_time(token.expiry_ms),
        format_time(token.max_ms),
    )


def secret_token_row(token: DelegationToken) -> SecretTokenRow:
    """The row of a token with its secret."""
    return SecretTokenRow(*token_row(token), base64.b64encode(token.hmac).decode())


def check_principals(principals: Sequence[str], option: str) -> None:
    """Raises UsageError unless all have the form User:name."""
    for each in principals:
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise UsageError(f"{option} {each}: principals are written as User:name")


def duration_ms(text: str | None, option: str, default: int) -> int:
    """The duration in an option, in ms.  Raises UsageError."""
    if text is None:
        return default
    period_ms = parse_duration_ms(text)
    if period_ms <= 0:
        raise UsageError(f"{option} must be greater than 0, not '{text}'")
    return period_ms
