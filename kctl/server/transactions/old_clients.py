"""Errors that are not defined in versions before KIP-588."""

from __future__ import annotations

from kctl.errors import ErrorCode


def known_to(version: int, error: ErrorCode, *, fenced_since: int) -> ErrorCode:
    """Maps PRODUCER_FENCED to INVALID_PRODUCER_EPOCH for versions before `fenced_since`."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
