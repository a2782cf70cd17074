"""All delegation tokens of the cluster, by id and by HMAC, and the SCRAM credentials derived from them.

Kafka: DelegationTokenCache (2.8).

Owner: event loop.
"""

from __future__ import annotations

import base64
import secrets
from functools import partial

from kctl.security.scram import ITERATIONS_MIN, Mechanism, ScramCredential, credential_of_password
from kctl.server.loop.tasks import in_thread
from kctl.server.security.tokens.token import DelegationToken, token_hmac

_SALT_BYTES = 24


class TokenCache:
    """The tokens of the cluster.  Without a secret key tokens are disabled, and the cache stays empty."""

    def __init__(self, secret_key: str | None) -> None:
        self._secret_key = secret_key
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[str, dict[Mechanism, ScramCredential]] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether delegation.token.secret.key is set."""
        return bool(self._secret_key)

    def __len__(self) -> int:
        return len(self._tokens)

    def tokens(self) -> list[DelegationToken]:
        """Return all tokens."""
        return list(self._tokens.values())

    def get(self, token_id: str) -> DelegationToken | None:
        """Return the token with that id."""
        return self._tokens.get(token_id)

    def of_hmac(self, hmac: bytes) -> DelegationToken | None:
        """Return the token with that HMAC."""
        token_id = self._ids.get(hmac)
        return None if token_id is None else self._tokens.get(token_id)

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token id."""
        assert self._secret_key
        return token_hmac(self._secret_key, token_id)

    def is_valid(self, token_id: str, now_ms: int) -> bool:
        """Return whether there is such a token and it has not expired."""
        token = self._tokens.get(token_id)
        return token is not None and not token.is_expired(now_ms)

    def put(self, token: DelegationToken) -> None:
        """Add or replace a token."""
        if token.token_id not in self._tokens:
            self._ids[self.hmac(token.token_id)] = token.token_id
        self._tokens[token.token_id] = token

    def remove(self, token_id: str) -> None:
        """Remove a token; an unknown id has no effect."""
        if self._tokens.pop(token_id, None) is not None:
            self._ids.pop(self.hmac(token_id), None)
            self._credentials.pop(token_id, None)

    def credential(self, mechanism: Mechanism, token_id: str) -> ScramCredential | None:
        """Return the credential of a token, None before `derive_credential`."""
        return self._credentials.get(token_id, {}).get(mechanism)

    async def derive_credential(self, mechanism: Mechanism, token_id: str) -> None:
        """Derive the credential of a token from its HMAC, in a thread."""
        if token_id not in self._tokens:
            return
        derive = partial(
            credential_of_password,
            mechanism,
            base64.b64encode(self.hmac(token_id)).decode(),
            salt=secrets.token_bytes(_SALT_BYTES),
            iterations=ITERATIONS_MIN,
        )
        credential = await in_thread(derive)
        if token_id in self._tokens:
            self._credentials.setdefault(token_id, {}).setdefault(mechanism, credential)
