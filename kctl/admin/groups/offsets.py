"""Sets and deletes the committed offsets of a group, and documents of committed offsets."""

from __future__ import annotations

import csv
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset, commit_version
from kctl.client.consuming.positions import NO_EPOCH
from kctl.client.outcome import Outcome, outcome_of, raise_if
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.lag.facts import GroupDescription
from kctl.model import TopicPartition
from kctl.output.documents import read_json
from kctl.output.quantities import INT32_MAX, INT64_MAX, is_integer, parse_integer
from kctl.protocol.apis.alter_share_group_offsets import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from kctl.protocol.apis.delete_share_group_offsets import (
    DeletedTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kctl.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

# Sets and deletes the committed offsets of a group.


Outcomes = dict[TopicPartition, Outcome]

MESSAGES = {
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has members now.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group has members now.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group is active and subscribed to this topic.",
    ErrorCode.NON_EMPTY_GROUP: "The group is active.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group does not exist.",
}
"""Messages for codes whose general description does not fit here."""

NO_RESULT = (ErrorCode.UNKNOWN_SERVER_ERROR, "The broker's response does not contain this partition.")


async def commit_offsets(
    client: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> Outcomes:
    """Commit offsets of a group without members, which need not exist; one outcome per partition."""
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp].offset,
                        committed_leader_epoch=offsets[tp].leader_epoch,
                        committed_metadata=offsets[tp].metadata,
                    )
                    for tp in tps
                ],
            )
            for topic, tps in by_topic(offsets).items()
        ],
    )

    async def send_to(connection: Connection) -> Outcomes:
        response = await connection.send(request, OffsetCommitResponse, version=commit_version(connection))
        results = {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        raise_if(next(iter(results.values()), 0), *COORDINATOR_MOVED)
        return {tp: _outcome(tp, code) for tp, code in results.items()}

    return await _on_coordinator(client, group_id, offsets, send_to)


async def alter_share_offsets(client: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, int]) -> Outcomes:
    """Set the start offsets of a share group without members (KIP-932); one outcome per partition."""
    request = AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlteredTopic(
                topic_name=topic,
                partitions=[AlteredPartition(partition_index=tp.partition, start_offset=offsets[tp]) for tp in tps],
            )
            for topic, tps in by_topic(offsets).items()
        ],
    )

    async def send_to(connection: Connection) -> Outcomes:
        response = await connection.send(request, AlterShareGroupOffsetsResponse)
        raise_if(response.error_code, *COORDINATOR_MOVED)
        if response.error_code:
            return {tp: _outcome(tp, response.error_code) for tp in offsets}
        return {
            (tp := TopicPartition(topic.topic_name, partition.partition_index)): _outcome(tp, partition.error_code)
            for topic in response.responses
            for partition in topic.partitions
        }

    return await _on_coordinator(client, group_id, offsets, send_to)


