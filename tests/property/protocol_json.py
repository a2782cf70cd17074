"""Messages as Kafka's own classes write them as JSON, flattened to be compared."""

from __future__ import annotations

import base64
import re
from typing import Any
from uuid import UUID

from kctl.protocol.definition import Field, definition_of

RENAMED: dict[str, dict[str, str]] = {
    "AddPartitionsToTxnRequest": {
        "v3and_below_transactional_id": "transactional_id",
        "v3and_below_producer_id": "producer_id",
        "v3and_below_producer_epoch": "producer_epoch",
    },
    "AddPartitionsToTxnResponse": {"partition_error_code": "error_code"},
    "AlterPartitionRequest": {"current_isr_version": "partition_epoch", "name": "topic_name"},
    "AlterPartitionResponse": {"current_isr_version": "partition_epoch", "name": "topic_name"},
    "DescribeLogDirsRequest": {"partition_index": "partitions"},
    "ElectLeadersRequest": {"partition_id": "partitions"},
    "FetchResponse": {"partition": "partition_index", "record_set": "records"},
    "LeaderAndIsrRequest": {"zk_version": "partition_epoch"},
    "OffsetCommitRequest": {"generation_id_or_member_epoch": "generation_id"},
    "UpdateMetadataRequest": {"v0host": "v0_host", "v0port": "v0_port"},
}
"""Fields with another name in one of the two Kafka versions; all other names are equal in snake case."""


def leaves(message: Any, version: int) -> list[tuple[str, Any]]:
    """(field, value) in order, as Kafka writes JSON: records empty, no tagged fields that have their default."""
    found = []
    for field in definition_of(type(message)).fields:
        value = getattr(message, field.name)
        if version in field.versions and (field.tag is None or value != field.default):
            found += _leaves(field, value, version)
    return found


def _leaves(field: Field, value: Any, version: int) -> list[tuple[str, Any]]:
    match value:
        case list():
            return [leaf for item in value for leaf in _leaves(field, item, version)]
        case UUID():
            return [(field.name, base64.urlsafe_b64encode(value.bytes).decode().rstrip("="))]
        case bytes() | memoryview():
            return [(field.name, "" if field.kind == "records" else base64.b64encode(value).decode())]
        case None | bool() | int() | float() | str():
            return [(field.name, value)]
    return leaves(value, version)


def json_leaves(cls: type, document: Any) -> list[tuple[str, Any]]:
    """(field, value) of a JSON document in its order; names in our spelling."""
    return _json_leaves(RENAMED.get(cls.__name__, {}), "", document)


def _json_leaves(renamed: dict[str, str], name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for inner, item in value.items() for leaf in _json_leaves(renamed, inner, item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _json_leaves(renamed, name, item)]
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return [(renamed.get(snake, snake), value)]
