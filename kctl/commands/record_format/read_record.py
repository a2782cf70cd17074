"""A record that was read from text."""

from __future__ import annotations

from typing import NamedTuple


class ReadRecord(NamedTuple):
    """A record as a JSON object or a format contains it; None for missing fields."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None
