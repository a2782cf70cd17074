"""DescribeUserScramCredentials (key 50, version 0): which users have SCRAM credentials (KIP-554).

Flexible from the start.
"""

from __future__ import annotations

from kctl.protocol.message import array, int8, int16, int32, request, response, string, struct


@struct
class UserName:
    """A user to describe."""

    name: str = string()


@request(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """May be sent to any broker."""

    users: list[UserName] | None = array(UserName, nullable="0+")
    """Null or empty for all users."""


@struct
class CredentialInfo:
    """A credential without its secrets."""

    mechanism: int = int8()
    """1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""
    iterations: int = int32()
    """Of PBKDF2."""


@struct
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    """RESOURCE_NOT_FOUND if the user has no credentials."""
    error_message: str | None = string(nullable="0+", default="")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@response(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """One result per user."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default="")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
