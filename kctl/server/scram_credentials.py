"""SCRAM credentials in Kafka's format: text in the configuration of the user, one entry per mechanism.  KIP-554.

Kafka: ScramCredentialUtils, ScramFormatter and ZkAdminManager.alterUserScramCredentials (2.8).

Pure.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from kctl.errors import ApiError, ErrorCode

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384


class Mechanism(IntEnum):
    """A mechanism, by its number in the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def config_key(self) -> str:
        """The key of a stored credential: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name in hashlib."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()


@dataclass(frozen=True, slots=True)
class Deletion:
    """A credential to remove; `mechanism` is the number in the request."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A credential to add or replace; `mechanism` is the number in the request."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


Alteration = Deletion | Upsertion


def iterations_by_mechanism(config: Mapping[str, str]) -> dict[Mechanism, int]:
    """The credentials in the stored configuration of a user.  Raises ApiError for an invalid credential."""
    return {each: _iterations(config[each.config_key]) for each in Mechanism if each.config_key in config}


def refusals(alterations: Sequence[Alteration]) -> dict[str, ApiError]:
    """The users whose alterations are refused before anything is read, with the error of each."""
    refused: dict[str, ApiError] = {}
    named = Counter((each.user, each.mechanism) for each in alterations)
    for (user, _), count in named.items():
        if count > 1:
            refused[user] = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A credential is in the request more than once.")
    for each in alterations:
        problem = _problem(each)
        if problem is not None:
            refused[each.user] = problem
    return refused


def altered(current: Mapping[str, str], alterations: Sequence[Alteration]) -> Mapping[str, str]:
    """The stored configuration of a user after alterations that `refusals` accepted.

    Raises ApiError(RESOURCE_NOT_FOUND) if a credential to remove does not exist.
    """
    changed = dict(current)
    for each in alterations:
        mechanism = Mechanism(each.mechanism)
        if isinstance(each, Upsertion):
            changed[mechanism.config_key] = _credential_text(each, mechanism)
        elif changed.pop(mechanism.config_key, None) is None:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "The credential that is to be deleted does not exist.")
    return changed


def _problem(alteration: Alteration) -> ApiError | None:
    if not alteration.user:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The user name is empty.")
    if alteration.mechanism not in set(Mechanism):
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"Unknown SCRAM mechanism: {alteration.mechanism}")
    if isinstance(alteration, Deletion):
        return None
    if not ITERATIONS_MIN <= alteration.iterations <= ITERATIONS_MAX:
        return ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{alteration.iterations} iterations, but {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed.",
        )
    if not alteration.salted_password:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password is empty.")
    return None


def _credential_text(upsertion: Upsertion, mechanism: Mechanism) -> str:
    """The stored keys of RFC 5802, section 3: verifying a client does not need the password, so it is not stored."""
    client_key = hmac.digest(upsertion.salted_password, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    server_key = hmac.digest(upsertion.salted_password, b"Server Key", mechanism.hash_name)
    parts = {
        "salt": base64.b64encode(upsertion.salt).decode(),
        "stored_key": base64.b64encode(stored_key).decode(),
        "server_key": base64.b64encode(server_key).decode(),
        "iterations": str(upsertion.iterations),
    }
    return ",".join(f"{name}={value}" for name, value in parts.items())


def _iterations(text: str) -> int:
    """The number of iterations; errors do not include the text, which is secret."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return int(parts["iterations"])
    except (KeyError, ValueError):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The stored SCRAM credential cannot be read.") from None
