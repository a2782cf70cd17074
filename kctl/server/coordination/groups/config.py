"""The broker properties of the group coordinator, as one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kctl.config.broker import BrokerConfig
from kctl.records.internal.topics import GROUP_METADATA_VALUE_VERSION, OFFSET_COMMIT_VALUE_VERSION
from kctl.server.coordination.consumer_groups.requests import ConsumerGroupSettings
from kctl.server.coordination.share_groups.requests import ShareGroupSettings
from kctl.server.coordination.streams_groups.requests import StreamsGroupSettings
from kctl.server.peers.versions import allows_static_members, group_metadata_value_version, offset_commit_value_version

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Each field is the Kafka property of the same name, which is given beside it where the name differs."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_commit_required_acks: int = -1
    offsets_topic_compression_codec: int = 0
    offset_commit_value_version: int = OFFSET_COMMIT_VALUE_VERSION
    """From inter.broker.protocol.version, as the two below."""
    group_metadata_value_version: int = GROUP_METADATA_VALUE_VERSION
    allows_static_members: bool = True
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    """group.consumer.*"""
    share: Callable[[str], ShareGroupSettings] = field(default=lambda _: ShareGroupSettings())
    """group.share.* and the properties of the group, by group id."""
    streams: Callable[[str], StreamsGroupSettings] = field(default=lambda _: StreamsGroupSettings())
    """group.streams.* and the properties of the group, by group id."""

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        share: Callable[[str], ShareGroupSettings] = lambda _: ShareGroupSettings(),
        streams: Callable[[str], StreamsGroupSettings] = lambda _: StreamsGroupSettings(),
    ) -> GroupConfig:
        """Return the settings in the broker's configuration; the others return those of a share or streams group."""
        protocol_version = config.inter_broker_protocol_version
        return cls(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
            offsets_commit_required_acks=config.offsets_commit_required_acks,
            offsets_topic_compression_codec=config.offsets_topic_compression_codec,
            offset_commit_value_version=offset_commit_value_version(protocol_version),
            group_metadata_value_version=group_metadata_value_version(protocol_version),
            allows_static_members=allows_static_members(protocol_version),
            consumer=ConsumerGroupSettings(
                session_timeout_ms=config.group_consumer_session_timeout_ms,
                heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
                max_size=config.group_consumer_max_size,
                assignors=tuple(config.group_consumer_assignors),
                assignment_interval_ms=config.group_consumer_assignment_interval_ms,
                regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
                migration_policy=config.group_consumer_migration_policy,
                classic_max_size=config.group_max_size,
            ),
            share=share,
            streams=streams,
        )


# Interfaces to the rest of the broker that only the handlers of groups use.


class ConsumerOffsetsInZooKeeper(Protocol):
    """Offsets of consumers older than 0.9: /consumers/GROUP/offsets/TOPIC/PARTITION."""

    async def get(self, group_id: str, topic: str, partition: int) -> int | None:
        """Return the offset; None if nothing is committed.  Raises ZooKeeperError, ApiError(INVALID_GROUP_ID)."""
        ...

    async def set(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Write the offset; create missing nodes.  Raises ZooKeeperError, ApiError(INVALID_GROUP_ID)."""
        ...
