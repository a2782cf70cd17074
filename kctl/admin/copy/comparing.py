"""Compares the records of a partition with those of its copy.

Both are read in the order of their offsets.  Offsets differ, because transaction markers and records that were left out
have none in the copy.  Each cluster deletes old records by its own clock: where the log of a side does not begin at its
first record, the other side may have records before the first common one.  In compacted topics the values that the last
record of each key has are compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.records.selection import RecordFilter
from kctl.admin.topics.configs import ConfigResource, ResourceType, describe_configs
from kctl.admin.topics.offsets import OffsetRange, offset_ranges
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, KctlError
from kctl.limits import Subject, bound
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from kctl.client.cluster import ClusterClient
    from kctl.client.consuming.fetching.batches import FetchLimits
    from kctl.model import TopicPartition
    from kctl.records.header import Record

KEYS_MAX = bound(
    Subject.COMMANDS,
    "different keys of one partition of a compacted topic whose copy kctl copy verifies",
    250_000,
    "keys",
    on_excess="the topic is not verified, which its row says",
)


_CLEANUP_POLICY, _TIMESTAMP_TYPE = "cleanup.policy", "message.timestamp.type"


class NotComparable(KctlError):
    """The records of a partition cannot be compared with those of its copy."""


class Kind(NamedTuple):
    """How a topic is compared with its copy."""

    is_compacted: bool
    """Whether one of them is compacted, so that only the last values of keys are."""
    with_times: bool
    """Whether the copy keeps timestamps."""


async def read_kind(source: ClusterClient, topic: str, target: ClusterClient, copy: str) -> Kind:
    """Return how a topic is compared with its copy.  Raises ApiError and ClusterUnreachable."""
    of_source, of_target = await _properties(source, topic), await _properties(target, copy)
    is_compacted = any("compact" in values.get(_CLEANUP_POLICY, "") for values in (of_source, of_target))
    return Kind(is_compacted, of_target.get(_TIMESTAMP_TYPE) != "LogAppendTime")


async def _properties(client: ClusterClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = (await describe_configs(client, [resource], names=[_CLEANUP_POLICY, _TIMESTAMP_TYPE], synonyms=False))[
        resource
    ]
    if isinstance(entries, Outcome):
        raise ApiError(entries.error, f"the properties of {topic}: {entries.message}")
    return {entry.name: entry.value or "" for entry in entries}


class Side(NamedTuple):
    """The records of a partition that are compared."""

    client: ClusterClient
    tp: TopicPartition
    range: OffsetRange
    isolation: IsolationLevel
    limits: FetchLimits
    records: RecordFilter = RecordFilter()
    may_begin_later: bool = False
    """Whether records before the range may have been deleted since the copy."""

    async def read(self) -> AsyncIterator[Record]:
        """Yield the selected records in the order of their offsets.  Raises ApiError and ClusterUnreachable."""
        start, end = self.range.start, self.range.end
        if start >= end:
            return
        consumer = Consumer(self.client, {self.tp: start}, limits=self.limits, isolation=self.isolation)
        while consumer.positions[self.tp] < end:
            for _, records in await consumer.poll():
                for record in records:
                    if record.offset >= end:
                        return
                    if self.records.matches(self.tp, record):
                        yield record


class Compared(NamedTuple):
    """The result for one partition."""

    records: int
    """Records that are equal on both sides; of a compacted topic, keys."""
    difference: str = ""
    """The first difference; empty if there is none."""
    deleted: str = ""
    """What was not compared, because one side does not have it any more."""


async def compare(source: Side, target: Side, *, is_compacted: bool, with_times: bool) -> Compared:
    """Compare a partition with its copy.  Raises ApiError, NotComparable and ClusterUnreachable."""
    if is_compacted:
        return await _compare_latest(source, target)
    compared = await _compare_in_order(source, target, with_times, target.may_begin_later, source.may_begin_later)
    if compared.difference and target.may_begin_later and source.may_begin_later:
        second = await _compare_in_order(source, target, with_times, False, True)
        return second if not second.difference else compared
    return compared


async def _compare_in_order(
    source: Side, target: Side, with_times: bool, skips_of_source: bool, skips_of_target: bool
) -> Compared:
    """Compare record by record; records of one side before the first record of the other may be skipped."""
    of_source, of_target = source.read(), target.read()
    left, right = await anext(of_source, None), await anext(of_target, None)
    deleted = ""
    if skips_of_source:
        left, skipped = await _skip_to(of_source, left, right, with_times)
        deleted = f"{counted(skipped, 'record')} that the target has deleted" if skipped else ""
    elif skips_of_target:
        right, skipped = await _skip_to(of_target, right, left, with_times)
        deleted = f"{counted(skipped, 'record')} that the source has deleted" if skipped else ""
    equal = 0
    while left is not None and right is not None:
        if not _is_equal(left, right, with_times):
            where = f"offset {left.offset} of {source.tp} and {right.offset} of {target.tp}"
            return Compared(equal, f"the records at {where} differ", deleted)
        equal += 1
        left, right = await anext(of_source, None), await anext(of_target, None)
    if left is not None:
        return Compared(equal, f"the record at offset {left.offset} of {source.tp} is not in {target.tp}", deleted)
    if right is not None:
        text = f"the record at offset {right.offset} of {target.tp} is not one of {source.tp}, or a second copy"
        return Compared(equal, text, deleted)
    return Compared(equal, "", deleted)


async def _skip_to(
    records: AsyncIterator[Record], first: Record | None, other: Record | None, with_times: bool
) -> tuple[Record | None, int]:
    """Return the first of the records that equals `other`, and the number of records before it."""
    skipped = 0
    while first is not None and (other is None or not _is_equal(first, other, with_times)):
        skipped += 1
        first = await anext(records, None)
    return first, skipped


def _is_equal(left: Record, right: Record, with_times: bool) -> bool:
    return (
        left.value == right.value
        and left.key == right.key
        and tuple(left.headers) == tuple(right.headers)
        and (not with_times or left.timestamp == right.timestamp)
    )


async def _compare_latest(source: Side, target: Side) -> Compared:
    """Compare the last value of each key: each side removes older ones, and tombstones, at its own time."""
    left, right = await _latest(source), await _latest(target)
    if left != right:
        count = sum(left.get(key) != right.get(key) for key in left.keys() | right.keys())
        return Compared(len(left), f"{counted(count, 'key')} of {source.tp} with another last value in {target.tp}")
    return Compared(len(left))


async def _latest(side: Side) -> dict[bytes, bytes]:
    """Return digests of the last values, by digests of the keys, without keys whose last value is null."""
    latest: dict[bytes, bytes] = {}
    async for record in side.read():
        key = _digest(record.key or b"")
        if record.value is None:
            latest.pop(key, None)
            continue
        latest[key] = _digest(repr((record.value, tuple(record.headers))).encode())
        if len(latest) > KEYS_MAX:
            raise NotComparable(f"{side.tp} has more than {KEYS_MAX:,} keys")
    return latest


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=12).digest()


async def stable_ranges(client: ClusterClient, tps: Collection[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges of the partitions when they have no open transaction: its markers arrive after the commit.

    Raises NotComparable if a transaction is still open when the time of the client is over.
    """
    deadline = client.deadline()
    while True:
        ends = await offset_ranges(client, tps)
        ranges = await offset_ranges(client, tps, isolation=IsolationLevel.READ_COMMITTED)
        open_tps = [tp for tp, range_ in ranges.items() if range_.end < ends[tp].end]
        if not open_tps:
            return ranges
        if not await deadline.pause():
            raise NotComparable(f"{open_tps[0]} has an open transaction: 'kctl transactions list' shows whose")
