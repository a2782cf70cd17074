"""The SCRAM credentials of all users, read from ZooKeeper at start and after each change notification.

Kafka: CredentialProvider (2.8).

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Mapping

from kctl.security.scram import ITERATIONS_MIN, Mechanism, ScramCredential, ScramError, parse_credential
from kctl.server.znodes.problem_log import ProblemLog
from kctl.zookeeper import paths

log = logging.getLogger(__name__)

_SALT_BYTES = 24
_USERS = "users/"
_USERS_PER_SLICE = 200


class ScramCredentials:
    """Credentials by user; implements config_changes.ClientConfigs.

    A malformed credential is logged once and its user refused.
    """

    def __init__(self) -> None:
        self._by_user: dict[str, dict[Mechanism, ScramCredential]] = {}
        self._problems = ProblemLog(
            log, "ignoring invalid SCRAM credential, the user cannot authenticate with it user=%s error=%s"
        )
        self._secret = secrets.token_bytes(32)

    async def replace(self, configs: Mapping[str, Mapping[str, str] | None]) -> None:
        """Set the configuration of all users; credentials of other users are removed."""
        users = {user: config for path, config in configs.items() if (user := _user(path)) is not None}
        for user in self._by_user.keys() - users.keys():
            self._set(user, {})
        for position, (user, config) in enumerate(users.items()):
            self._set(user, config or {})
            if position % _USERS_PER_SLICE == _USERS_PER_SLICE - 1:
                await asyncio.sleep(0)

    async def change(self, path: str, config: Mapping[str, str] | None) -> None:
        """Set the configuration of one entity; a user whose configuration is unreadable has no credential."""
        user = _user(path)
        if user is not None:
            self._set(user, config or {})

    def credential(self, mechanism: Mechanism, user: str) -> ScramCredential:
        """Return the credential of a user, or one that no password matches."""
        known = self._by_user.get(user)
        found = known.get(mechanism) if known else None
        return found or self.unknown(mechanism, user)

    def unknown(self, mechanism: Mechanism, user: str) -> ScramCredential:
        """Return a credential that no password matches, always the same for a user.

        With it, an exchange with an unknown user cannot be distinguished from one with a wrong password.
        """
        seed = hmac.digest(self._secret, f"{mechanism.config_key}:{user}".encode(), "sha512")
        unmatched = secrets.token_bytes(mechanism.key_bytes)
        return ScramCredential(seed[:_SALT_BYTES], unmatched, unmatched, ITERATIONS_MIN)

    def _set(self, user: str, config: Mapping[str, str]) -> None:
        credentials, problems = {}, []
        for mechanism in Mechanism:
            if mechanism.config_key in config:
                try:
                    credentials[mechanism] = parse_credential(mechanism, config[mechanism.config_key])
                except ScramError as error:
                    problems.append(f"{mechanism.config_key}: {error}")
        if credentials:
            self._by_user[user] = credentials
        else:
            self._by_user.pop(user, None)
        self._problems.report(user, *problems)


def _user(path: str) -> str | None:
    """Return the user of a path below /config; None for the default, for a client of a user, and for other entities."""
    element = path.removeprefix(_USERS)
    if element == path or "/" in element or element == paths.DEFAULT_ENTITY:
        return None
    return paths.desanitize(element)
