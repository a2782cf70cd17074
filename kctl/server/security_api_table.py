"""Registers the handlers of requests about authentication, ACLs and delegation tokens."""

from __future__ import annotations

from kctl.server.handlers.alter_user_scram_credentials import AlterUserScramCredentialsHandler
from kctl.server.handlers.create_acls import create_acls
from kctl.server.handlers.create_delegation_token import create_delegation_token
from kctl.server.handlers.delete_acls import delete_acls
from kctl.server.handlers.describe_acls import describe_acls
from kctl.server.handlers.describe_delegation_token import describe_delegation_token
from kctl.server.handlers.describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from kctl.server.handlers.expire_delegation_token import expire_delegation_token
from kctl.server.handlers.renew_delegation_token import renew_delegation_token
from kctl.server.handlers.sasl_authenticate import sasl_authenticate
from kctl.server.handlers.sasl_handshake import sasl_handshake
from kctl.server.parts import BrokerParts
from kctl.server.requests.dispatch import Dispatcher


def register_security_handlers(dispatcher: Dispatcher, parts: BrokerParts) -> None:
    """Registers the handlers."""

    def is_controller() -> bool:
        return parts.controller.state.is_active

    serve = dispatcher.register
    serve("sasl_handshake", sasl_handshake)
    serve("sasl_authenticate", sasl_authenticate)
    serve("describe_acls", describe_acls)
    serve("create_acls", create_acls)
    serve("delete_acls", delete_acls)
    serve("create_delegation_token", create_delegation_token)
    serve("renew_delegation_token", renew_delegation_token)
    serve("expire_delegation_token", expire_delegation_token)
    serve("describe_delegation_token", describe_delegation_token)
    serve("describe_user_scram_credentials", DescribeUserScramCredentialsHandler(parts.topics).handle)
    serve(
        "alter_user_scram_credentials",
        AlterUserScramCredentialsHandler(parts.topics, is_controller=is_controller).handle,
    )
