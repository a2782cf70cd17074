"""Errors that clients of before KIP-588 do not know."""

from __future__ import annotations

from kctl.errors import ErrorCode


def known_to(version: int, error: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """PRODUCER_FENCED is INVALID_PRODUCER_EPOCH in versions of an API before `fenced_since`."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
