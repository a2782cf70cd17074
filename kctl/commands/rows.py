"""Small pieces of rows that several commands show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome

NO_ERROR: dict[str, str | None] = {"error": None, "message": None}


def outcome_error(outcome: Outcome) -> dict[str, str | None]:
    """The last two columns of the row of an item."""
    return dict(NO_ERROR) if outcome.is_done else {"error": outcome.error.name, "message": outcome.message or None}


def code_error(code: ErrorCode) -> dict[str, str | None]:
    """The same where there is only a code."""
    return dict(NO_ERROR) if code is ErrorCode.NONE else {"error": code.name, "message": code.description}


def exception_error(error: ApiError) -> dict[str, str | None]:
    """The same where there is an exception."""
    return {"error": error.code.name, "message": str(error)}


def known(number: int) -> int | None:
    """Numbers of the protocol where a negative one means that there is none."""
    return None if number < 0 else number
