"""Committed offsets of groups as a JSON document: backups, and exports to other clusters.  Pure.

{"version": 1, "cluster_id": "...", "created": "2026-11-21T09:30:00.000Z", "reason": "reset-offsets",
 "groups": [{"group": "billing",
             "offsets": [{"topic": "orders", "partition": 0, "offset": 30, "leader_epoch": 4, "metadata": ""}]}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kctl.admin.group_description import GroupDescription
from kctl.client.committed_offsets import CommittedOffset
from kctl.client.positions import NO_EPOCH
from kctl.documents import read_json
from kctl.errors import UsageError
from kctl.integers import INT32_MAX, INT64_MAX, is_integer
from kctl.model import TopicPartition

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
    """The committed offsets of the groups; groups without any are left out."""
    found = {
        group.outcome.name: {
            one.tp: CommittedOffset(one.committed_offset, one.leader_epoch, one.metadata)
            for one in group.offsets
            if one.committed_offset >= 0
        }
        for group in groups
    }
    return {name: offsets for name, offsets in found.items() if offsets}


def format_document(document: OffsetDocument) -> str:
    """The document as text, in the order of groups, topics and partitions."""
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
    """Reads what `format_document` writes; unknown fields are ignored.  Raises UsageError."""
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
