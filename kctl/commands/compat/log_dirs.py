"""The output of Kafka's kafka-log-dirs, byte for byte.  Pure.

LogDirsCommand of 2.8, 3.9 and 4.3; tests compare with the tools themselves.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from kctl.admin.log_dirs import LogDir, LogDirReplica
from kctl.commands.compat.hash_order import java_order, scala_mutable_order
from kctl.commands.compat.java_errors import java_class
from kctl.commands.compat.versions import KAFKA_28
from kctl.errors import ErrorCode


def described(compat: str, brokers: Sequence[int], found: Sequence[LogDir], topics: Collection[str] | None) -> str:
    """The output of --describe for all replicas, or for those of `topics`; `found` is in the order of the responses."""
    ids = sorted(brokers)
    by_broker: dict[int, dict[str, LogDir]] = {broker: {} for broker in java_order(ids, room=len(ids))}
    for log_dir in found:
        by_broker[log_dir.broker_id][log_dir.path] = log_dir
    listed = [
        {"broker": broker, "logDirs": [_log_dir(compat, by_path[path], topics) for path in java_order(by_path)]}
        for broker, by_path in by_broker.items()
    ]
    document: dict[str, Any]
    document = {"version": 1, "brokers": listed} if compat == KAFKA_28 else {"brokers": listed, "version": 1}
    return (
        "Querying brokers for log directories information\n"
        f"Received log directory information from brokers {','.join(map(str, ids))}\n"
        f"{json.dumps(document, ensure_ascii=False, separators=(',', ':'))}\n"
    )


def _log_dir(compat: str, log_dir: LogDir, topics: Collection[str] | None) -> dict[str, Any]:
    by_tp = {one.tp: one for one in log_dir.replicas}
    selected = [tp for tp in java_order(by_tp) if topics is None or tp.topic in topics]
    # What is selected is copied to another map.
    order = scala_mutable_order(selected) if compat == KAFKA_28 else java_order(selected)
    partitions = [_replica(by_tp[tp]) for tp in order]
    error = None if log_dir.error is ErrorCode.NONE else java_class(log_dir.error)
    if compat == KAFKA_28:
        return {"logDir": log_dir.path, "error": error, "partitions": partitions}
    return {"partitions": partitions, "error": error, "logDir": log_dir.path}


def _replica(one: LogDirReplica) -> dict[str, Any]:
    return {
        "partition": str(one.tp),
        "size": one.size_bytes,
        "offsetLag": one.offset_lag,
        "isFuture": one.is_future,
    }
