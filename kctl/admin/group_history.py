"""Reads the records of one group from its partition of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kctl.admin.offsets_records import CommitRecord, GroupRecord, group_records
from kctl.client.cluster import ClusterClient
from kctl.client.fetching import FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.list_offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.limits import GROUP_HISTORY_BYTES_MAX
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition, partition_for_key
from kctl.records.header import CorruptBatch
from kctl.reference_cycles import copy_of

_LIMITS = FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=4 << 20, partition_max_bytes=4 << 20)
_ISOLATION = IsolationLevel.READ_COMMITTED

Add = Callable[[Iterable[CommitRecord | GroupRecord]], None]


async def read_group_records(
    client: ClusterClient,
    group: str,
    add: Add,
    *,
    since_ms: int | None = None,
    bytes_max: int = GROUP_HISTORY_BYTES_MAX,
) -> bool:
    """Passes the records of the group to `add` in the order of the log, from the first one at or after `since_ms`.

    False if there are more than `bytes_max` bytes and the rest has not been read.  Raises ApiError.
    """
    topic = (await client.metadata([GROUP_METADATA_TOPIC])).topics.get(GROUP_METADATA_TOPIC)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{GROUP_METADATA_TOPIC} does not exist")
    if topic.error is not ErrorCode.NONE:
        raise ApiError(topic.error, f"{GROUP_METADATA_TOPIC}: {topic.error.description}")
    tp = TopicPartition(GROUP_METADATA_TOPIC, partition_for_key(group, len(topic.partitions)))
    end = await _offset(client, tp, LATEST)
    position = await _offset(client, tp, EARLIEST if since_ms is None else since_ms)
    left_bytes = bytes_max
    while 0 <= position < end:
        if left_bytes <= 0:
            return False
        fetched = await _fetch(client, tp, position)
        left_bytes -= max(len(fetched.records), 1)
        following = _read(fetched, position, group, add)
        if following == position:
            break  # Nothing more before the end: an unfinished transaction, or a truncated log.
        position = following
    return True


async def _offset(client: ClusterClient, tp: TopicPartition, timestamp: int) -> int:
    found = (await list_offsets(client, {tp: timestamp}, isolation=_ISOLATION))[tp]
    if isinstance(found, ApiError):
        raise ApiError(found.code, f"{tp}: {found}")
    return found.offset


async def _fetch(client: ClusterClient, tp: TopicPartition, position: int) -> FetchedPartition:
    async def send(connection: Connection, tps: list[TopicPartition]) -> Outcomes[FetchedPartition]:
        responses = await fetch_batches(connection, dict.fromkeys(tps, position), limits=_LIMITS, isolation=_ISOLATION)
        return {
            one.tp: one if one.error is ErrorCode.NONE else ApiError(one.error, f"{one.tp}: {one.error.description}")
            for one in responses
        }

    outcome = (await on_leaders(client, [tp], send))[tp]
    if isinstance(outcome, ApiError):
        raise copy_of(outcome)
    return outcome


def _read(fetched: FetchedPartition, position: int, group: str, add: Add) -> int:
    """Passes on the records of one response; returns the offset after them."""
    try:
        for header, is_visible in visible_batches(fetched, _ISOLATION):
            if is_visible and header.last_offset >= position:
                add(group_records(fetched.records, header, (group,)))
            position = max(position, header.next_offset)
    except CorruptBatch as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{fetched.tp}: {error}") from None
    return position
