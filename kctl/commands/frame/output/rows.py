"""Fields of rows that several commands show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from kctl.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.client.outcome import Outcome


# What to do about errors whose texts from brokers name no remedy.


_GRANT = "an administrator grants it with 'kctl acls add', or use the credentials of another user"
_REMEDIES: Mapping[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"the user lacks a permission for this topic: {_GRANT}",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: f"the user lacks a permission for this group: {_GRANT}",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: f"the user lacks a permission for the cluster: {_GRANT}",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"the user lacks a permission for this transactional id: {_GRANT}",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: f"the user lacks a permission for delegation tokens: {_GRANT}",
    ErrorCode.SECURITY_DISABLED: "ACLs need the property authorizer.class.name on all brokers",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "delegation tokens need the property delegation.token.secret.key, with "
    "the same value on all brokers",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "give the credentials of a user with --command-config",
    ErrorCode.NOT_CONTROLLER: "no broker is the active controller at the moment: repeat the command",
}


_REQUEST_OBJECT = "Request Request("
"""How Apache Kafka's message about a request without permission begins: the fields of an object, not the operation."""


def with_remedy(code: ErrorCode, message: str) -> str:
    """Return the message, and after it what to do, where that is known and the message does not end with it."""
    if message.startswith(_REQUEST_OBJECT):
        message = code.description
    remedy = _REMEDIES.get(code)
    if remedy is None or message.endswith(remedy):
        return message
    return f"{message.rstrip('.')}; {remedy}" if message else remedy


class ErrorFields(TypedDict):
    """The last two fields of a row about one item: the name of Kafka's error and its description; None on success."""

    error: str | None
    message: str | None


def outcome_error(outcome: Outcome) -> ErrorFields:
    """Return the error fields of an item with this outcome."""
    if outcome.is_done:
        return {"error": None, "message": None}
    return {"error": outcome.error.name, "message": with_remedy(outcome.error, outcome.message) or None}


def code_error(code: ErrorCode) -> ErrorFields:
    """Return the error fields of an item of which only the error code is known."""
    if code is ErrorCode.NONE:
        return {"error": None, "message": None}
    return {"error": code.name, "message": with_remedy(code, code.description)}


def exception_error(error: ApiError) -> ErrorFields:
    """Return the error fields of an item whose request failed with this exception."""
    return {"error": error.code.name, "message": with_remedy(error.code, str(error))}


def known(number: int) -> int | None:
    """Return a number of the protocol; None if it is negative, which means unknown or absent."""
    return None if number < 0 else number
