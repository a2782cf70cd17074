"""AlterUserScramCredentials (key 51, version 0): sets or removes SCRAM credentials (KIP-554).

Sent to the active controller.  Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, bytes_, int8, int16, int32, request, response, string, struct


@struct
class ScramCredentialDeletion:
    """A credential to remove."""

    name: str = string()
    mechanism: int = int8()
    """1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""


@struct
class ScramCredentialUpsertion:
    """A credential to create or replace."""

    name: str = string()
    mechanism: int = int8()
    """1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""
    iterations: int = int32()
    """Iterations of the salted password, between 4096 and 16384 as in Kafka."""
    salt: bytes = bytes_(secret=True)
    """Random salt, chosen by the client."""
    salted_password: bytes = bytes_(secret=True)
    """Computed by the client, so that the password is not sent (RFC 5802)."""


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """Changes credentials; if one change of a user is invalid, none of that user's is made."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    """Credentials to delete."""
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)
    """Credentials to create or to replace."""


@struct
class AlterUserScramCredentialsResult:
    """The result for one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default="")


@response(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """One result per user of the request."""

    throttle_time_ms: int = int32(default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
