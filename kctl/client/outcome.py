"""Result of one item of an operation; commands show it in the last two columns of the row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kctl.errors import ApiError, ErrorCode, KctlError


@dataclass(frozen=True, slots=True)
class Outcome:
    """An error code, NONE for success, and the error message."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""

    @property
    def is_done(self) -> bool:
        """True if the operation succeeded (NONE)."""
        return self.error is ErrorCode.NONE


def outcome_of(name: str, error_code: int, message: str | None = None) -> Outcome:
    """Return the outcome of an item of a response."""
    code = ErrorCode.of(error_code)
    if code is ErrorCode.NONE:
        return Outcome(name)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and error_code != code:
        message = f"unknown error code {error_code}{': ' + message if message else ''}"
    return Outcome(name, code, message or code.description)


def failure_of(name: str, error: KctlError) -> Outcome:
    """Return the outcome of an item whose request failed: an ApiError or an unreachable broker."""
    code = error.code if isinstance(error, ApiError) else ErrorCode.NETWORK_EXCEPTION
    return Outcome(name, code, str(error))


def topic_error(name: str, code: ErrorCode) -> ApiError:
    """Return the error about a topic in metadata."""
    is_missing = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ApiError(code, f"topic '{name}' does not exist" if is_missing else f"topic '{name}': {code.description}")


def absent_broker(broker: int, alive: Iterable[int]) -> ApiError:
    """Return the error about a broker that is not alive."""
    present = ", ".join(map(str, sorted(alive)))
    return ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not alive; the cluster has {present}")


def raise_if(error_code: int, *codes: ErrorCode) -> None:
    """Raise codes for a wrong broker as ApiError, so that the client retries with another broker."""
    if error_code in codes:
        raise ApiError(ErrorCode.of(error_code))
