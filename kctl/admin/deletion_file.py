"""Kafka's JSON of kafka-delete-records: the offset of each partition before which records are deleted.  Pure.

{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 1200}]}
"""

from __future__ import annotations

import json

from kctl.documents import read_json
from kctl.errors import UsageError
from kctl.integers import INT64_MAX, is_integer
from kctl.model import TopicPartition

VERSION = 1
TO_END = -1
"""This offset stands for the end of the partition."""


def parse_deletions(text: str) -> dict[TopicPartition, int]:
    """The offsets by partition; TO_END for the end.  Raises UsageError."""
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
