"""Plans and requests the deletion of the records before an offset (KIP-107)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kctl.admin.groups.offsets import by_topic
from kctl.admin.topics.offsets import OffsetRange
from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.list_offsets import EARLIEST, LATEST, NO_OFFSET, OffsetAt, list_offsets, list_offsets_at
from kctl.client.leaders import Outcomes, on_leaders
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition
from kctl.output.documents import read_json
from kctl.output.quantities import INT64_MAX, is_integer
from kctl.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

# Kafka's JSON of kafka-delete-records: the offset of each partition before which records are deleted. Pure.
#
# {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 1200}]}


VERSION = 1
TO_END = -1
"""This offset stands for the end of the partition."""


def parse_deletions(text: str) -> dict[TopicPartition, int]:
    """Return the offsets by partition; TO_END for the end.  Raises UsageError."""
    document = read_json(text)
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise UsageError('it must be an object with "partitions", a list')
    if (version := document.get("version", VERSION)) != VERSION:
        raise UsageError(f"version {version!r} is not supported; use {VERSION}")
    offsets: dict[TopicPartition, int] = {}
    for entry in document["partitions"]:
        where = json.dumps(entry)[:100]
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str) or not entry["topic"]:
            raise UsageError(f'{where}: "topic" must be the name of a topic')
        if not is_integer(entry.get("partition")):
            raise UsageError(f'{where}: "partition" must be a number from 0')
        if not is_integer(entry.get("offset"), low=TO_END, high=INT64_MAX):
            raise UsageError(f'{where}: "offset" must be a number from 0, or -1 for the end of the partition')
        tp = TopicPartition(entry["topic"], entry["partition"])
        if tp in offsets:
            raise UsageError(f"{tp} occurs twice")
        offsets[tp] = entry["offset"]
    if not offsets:
        raise UsageError("it names no partition")
    return offsets


@dataclass(frozen=True, slots=True)
class Deletion:
    """The records of one partition that are to be deleted."""

    tp: TopicPartition
    outcome: Outcome
    held: OffsetRange | None = None
    """The offsets of the partition before the deletion."""
    offset: int | None = None
    """All records before this offset are deleted."""

    @property
    def count(self) -> int | None:
        """Number of offsets that are deleted; compaction may have removed some of their records before."""
        return None if self.held is None or self.offset is None else max(0, self.offset - self.held.start)


async def plan_deletions(client: ClusterClient, offsets: Mapping[TopicPartition, int]) -> list[Deletion]:
    """Return the deletions before these offsets, TO_END for the end; OFFSET_OUT_OF_RANGE for one after the end."""
    found = await list_offsets_at(client, offsets, (EARLIEST, LATEST))
    return [_plan_one(tp, offsets[tp], found[tp]) for tp in sorted(offsets)]


async def offsets_of_time(
    client: ClusterClient, partitions: Collection[TopicPartition], time_ms: int
) -> dict[TopicPartition, int]:
    """Return the first offsets at or after the time, TO_END if there is none.  Raises ApiError."""
    found = await list_offsets(client, dict.fromkeys(partitions, time_ms))
    offsets = {}
    for tp, offset in found.items():
        if isinstance(offset, ApiError):
            raise ApiError(offset.code, f"{tp}: {offset}")
        offsets[tp] = TO_END if offset.offset == NO_OFFSET else offset.offset
    return offsets


async def delete_records(client: ClusterClient, offsets: Mapping[TopicPartition, int]) -> Outcomes[int]:
    """Delete the records before the offsets; return the low watermark or the error of each partition."""

    async def send_to(connection: Connection, tps: list[TopicPartition]) -> Outcomes[int]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp]) for tp in own],
                )
                for topic, own in by_topic(tps).items()
            ],
            timeout_ms=client.delayed_timeout_ms,
        )
        response = await connection.send(request, DeleteRecordsResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): (
                ApiError(ErrorCode.of(partition.error_code)) if partition.error_code else partition.low_watermark
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    return await on_leaders(client, offsets, send_to)


def _plan_one(tp: TopicPartition, offset: int, found: tuple[OffsetAt, ...] | ApiError) -> Deletion:
    if isinstance(found, ApiError):
        return Deletion(tp, Outcome(str(tp), found.code, str(found)))
    held = OffsetRange(found[0].offset, found[1].offset)
    before = held.end if offset == TO_END else offset
    if before > held.end:
        text = f"offset {before} is after the end of the partition, {held.end}"
        return Deletion(tp, Outcome(str(tp), ErrorCode.OFFSET_OUT_OF_RANGE, text), held, before)
    return Deletion(tp, Outcome(str(tp)), held, before)
