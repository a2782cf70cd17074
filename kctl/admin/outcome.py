"""How one item of an operation went: commands show it in the last two columns of the item's row."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.errors import ApiError, ErrorCode, KctlError


@dataclass(frozen=True, slots=True)
class Outcome:
    """NONE, or what was refused and why."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""

    @property
    def is_done(self) -> bool:
        return self.error is ErrorCode.NONE


def outcome_of(name: str, error_code: int, message: str | None = None) -> Outcome:
    """An item of a response."""
    code = ErrorCode.of(error_code)
    if code is ErrorCode.NONE:
        return Outcome(name)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR and error_code != code:
        message = f"error code {error_code}, which is newer than kctl{': ' + message if message else ''}"
    return Outcome(name, code, message or code.description)


def failure_of(name: str, error: KctlError) -> Outcome:
    """An item that could not be asked about: the broker refused (ApiError) or could not be reached."""
    code = error.code if isinstance(error, ApiError) else ErrorCode.NETWORK_EXCEPTION
    return Outcome(name, code, str(error))


def raise_if(error_code: int, *codes: ErrorCode) -> None:
    """Turn codes that mean "you asked the wrong broker" into the exception that makes the client ask another."""
    if error_code in codes:
        raise ApiError(ErrorCode.of(error_code))
