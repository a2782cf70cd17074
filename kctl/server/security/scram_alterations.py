"""The rules of changing SCRAM credentials: entries in the configuration of a user, one per mechanism.  KIP-554.

Kafka: ZkAdminManager.alterUserScramCredentials (2.8).

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kctl.errors import ApiError, ErrorCode
from kctl.limits import SCRAM_SALT_BYTES_MAX
from kctl.security.scram import (
    ITERATIONS_MIN,
    Mechanism,
    ScramError,
    credential_of_salted,
    credential_text,
    parse_credential,
)

ITERATIONS_MAX = 16_384


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
    """Return the credentials in the stored configuration of a user.  Raises ApiError for an invalid credential."""
    try:
        return {
            mechanism: parse_credential(mechanism, config[mechanism.config_key]).iterations
            for mechanism in Mechanism
            if mechanism.config_key in config
        }
    except ScramError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The stored SCRAM credential cannot be read: {error}") from None


def refusals(alterations: Sequence[Alteration]) -> dict[str, ApiError]:
    """Return the users whose alterations are refused before anything is read, with the error of each."""
    refused: dict[str, ApiError] = {}
    named = Counter((alteration.user, alteration.mechanism) for alteration in alterations)
    for (user, _), count in named.items():
        if count > 1:
            refused[user] = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A credential is in the request more than once.")
    for alteration in alterations:
        problem = _problem(alteration)
        if problem is not None:
            refused[alteration.user] = problem
    return refused


def altered(current: Mapping[str, str], alterations: Sequence[Alteration]) -> Mapping[str, str]:
    """Return the stored configuration of a user after alterations that `refusals` accepted.

    Raises ApiError(RESOURCE_NOT_FOUND) if a credential to remove does not exist.
    """
    changed = dict(current)
    for alteration in alterations:
        mechanism = Mechanism(alteration.mechanism)
        if isinstance(alteration, Upsertion):
            changed[mechanism.config_key] = credential_text(
                credential_of_salted(
                    mechanism, alteration.salted_password, salt=alteration.salt, iterations=alteration.iterations
                )
            )
        elif changed.pop(mechanism.config_key, None) is None:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
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
    if len(alteration.salt) > SCRAM_SALT_BYTES_MAX:
        return ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"A salt of {len(alteration.salt)} bytes, but at most {SCRAM_SALT_BYTES_MAX} are allowed.",
        )
    return None
