"""CreateTopics (key 19, versions 0-7): creates topics (KIP-4).

Sent to the active controller.

1: `validate_only`; error messages.  2: throttle time.  4: -1 without assignments selects the broker's defaults
(KIP-464).  5: flexible; the response describes the topic (KIP-525).  6: THROTTLING_QUOTA_EXCEEDED (KIP-599).  7: topic
ids (KIP-516).
"""

from __future__ import annotations

from uuid import UUID

from kctl.model import ZERO_UUID
from kctl.protocol.message import array, boolean, int8, int16, int32, request, response, string, struct, uuid


@struct
class CreatableReplicaAssignment:
    """The replicas of one partition, preferred leader first."""

    partition_index: int = int32(is_partition=True)
    broker_ids: list[int] = array(int32)


@struct
class CreatableTopicConfig:
    """A property of a new topic."""

    name: str = string()
    value: str | None = string(nullable="0+")
    """Null gets INVALID_CONFIG."""


@struct
class CreatableTopic:
    """A topic to create: either both numbers or `assignments`."""

    name: str = string(is_topic=True)
    num_partitions: int = int32()
    """-1 for `num.partitions` of the broker, or if there are assignments."""
    replication_factor: int = int16()
    """-1 for `default.replication.factor` of the broker, or if there are assignments."""
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    """One entry per partition, numbered from 0; empty lets the controller assign replicas."""
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@request(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    """Creates topics; each succeeds or fails independently."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    """How long to wait until every partition has a leader; then REQUEST_TIMED_OUT, and the topic exists."""
    validate_only: bool = boolean("1+", default=False)
    """Check the request, and change nothing."""


@struct
class CreatableTopicConfigs:
    """A property of the created topic."""

    name: str = string()
    value: str | None = string(nullable="5+")
    """Null for a sensitive property."""
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    """1 topic, 2 dynamic broker, 3 dynamic broker default, 4 static broker, 5 default."""
    is_sensitive: bool = boolean()
    """True for secrets, whose value is null."""


@struct
class CreatableTopicResult:
    """The result for one topic."""

    name: str = string(is_topic=True)
    topic_id: UUID = uuid("7+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="1+", default=None, ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, default=0, ignorable=True)
    """Why `configs` is null, such as TOPIC_AUTHORIZATION_FAILED."""
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    """-1 if the topic was not created or may not be described."""
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", default=[], ignorable=True
    )
    """Null if the caller may not describe the configuration."""


@response(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    """One result per topic of the request."""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
