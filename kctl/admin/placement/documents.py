"""Parses and formats reassignments, as JSON of Kafka's tools and as arguments.  Pure.

{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2,3],"log_dirs":["any","/disk2","any"]}]}
orders:0=1,2,3          the same on a command line
orders:0                the partition only, for commands without replicas
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.output.documents import read_json
from kctl.output.quantities import is_integer, parse_integer

VERSION = 1
ANY_LOG_DIR = "any"

Assignment = dict[TopicPartition, tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""

LogDirTargets = Mapping[tuple[int, TopicPartition], str]
"""Requested log directories by (broker, partition); others have no requirement."""

_INLINE = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+):(?P<partition>[0-9]+)(?:=(?P<replicas>[0-9,]+))?")


def parse_reassignment(text: str) -> Assignment:
    """Parse Kafka's JSON.  Raises UsageError."""
    document = _document(text)
    version = document.get("version", VERSION)
    if version != VERSION:
        raise UsageError(f"version {version!r} of the reassignment is not supported; use {VERSION}")
    assignment: Assignment = {}
    for entry in _partitions_of(document):
        tp = _partition(entry)
        if tp in assignment:
            raise UsageError(f"{tp} is in the reassignment twice")
        assignment[tp] = _checked(tp, entry.get("replicas"))
        _log_dirs(tp, entry.get("log_dirs"), len(assignment[tp]))
    if not assignment:
        raise UsageError("the reassignment names no partition")
    return assignment


def parse_log_dirs(text: str) -> LogDirTargets:
    """Return the log directories in a document that `parse_reassignment` has accepted."""
    targets: dict[tuple[int, TopicPartition], str] = {}
    for entry in _partitions_of(_document(text)):
        tp, replicas = _partition(entry), entry["replicas"]
        for broker_id, path in zip(replicas, _log_dirs(tp, entry.get("log_dirs"), len(replicas)), strict=True):
            if path != ANY_LOG_DIR:
                targets[broker_id, tp] = path
    return targets


def parse_partitions(text: str) -> list[TopicPartition]:
    """Parse the JSON of an election: topics and partitions without replicas.  Raises UsageError."""
    tps = [_partition(entry) for entry in _partitions_of(_document(text))]
    if not tps:
        raise UsageError("the file names no partition")
    if len(set(tps)) < len(tps):
        raise UsageError("the file names a partition twice")
    return sorted(tps)


def is_inline(text: str) -> bool:
    """Return whether the text has the form of `orders:0` or `orders:0=1,2,3`."""
    return _INLINE.fullmatch(text) is not None


def parse_inline(texts: Iterable[str], *, with_replicas: bool = True) -> Assignment:
    """Parse `orders:0=1,2,3`, or `orders:0` without replicas.  Raises UsageError."""
    assignment: Assignment = {}
    for text in texts:
        found = _INLINE.fullmatch(text)
        if found is None or (with_replicas and not found["replicas"]):
            form = "TOPIC:PARTITION=BROKER,BROKER" if with_replicas else "TOPIC:PARTITION"
            raise UsageError(f"'{text}' is neither a file nor {form}")
        tp = TopicPartition(found["topic"], parse_integer(found["partition"], f"the partition of '{found['topic']}'"))
        if tp in assignment:
            raise UsageError(f"{tp} is given twice")
        replicas = found["replicas"]
        assignment[tp] = _checked(tp, _numbers(tp, replicas)) if replicas else ()
    return assignment


def format_reassignment(
    assignment: Mapping[TopicPartition, Iterable[int]], log_dir_targets: LogDirTargets | None = None
) -> str:
    """Format as JSON, byte for byte as Kafka's tools."""
    known = log_dir_targets or {}
    partitions = []
    for tp in sorted(assignment):
        replicas = list(assignment[tp])
        log_dirs = [known.get((replica, tp), ANY_LOG_DIR) for replica in replicas]
        partitions.append({"topic": tp.topic, "partition": tp.partition, "replicas": replicas, "log_dirs": log_dirs})
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def _document(text: str) -> dict[str, Any]:
    document = read_json(text)
    if not isinstance(document, dict):
        raise UsageError("not a JSON object")
    return document


def _partitions_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    entries = document.get("partitions")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError("'partitions' is missing, or not a list of objects")
    return entries


def _partition(entry: dict[str, Any]) -> TopicPartition:
    topic, partition = entry.get("topic"), entry.get("partition")
    if not isinstance(topic, str) or not topic:
        raise UsageError(f"an entry names no topic: {json.dumps(entry)}")
    if not is_integer(partition):
        raise UsageError(f"an entry of topic {topic} has no partition number: {json.dumps(entry)}")
    assert isinstance(partition, int)
    return TopicPartition(topic, partition)


def _checked(tp: TopicPartition, replicas: object) -> tuple[int, ...]:
    if not isinstance(replicas, list) or not all(is_integer(replica) for replica in replicas):
        raise UsageError(f"the replicas of {tp} are not a list of broker ids")
    if not replicas:
        raise UsageError(f"{tp} is left without replicas")
    if len(set(replicas)) < len(replicas):
        raise UsageError(f"a broker is in the replicas of {tp} twice: {','.join(map(str, replicas))}")
    return tuple(replicas)


def _log_dirs(tp: TopicPartition, log_dirs: object, count: int) -> list[str]:
    if log_dirs is None:
        return [ANY_LOG_DIR] * count
    if not isinstance(log_dirs, list) or len(log_dirs) != count:
        raise UsageError(f"{tp} needs as many log_dirs as replicas, or none")
    for log_dir in log_dirs:
        if log_dir != ANY_LOG_DIR and not (isinstance(log_dir, str) and log_dir.startswith("/")):
            raise UsageError(f"a log directory of {tp} is neither 'any' nor an absolute path: {json.dumps(log_dir)}")
    return log_dirs


def _numbers(tp: TopicPartition, text: str) -> list[int]:
    return [parse_integer(part, f"a broker of {tp}") for part in text.split(",")]
