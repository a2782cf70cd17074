"""The result of a comparison, as rows.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from kctl.output.table import JSON_ONLY, Column

EQUAL, DIFFERENT, NOT_COMPARED = "equal", "different", "not compared"


class GapRow(NamedTuple):
    """Offsets of a compared range whose rows the topic no longer has."""

    start: int
    end: int
    reason: str


class VerifiedRange(NamedTuple):
    """The offsets `start` to `end` (exclusive) of a partition; counts are None if they were not compared.

    The hashes are sums over all compared records and rows, independent of their order.  `offset` and `difference`
    are the first difference.
    """

    topic: str
    partition: int
    start: int
    end: int
    status: str
    topic_records: int | None
    table_records: int | None
    topic_hash: Annotated[str | None, JSON_ONLY]
    table_hash: Annotated[str | None, JSON_ONLY]
    missing: int | None
    twice: int | None
    different: int | None
    unexpected: int | None
    not_compared: Annotated[int | None, "Rows in the range that the topic no longer has; they are in `gaps`."]
    offset: Annotated[int | None, Column(is_rare=True)]
    difference: Annotated[str | None, Column(is_rare=True)]
    reason: Annotated[
        str | None, Column(wraps=True, is_rare=True), "Why the range, or rows of it, could not be compared."
    ]
    gaps: Annotated[Sequence[GapRow], JSON_ONLY, "The first 100."]
