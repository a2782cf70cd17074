"""Commits the offsets of thousands of partitions as several batches, between which the event loop serves others.

A commit of 10,000 partitions as one batch takes 80 ms, and its batch exceeds the usual `max.message.bytes`.  Each piece
has its own outcome, as partitions have anyway: what is committed in a transaction is decided by its marker, and without
one a client that gets no response does not know what was committed.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kctl.errors import ErrorCode
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.model import TopicPartition
from kctl.server.coordinators.replies import Reply
from kctl.server.groups.actions import CommitOutcome
from kctl.server.groups.offsets import OffsetAndMetadata
from kctl.server.requests.slices import pause, pieces

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def is_long(offsets: Offsets) -> bool:
    """Whether the offsets are to be committed in pieces."""
    return len(offsets) > REQUEST_ELEMENTS_PER_SLICE_MAX


async def commit_in_pieces(offsets: Offsets, commit: Callable[[Offsets], Reply[CommitOutcome]]) -> CommitOutcome:
    """Calls `commit` for some offsets at a time; returns the outcome of all partitions."""
    replies: list[Reply[CommitOutcome]] = []
    for some in pieces(tuple(offsets.items()), REQUEST_ELEMENTS_PER_SLICE_MAX):
        replies.append(commit(dict(some)))
        await pause()
    outcome: dict[TopicPartition, ErrorCode] = {}
    for reply in replies:
        outcome.update(await reply if isinstance(reply, asyncio.Future) else reply)
    return outcome