async def delete_share_offsets(
    client: ClusterClient, group_id: str, partitions: Collection[TopicPartition]
) -> Outcomes:
    """Delete the start offsets of a share group without members, of whole topics; one outcome per partition."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeletedTopic(topic_name=topic) for topic in by_topic(partitions)]
    )

    async def send_to(connection: Connection) -> Outcomes:
        response = await connection.send(request, DeleteShareGroupOffsetsResponse)
        raise_if(response.error_code, *COORDINATOR_MOVED)
        codes = {topic.topic_name: topic.error_code for topic in response.responses}
        return {
            tp: _outcome(tp, response.error_code or codes[tp.topic])
            for tp in partitions
            if response.error_code or tp.topic in codes
        }

    return await _on_coordinator(client, group_id, partitions, send_to)


async def delete_offsets(client: ClusterClient, group_id: str, partitions: Collection[TopicPartition]) -> Outcomes:
    """Delete the committed offsets of the partitions; one outcome per partition."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=tp.partition) for tp in tps]
            )
            for topic, tps in by_topic(partitions).items()
        ],
    )

    async def send_to(connection: Connection) -> Outcomes:
        response = await connection.send(request, OffsetDeleteResponse)
        raise_if(response.error_code, *COORDINATOR_MOVED)
        if response.error_code:
            return {tp: _outcome(tp, response.error_code) for tp in partitions}
        return {
            (tp := TopicPartition(topic.name, partition.partition_index)): _outcome(tp, partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }

    return await _on_coordinator(client, group_id, partitions, send_to)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return the partitions by topic, both sorted."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp)
    return topics


async def _on_coordinator(
    client: ClusterClient,
    group_id: str,
    partitions: Collection[TopicPartition],
    send_to: Callable[[Connection], Awaitable[Outcomes]],
) -> Outcomes:
    try:
        results = await client.on_coordinator(group_id, send_to)
        return {tp: results.get(tp, Outcome(str(tp), *NO_RESULT)) for tp in sorted(partitions)}
    except ApiError as error:
        return {tp: Outcome(str(tp), error.code, str(error)) for tp in sorted(partitions)}


def _outcome(tp: TopicPartition, error_code: int) -> Outcome:
    return outcome_of(str(tp), error_code, MESSAGES.get(ErrorCode.of(error_code)))


# Committed offsets of groups as a JSON document: backups, and exports to other clusters. Pure.
#
# {"version": 1, "cluster_id": "...", "created": "2026-11-21T09:30:00.000Z", "reason": "reset-offsets",
#  "groups": [{"group": "billing",
#              "offsets": [{"topic": "orders", "partition": 0, "offset": 30, "leader_epoch": 4, "metadata": ""}]}]}


VERSION = 1

GroupOffsets = Mapping[str, Mapping[TopicPartition, CommittedOffset]]
"""Committed offsets by group and partition."""


@dataclass(frozen=True, slots=True)
class OffsetDocument:
    """Committed offsets of groups at one time."""

    cluster_id: str | None
    created: str
    """RFC 3339 in UTC."""
    reason: str
    """The command before which the offsets were saved, or `export`."""
    groups: GroupOffsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the topics then, as Kafka writes them; without those of brokers before Kafka 2.8."""


def committed_of(groups: Iterable[GroupDescription]) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """Return the committed offsets of the groups; groups without any are left out."""
    found = {
        group.outcome.name: {
            offset.tp: CommittedOffset(offset.committed_offset, offset.leader_epoch, offset.metadata)
            for offset in group.offsets
            if offset.committed_offset >= 0
        }
        for group in groups
    }
    return {name: offsets for name, offsets in found.items() if offsets}


def format_document(document: OffsetDocument) -> str:
    """Return the document as text, in the order of groups, topics and partitions."""
    groups = [
        {
            "group": name,
            "offsets": [
                {"topic": tp.topic, "partition": tp.partition, **document.groups[name][tp]._asdict()}
                for tp in sorted(document.groups[name])
            ],
        }
        for name in sorted(document.groups)
    ]
    front: dict[str, object] = {
        "version": VERSION,
        "cluster_id": document.cluster_id,
        "created": document.created,
        "reason": document.reason,
    }
    if document.topic_ids:
        front["topic_ids"] = dict(sorted(document.topic_ids.items()))
    return json.dumps({**front, "groups": groups}, indent=1, ensure_ascii=True) + "\n"


def parse_document(text: str) -> OffsetDocument:
    """Read what `format_document` writes; unknown fields are ignored.  Raises UsageError."""
    data = read_json(text)
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("groups"), list):
        raise UsageError(f'not a file of committed offsets: it has no "version": {VERSION} or no list of "groups"')
    groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    for item in data["groups"]:
        name = item.get("group") if isinstance(item, dict) else None
        if not isinstance(name, str) or not isinstance(item.get("offsets"), list):
            raise UsageError('each item of "groups" must have "group", a text, and "offsets", a list')
        if name in groups:
            raise UsageError(f"group '{name}' occurs twice")
        groups[name] = _parse_offsets(name, item["offsets"])
    cluster_id, topic_ids = data.get("cluster_id"), data.get("topic_ids")
    return OffsetDocument(
        cluster_id if isinstance(cluster_id, str) else None,
        str(data.get("created") or ""),
        str(data.get("reason") or ""),
        groups,
        {name: topic_id for name, topic_id in topic_ids.items() if isinstance(topic_id, str)}
        if isinstance(topic_ids, dict)
        else {},
    )


def _parse_offsets(group: str, items: list[Any]) -> dict[TopicPartition, CommittedOffset]:
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for item in items:
        where = f"group '{group}', {json.dumps(item)[:100]}"
        if not isinstance(item, dict) or not isinstance(item.get("topic"), str) or not item["topic"]:
            raise UsageError(f'{where}: "topic" must be the name of a topic')
        epoch, metadata = item.get("leader_epoch", NO_EPOCH), item.get("metadata", "")
        partition: Any = item.get("partition")
        offset: Any = item.get("offset")
        if not is_integer(partition):
            raise UsageError(f'{where}: "partition" must be a number from 0 to {INT32_MAX}')
        if not is_integer(offset, high=INT64_MAX):
            raise UsageError(f'{where}: "offset" must be a number from 0 to {INT64_MAX}')
        if not is_integer(epoch, low=NO_EPOCH):
            raise UsageError(f'{where}: "leader_epoch" must be a number from -1 to {INT32_MAX}')
        if not isinstance(metadata, str):
            raise UsageError(f'{where}: "metadata" must be a text')
        tp = TopicPartition(item["topic"], partition)
        if tp in offsets:
            raise UsageError(f"group '{group}': {tp} occurs twice")
        offsets[tp] = CommittedOffset(offset, epoch, metadata)
    return offsets


# Offsets of groups as CSV in the format of kafka-consumer-groups. Pure.
#
# Two shapes, neither with a header: `topic,partition,offset` for one group, `group,topic,partition,offset` for
# several.


UNQUOTED_LENGTH_MAX = 24
UNQUOTED_CHARACTER_MIN = "-"
"""Jackson, which writes Kafka's files, quotes long fields and fields with a character below this."""

COLUMNS_OF_ONE_GROUP = 3
COLUMNS_OF_SEVERAL = 4

Offsets = dict[str, dict[TopicPartition, int]]
"""Offsets by group and partition."""


def format_offsets(offsets: Iterable[tuple[str, TopicPartition, int]], *, with_group: bool) -> str:
    """Format the file, with one line per partition."""
    lines = []
    for group, tp, offset in offsets:
        front = f"{_field(group)}," if with_group else ""
        lines.append(f"{front}{_field(tp.topic)},{tp.partition},{offset}\n")
    return "".join(lines)


def rows_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a CSV file with their numbers.  Raises UsageError."""
    number = 0
    try:
        for number, fields in enumerate(csv.reader(text.splitlines()), 1):
            yield number, fields
    except csv.Error as error:
        raise UsageError(f"line {number + 1}: not CSV: {error}") from None


def parse_offsets(text: str, groups: Sequence[str]) -> Offsets:
    """Return the offsets of `groups` in the file; lines without a group belong to the only one.  Raises UsageError."""
    offsets: Offsets = {group: {} for group in groups}
    shape = None
    for number, fields in rows_of(text):
        if not fields:
            continue
        shape = shape or len(fields)
        if shape not in {COLUMNS_OF_ONE_GROUP, COLUMNS_OF_SEVERAL} or len(fields) != shape:
            raise UsageError(f"line {number}: neither 'topic,partition,offset' nor 'group,topic,partition,offset'")
        if shape == COLUMNS_OF_ONE_GROUP and len(groups) != 1:
            raise UsageError("the file has no groups, so it can be used for one group only")
        group = fields[0] if shape == COLUMNS_OF_SEVERAL else groups[0]
        topic, partition, offset = (field.strip() for field in fields[-COLUMNS_OF_ONE_GROUP:])
        if not topic:
            raise UsageError(f"line {number}: '{','.join(fields)}' names no topic")
        tp = TopicPartition(topic, parse_integer(partition, f"line {number}: the partition"))
        at = parse_integer(offset, f"line {number}: the offset", high=INT64_MAX)
        if group not in offsets:
            continue
        if tp in offsets[group]:
            raise UsageError(f"line {number}: {tp} occurs twice")
        offsets[group][tp] = at
    return offsets


def _field(text: str) -> str:
    if len(text) <= UNQUOTED_LENGTH_MAX and all(character >= UNQUOTED_CHARACTER_MIN for character in text):
        return text
    return '"' + text.replace('"', '""') + '"'
