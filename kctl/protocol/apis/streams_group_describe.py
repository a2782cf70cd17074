"""StreamsGroupDescribe (key 89, version 0): state, topology and members of streams groups (KIP-1071).

New in Kafka 4.1.
"""

from __future__ import annotations

from kctl.protocol.message import (
    array,
    boolean,
    int16,
    int32,
    int64,
    nested,
    partition_number,
    request,
    response,
    string,
    struct,
    uint16,
)


@request(key=89, versions="0", flexible="0+", served="none")
class StreamsGroupDescribeRequest:
    """Sent to the coordinator of the groups."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean(default=False)


@struct
class KeyValue:
    """A property or a tag."""

    key: str = string()
    value: str = string()


@struct
class TopicInfo:
    """An internal topic of a subtopology."""

    name: str = string(is_topic=True)
    partitions: int = int32()
    """0 if the sources determine it."""
    replication_factor: int = int16()
    """0 for the default of the broker."""
    topic_configs: list[KeyValue] = array(KeyValue)


@struct
class Subtopology:
    """Processors that share their partitions."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


@struct
class Topology:
    """What the application has told the coordinator about its processors."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable="0+", default=None)


@struct
class Endpoint:
    """Where a member answers interactive queries."""

    host: str = string()
    port: int = uint16()


@struct
class TaskOffset:
    """How far a task has read its changelogs."""

    subtopology_id: str = string()
    partition: int = partition_number()
    offset: int = int64()


@struct
class TaskIds:
    """Tasks of one subtopology."""

    subtopology_id: str = string()
    partitions: list[int] = array(partition_number)


@struct
class Assignment:
    """The tasks of a member."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


@struct
class Member:
    """A member of a streams group."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nested(Endpoint, nullable="0+", default=None)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = nested(Assignment)
    target_assignment: Assignment = nested(Assignment)
    is_classic: bool = boolean()
    """Whether the member has not been upgraded to this protocol yet."""


@struct
class DescribedGroup:
    """The state of one group."""

    error_code: int = int16()
    """GROUP_ID_NOT_FOUND for a missing group or one of another type."""
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    """`Empty`, `NotReady`, `Assigning`, `Reconciling`, `Stable` or `Dead`."""
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = nested(Topology, nullable="0+", default=None)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


@response(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    """One entry per group of the request."""

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)
