"""Fields of rows that several commands show."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from kctl.commands.remedies import with_remedy
from kctl.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome


MISSING_PERMISSION = (
    "A permission is missing: 'kctl acls check' tells which rule decides, and an administrator grants one with "
    "'kctl acls add'."
)
"""The note below errors for which `is_missing_permission` is true."""


class ErrorFields(TypedDict):
    """The last two fields of a row about one item: the name of Kafka's error and its description; None on success."""

    error: str | None
    message: str | None


def outcome_error(outcome: Outcome) -> ErrorFields:
    """The error fields of an item with this outcome."""
    if outcome.is_done:
        return {"error": None, "message": None}
    return {"error": outcome.error.name, "message": with_remedy(outcome.error, outcome.message) or None}


def code_error(code: ErrorCode) -> ErrorFields:
    """The error fields of an item of which only the error code is known."""
    if code is ErrorCode.NONE:
        return {"error": None, "message": None}
    return {"error": code.name, "message": with_remedy(code, code.description)}


def exception_error(error: ApiError) -> ErrorFields:
    """The error fields of an item whose request failed with this exception."""
    return {"error": error.code.name, "message": with_remedy(error.code, str(error))}


def known(number: int) -> int | None:
    """A number of the protocol; None if it is negative, which means unknown or absent."""
    return None if number < 0 else number


def is_missing_permission(error: object) -> bool:
    """Whether the name of an error says that the client is not authorized."""
    return isinstance(error, str) and error.endswith("_AUTHORIZATION_FAILED")
