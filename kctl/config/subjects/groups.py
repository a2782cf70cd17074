"""Groups and their committed offsets, and the share coordinator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from kctl.config.definition import Importance, Property, Rule, at_least, in_range, one_of, prop, properties_of
from kctl.config.kinds import BOOLEAN, INT, INT_MAX, LIST, LONG, SHORT, STRING
from kctl.errors import ApiError, ErrorCode

CLASSIC_PROTOCOL = "classic"
CONSUMER_PROTOCOL = "consumer"
SHARE_PROTOCOL = "share"
STREAMS_PROTOCOL = "streams"
_NEWER_PROTOCOLS = {CONSUMER_PROTOCOL, SHARE_PROTOCOL, STREAMS_PROTOCOL}
CONFIGURED_PROTOCOLS = {SHARE_PROTOCOL, STREAMS_PROTOCOL}
"""The protocols whose groups have properties of their own."""
_ASSIGNORS = ("uniform", "range")
MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GroupProperties:
    """Limits of groups and retention of committed offsets."""

    __slots__ = ()

    group_min_session_timeout_ms: int = prop(
        "group.min.session.timeout.ms",
        INT,
        at_least(0),
        default=6000,
        doc="Minimum session timeout of a member.",
    )
    group_max_session_timeout_ms: int = prop(
        "group.max.session.timeout.ms",
        INT,
        at_least(0),
        default=1800000,
        doc="Maximum session timeout of a member.",
    )
    group_initial_rebalance_delay_ms: int = prop(
        "group.initial.rebalance.delay.ms",
        INT,
        at_least(0),
        default=3000,
        doc="Delay of the first rebalance of an empty group, for more members to join.",
    )
    group_max_size: int = prop(
        "group.max.size", INT, at_least(1), default=INT_MAX, doc="Maximum number of members of a group."
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = prop(
        "group.coordinator.rebalance.protocols",
        LIST,
        Rule(
            "classic, and any of consumer, share and streams after it",
            lambda values: {CLASSIC_PROTOCOL} <= set(values) <= {CLASSIC_PROTOCOL, *_NEWER_PROTOCOLS},
            (CLASSIC_PROTOCOL, CONSUMER_PROTOCOL, SHARE_PROTOCOL, STREAMS_PROTOCOL),
        ),
        default=(CLASSIC_PROTOCOL,),
        doc="Protocols of groups. With consumer, the broker also serves groups of KIP-848, with share of KIP-932, with "
        "streams of KIP-1071. Kafka 2.8 knows none of them: all brokers of the cluster must be of kctl.",
    )
    group_consumer_session_timeout_ms: int = prop(
        "group.consumer.session.timeout.ms",
        INT,
        at_least(1),
        default=45000,
        doc="Time after which a member of the consumer protocol without heartbeats is removed.",
    )
    group_consumer_heartbeat_interval_ms: int = prop(
        "group.consumer.heartbeat.interval.ms",
        INT,
        at_least(1),
        default=5000,
        doc="Interval of the heartbeats of members of the consumer protocol.",
    )
    group_consumer_max_size: int = prop(
        "group.consumer.max.size",
        INT,
        at_least(1),
        default=INT_MAX,
        doc="Maximum number of members of a group of the consumer protocol; 1,000 is the bound of this broker.",
    )
    group_consumer_assignors: tuple[str, ...] = prop(
        "group.consumer.assignors",
        LIST,
        Rule(
            "a list of uniform, range",
            lambda values: set() < set(values) <= set(_ASSIGNORS),
            _ASSIGNORS,
        ),
        default=_ASSIGNORS,
        doc="Assignors of the broker for groups of the consumer protocol; the first is the default.",
    )
    group_consumer_assignment_interval_ms: int = prop(
        "group.consumer.assignment.interval.ms",
        INT,
        at_least(0),
        default=1000,
        doc="Minimum time between two assignments of a group of the consumer protocol.",
    )
    group_consumer_regex_refresh_interval_ms: int = prop(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        at_least(10_000),
        default=600000,
        doc="Interval at which regular expressions of subscriptions are matched with the topics again, for changes of "
        "ACLs; new topics are matched within 10 s.",
    )
    group_consumer_migration_policy: str = prop(
        "group.consumer.migration.policy",
        STRING,
        one_of(*MIGRATION_POLICIES),
        default="bidirectional",
        doc="Whether groups with members are converted: `upgrade` to the consumer protocol when its first member "
        "joins, `downgrade` to the classic one when its last member leaves, `bidirectional` both. With `disabled` "
        "members of the other protocol are refused. Groups without members are always converted.",
    )
    offset_metadata_max_bytes: int = prop(
        "offset.metadata.max.bytes",
        INT,
        at_least(0),
        default=4096,
        importance=Importance.HIGH,
        doc="Maximum size of the metadata of a committed offset.",
    )
    offsets_load_buffer_size: int = prop(
        "offsets.load.buffer.size",
        INT,
        at_least(1),
        default=5 << 20,
        importance=Importance.HIGH,
        doc="Bytes read at a time while a coordinator loads a partition of __consumer_offsets.",
    )
    offsets_topic_replication_factor: int = prop(
        "offsets.topic.replication.factor",
        SHORT,
        at_least(1),
        default=3,
        importance=Importance.HIGH,
        doc="Replication factor of __consumer_offsets; it is created when there are as many brokers.",
    )
    offsets_topic_num_partitions: int = prop(
        "offsets.topic.num.partitions",
        INT,
        at_least(1),
        default=50,
        importance=Importance.HIGH,
        doc="Partitions of __consumer_offsets; must not change after its creation.",
    )
    offsets_topic_segment_bytes: int = prop(
        "offsets.topic.segment.bytes",
        INT,
        at_least(1),
        default=100 << 20,
        importance=Importance.HIGH,
        doc="Segment size of __consumer_offsets; small segments are compacted and loaded faster.",
    )
    offsets_topic_compression_codec: int = prop(
        "offsets.topic.compression.codec",
        INT,
        in_range(0, 4),
        default=0,
        importance=Importance.HIGH,
        doc="Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )
    offsets_retention_minutes: int = prop(
        "offsets.retention.minutes",
        INT,
        at_least(1),
        default=10080,
        importance=Importance.HIGH,
        doc="How long committed offsets of an empty group are kept.",
    )
    offsets_retention_check_interval_ms: int = prop(
        "offsets.retention.check.interval.ms",
        LONG,
        at_least(1),
        default=600000,
        importance=Importance.HIGH,
        doc="Interval of the checks for expired offsets.",
    )
    offsets_commit_timeout_ms: int = prop(
        "offsets.commit.timeout.ms",
        INT,
        at_least(1),
        default=5000,
        importance=Importance.HIGH,
        doc="Timeout of the replication of an offset commit.",
    )
    offsets_commit_required_acks: int = prop(
        "offsets.commit.required.acks",
        SHORT,
        default=-1,
        importance=Importance.HIGH,
        doc="Acknowledgements required for an offset commit; should be left at -1.",
    )


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


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StreamsGroupProperties:
    """Limits of streams groups."""

    __slots__ = ()

    group_streams_session_timeout_ms: int = prop(
        "group.streams.session.timeout.ms",
        INT,
        at_least(1),
        default=45000,
        doc="Time after which a member of a streams group without heartbeats is removed.",
    )
    group_streams_heartbeat_interval_ms: int = prop(
        "group.streams.heartbeat.interval.ms",
        INT,
        at_least(1),
        default=5000,
        doc="Interval of the heartbeats of members of streams groups.",
    )
    group_streams_max_size: int = prop(
        "group.streams.max.size",
        INT,
        at_least(1),
        default=INT_MAX,
        doc="Maximum number of members of a streams group; at most 1,000.",
    )
    group_streams_num_standby_replicas: int = prop(
        "group.streams.num.standby.replicas",
        INT,
        in_range(0, 10),
        default=0,
        doc="Number of standby tasks of each task with state.",
    )
    group_streams_initial_rebalance_delay_ms: int = prop(
        "group.streams.initial.rebalance.delay.ms",
        INT,
        at_least(0),
        default=3000,
        doc="Delay of the first assignment of a streams group, for more members to join.",
    )
    group_streams_assignment_interval_ms: int = prop(
        "group.streams.assignment.interval.ms",
        INT,
        at_least(0),
        default=1000,
        doc="Minimum time between two assignments of a streams group.",
    )


# The properties of a group (resources of type GROUP), which override those of the broker. Kafka: GroupConfig (4.3).


_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)(?:\.(?P<f>\d{1,9}))?S)?)?\Z"
)
_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def duration_ms(offset_reset: str) -> int | None:
    """Return the duration of by_duration:PnDTnHnMn.nS in ms; None for another text."""
    match = _DURATION.match(offset_reset.removeprefix(_BY_DURATION))
    if not offset_reset.startswith(_BY_DURATION) or match is None or not any(match.groups()):
        return None
    milliseconds = sum(int(match[unit]) * size for unit, size in _MS.items() if match[unit])
    return milliseconds + int((match["f"] or "").ljust(3, "0")[:3])


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Every property of a group with the value in force.  The defaults are those of an unconfigured broker."""

    share_session_timeout_ms: int = prop(
        "share.session.timeout.ms",
        INT,
        in_range(1, 3600000),
        default=45000,
        server="group.share.session.timeout.ms",
        doc="Time after which a member of the share group without heartbeats is removed.",
    )
    share_heartbeat_interval_ms: int = prop(
        "share.heartbeat.interval.ms",
        INT,
        in_range(1, 3600000),
        default=5000,
        server="group.share.heartbeat.interval.ms",
        doc="Interval of the heartbeats of members of the share group.",
    )
    share_record_lock_duration_ms: int = prop(
        "share.record.lock.duration.ms",
        INT,
        in_range(1000, 3600000),
        default=30000,
        server="group.share.record.lock.duration.ms",
        doc="Time that a member of the share group has to acknowledge a record.",
    )
    share_delivery_count_limit: int = prop(
        "share.delivery.count.limit",
        INT,
        in_range(2, 10),
        default=5,
        server="group.share.delivery.count.limit",
        doc="How often a record is handed out to members of the share group before it is archived.",
    )
    share_partition_max_record_locks: int = prop(
        "share.partition.max.record.locks",
        INT,
        in_range(100, 10000),
        default=2000,
        server="group.share.partition.max.record.locks",
        doc="Maximum number of records of a partition that members of the share group have at a time.",
    )
    share_auto_offset_reset: str = prop(
        "share.auto.offset.reset",
        STRING,
        Rule(
            "earliest, latest or by_duration:DURATION, such as by_duration:PT1H",
            lambda text: text in {"earliest", "latest"} or duration_ms(text) is not None,
        ),
        default="latest",
        doc="Where a share group begins with a partition that it has not read yet.",
    )
    share_isolation_level: str = prop(
        "share.isolation.level",
        STRING,
        one_of("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        doc="Whether members of the share group get records of open and aborted transactions.",
    )
    share_renew_acknowledge_enable: bool = prop(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        default=True,
        doc="Whether members of the share group may renew the locks of records (KIP-1222).",
    )
    streams_session_timeout_ms: int = prop(
        "streams.session.timeout.ms",
        INT,
        in_range(1, 3600000),
        default=45000,
        server="group.streams.session.timeout.ms",
        doc="Time after which a member of the streams group without heartbeats is removed.",
    )
    streams_heartbeat_interval_ms: int = prop(
        "streams.heartbeat.interval.ms",
        INT,
        in_range(1, 3600000),
        default=5000,
        server="group.streams.heartbeat.interval.ms",
        doc="Interval of the heartbeats of members of the streams group.",
    )
    streams_num_standby_replicas: int = prop(
        "streams.num.standby.replicas",
        INT,
        in_range(0, 10),
        default=0,
        server="group.streams.num.standby.replicas",
        doc="Number of standby tasks of each task with state.",
    )
    streams_initial_rebalance_delay_ms: int = prop(
        "streams.initial.rebalance.delay.ms",
        INT,
        in_range(0, 3600000),
        default=3000,
        server="group.streams.initial.rebalance.delay.ms",
        doc="Delay of the first assignment of the streams group, for more members to join.",
    )
    streams_assignment_interval_ms: int = prop(
        "streams.assignment.interval.ms",
        INT,
        in_range(0, 3600000),
        default=1000,
        server="group.streams.assignment.interval.ms",
        doc="Minimum time between two assignments of the streams group.",
    )


GROUP_PROPERTIES: Mapping[str, Property] = properties_of(GroupConfig)


def check_group_overrides(overrides: Mapping[str, str]) -> None:
    """Raise ApiError(INVALID_CONFIG) for an unknown name or an invalid value."""
    for name, text in overrides.items():
        described = GROUP_PROPERTIES.get(name)
        if described is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            described.parse(text)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value {text} for {name}: it {error}") from None


def group_config(broker: object, overrides: Mapping[str, str]) -> tuple[GroupConfig, list[str]]:
    """Return the values in force for a group with these stored overrides, and the problems of those to ignore.

    `broker` is the BrokerConfig, whose module needs this one.
    """
    values = {}
    for entry in fields(GroupConfig):
        described: Property = entry.metadata["property"]
        if described.server is not None:
            values[described.attribute] = getattr(broker, described.server.replace(".", "_"))
    problems = []
    for name, text in overrides.items():
        known = GROUP_PROPERTIES.get(name)
        try:
            if known is None:
                raise ValueError("is unknown")
            values[known.attribute] = known.parse(text)
        except ValueError as error:
            problems.append(f"{name}={text}: it {error}")
    return replace(GroupConfig(), **values), problems
