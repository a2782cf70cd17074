"""What to do about errors whose texts from brokers name no remedy."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.errors import ErrorCode

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
    """The message, and after it what to do, where that is known and the message does not end with it."""
    if message.startswith(_REQUEST_OBJECT):
        message = code.description
    remedy = _REMEDIES.get(code)
    if remedy is None or message.endswith(remedy):
        return message
    return f"{message.rstrip('.')}; {remedy}" if message else remedy
