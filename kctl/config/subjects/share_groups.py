"""Share groups and the share coordinator (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Importance, at_least, in_range, prop
from kctl.config.kinds import INT, SHORT


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ShareGroupProperties:
    """Limits of share groups, and the topic with the state of their partitions."""

    __slots__ = ()

    group_share_session_timeout_ms: int = prop(
        "group.share.session.timeout.ms",
        INT,
        at_least(1),
        default=45000,
        doc="Time after which a member of a share group without heartbeats is removed.",
    )
    group_share_heartbeat_interval_ms: int = prop(
        "group.share.heartbeat.interval.ms",
        INT,
        at_least(1),
        default=5000,
        doc="Interval of the heartbeats of members of share groups.",
    )
    group_share_max_size: int = prop(
        "group.share.max.size",
        INT,
        in_range(1, 1000),
        default=200,
        doc="Maximum number of members of a share group.",
    )
    group_share_assignment_interval_ms: int = prop(
        "group.share.assignment.interval.ms",
        INT,
        at_least(0),
        default=1000,
        doc="Minimum time between two assignments of a share group.",
    )
    group_share_delivery_count_limit: int = prop(
        "group.share.delivery.count.limit",
        INT,
        in_range(2, 10),
        default=5,
        doc="How often a record is handed out to members of a share group before it is archived.",
    )
    group_share_record_lock_duration_ms: int = prop(
        "group.share.record.lock.duration.ms",
        INT,
        in_range(1000, 3600000),
        default=30000,
        doc="Time that a member of a share group has to acknowledge a record; share.record.lock.duration.ms of a "
        "group overrides it.",
    )
    group_share_partition_max_record_locks: int = prop(
        "group.share.partition.max.record.locks",
        INT,
        in_range(100, 10000),
        default=2000,
        doc="Maximum number of records of a partition that members of a share group have at a time; exceeded up to "
        "the end of a batch.",
    )
    group_share_max_share_sessions: int = prop(
        "group.share.max.share.sessions",
        INT,
        at_least(1),
        default=2000,
        doc="Maximum number of share sessions of this broker: members, each on the brokers that it fetches from.",
    )
    share_coordinator_state_topic_num_partitions: int = prop(
        "share.coordinator.state.topic.num.partitions",
        INT,
        at_least(1),
        default=50,
        importance=Importance.HIGH,
        doc="Partitions of __share_group_state; must not change after its creation.",
    )
    share_coordinator_state_topic_replication_factor: int = prop(
        "share.coordinator.state.topic.replication.factor",
        SHORT,
        at_least(1),
        default=3,
        importance=Importance.HIGH,
        doc="Replication factor of __share_group_state; it is created when there are as many brokers.",
    )
    share_coordinator_state_topic_min_isr: int = prop(
        "share.coordinator.state.topic.min.isr",
        SHORT,
        at_least(1),
        default=2,
        importance=Importance.HIGH,
        doc="min.insync.replicas of __share_group_state.",
    )
    share_coordinator_state_topic_segment_bytes: int = prop(
        "share.coordinator.state.topic.segment.bytes",
        INT,
        at_least(1),
        default=100 << 20,
        importance=Importance.HIGH,
        doc="Segment size of __share_group_state.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = prop(
        "share.coordinator.state.topic.prune.interval.ms",
        INT,
        at_least(1),
        default=300000,
        importance=Importance.LOW,
        doc="How often the share coordinator deletes records before its last snapshots.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = prop(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        INT,
        at_least(1),
        default=300000,
        importance=Importance.LOW,
        doc="Age of a snapshot after which the share coordinator writes a new one, so that older records can be "
        "deleted.",
    )
    share_coordinator_load_buffer_size: int = prop(
        "share.coordinator.load.buffer.size",
        INT,
        at_least(1),
        default=5 << 20,
        importance=Importance.HIGH,
        doc="Bytes read at a time while a share coordinator loads a partition of __share_group_state.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = prop(
        "share.coordinator.snapshot.update.records.per.snapshot",
        INT,
        in_range(0, 500),
        default=500,
        doc="How many updates of a share-partition the share coordinator writes between two snapshots.",
    )
    share_coordinator_write_timeout_ms: int = prop(
        "share.coordinator.write.timeout.ms",
        INT,
        at_least(1),
        default=5000,
        importance=Importance.HIGH,
        doc="Timeout of the replication of a record of the share coordinator.",
    )
