"""CreateTopics (key 19, versions 0-7): create topics; the active controller does.

Either a number of partitions and a replication factor, or both -1 and `assignments`.

1: `validate_only`; errors have a message.  4: -1 without assignments means the broker's defaults (KIP-464). 5:
flexible; the response describes the topic (KIP-525).  6: THROTTLING_QUOTA_EXCEEDED (KIP-599).  7: topic ids.
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, boolean, int8, int16, int32, request, response, string, struct, uuid


@struct
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@struct
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@request(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+", default=False)


@struct
class CreatableTopicConfigs:
    name: str = string()
    value: str | None = string(nullable="5+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@struct
class CreatableTopicResult:
    name: str = string()
    topic_id: UUID = uuid("7+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="1+", default=None, ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, default=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", default=[], ignorable=True
    )


@response(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
