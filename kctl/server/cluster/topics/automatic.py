"""Automatic creation of topics: by auto.create.topics.enable, and the internal topics of the coordinators.

The client gets a retriable error (LEADER_NOT_AVAILABLE or COORDINATOR_NOT_AVAILABLE); meanwhile the topic is created
once, however many clients request it.  Kafka: AutoTopicCreationManager.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from kctl.config.dynamic import ConfigView
from kctl.config.topic import validate_topic_overrides
from kctl.errors import ApiError, ErrorCode, ZooKeeperError
from kctl.limits import Subject, bound
from kctl.model import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    topic_name_problem,
)
from kctl.server.cluster.topics import placement
from kctl.server.cluster.topics.plans import PartitionRoom
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.peers.metadata import MetadataCache
from kctl.server.policies import Policies, TopicCreation
from kctl.server.requests.quotas.accounts import RequestAccount
from kctl.system.environment import Random

AUTO_CREATIONS_MAX = bound(
    Subject.PARTITIONS,
    "automatic topic creations in progress",
    100,
    "topics",
    on_excess="LEADER_NOT_AVAILABLE; the topic is created when a client retries",
)


log = logging.getLogger(__name__)


class AutoTopics:
    """Creates requested topics; `request` starts the creation of one."""

    def __init__(
        self, writer: TopicWriter, metadata: MetadataCache, configs: ConfigView, random: Random, policies: Policies
    ) -> None:
        self._writer = writer
        self._metadata = metadata
        self._configs = configs
        self._random = random
        self._policies = policies
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def request(self, name: str, account: RequestAccount | None = None) -> ErrorCode:
        """Start creating the topic; return LEADER_NOT_AVAILABLE, or the error why it cannot be created.

        The partitions count for the quota of the client whose request creates the topic (KIP-599).
        """
        try:
            if topic_name_problem(name) is not None:
                return ErrorCode.INVALID_TOPIC_EXCEPTION
            self._begin(name, *self._shape(name), account)
        except ApiError as error:
            return error.code
        return ErrorCode.LEADER_NOT_AVAILABLE

    def create(
        self,
        name: str,
        partition_count: int,
        replication_factor: int | None,
        overrides: Mapping[str, str],
        account: RequestAccount | None = None,
    ) -> None:
        """Start creating an internal topic of an application.  Raises ApiError if it cannot be created."""
        placement.check_partition_count(partition_count)
        validate_topic_overrides(overrides)
        factor = self._configs.current.default_replication_factor if replication_factor is None else replication_factor
        self._begin(name, partition_count, factor, overrides, account)

    def _begin(
        self,
        name: str,
        partition_count: int,
        replication_factor: int,
        overrides: Mapping[str, str],
        account: RequestAccount | None,
    ) -> None:
        """Start creating a topic, unless too many are under way.  Raises ApiError."""
        if name in self._under_way or len(self._under_way) >= AUTO_CREATIONS_MAX:
            return
        live = self._metadata.brokers
        try:
            if len(live) < replication_factor:
                message = f"the replication factor {replication_factor} is larger than the number of live brokers"
                raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{message}, {len(live)}")
            PartitionRoom(self._metadata.total_partition_count()).take(partition_count)
            if name not in INTERNAL_TOPICS:
                self._policies.check_creation(
                    TopicCreation(name, partition_count, replication_factor, None, dict(overrides))
                )
            brokers = self._metadata.racks()
            assignment = placement.assign_replicas(brokers, partition_count, replication_factor, self._random)
        except ApiError as error:
            log.warning("cannot create topic for a client, which has to retry topic=%s error=%s", name, error)
            raise
        if account is not None:
            account.count_mutations(partition_count)
        task = asyncio.get_running_loop().create_task(
            self._create(name, assignment, overrides), name=f"create-topic-{name}"
        )
        self._under_way[name] = task
        task.add_done_callback(lambda _: self._under_way.pop(name, None))

    def _shape(self, name: str) -> tuple[int, int, Mapping[str, str]]:
        """Return the number of partitions, the replication factor and the overrides of a topic of this name."""
        config = self._configs.current
        if name == GROUP_METADATA_TOPIC:
            return (
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                    "compression.type": "producer",
                },
            )
        if name == TRANSACTION_STATE_TOPIC:
            return (
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.transaction_state_log_min_isr),
                    "unclean.leader.election.enable": "false",
                },
            )
        if name == SHARE_GROUP_STATE_TOPIC:
            return (
                config.share_coordinator_state_topic_num_partitions,
                config.share_coordinator_state_topic_replication_factor,
                {
                    # The share coordinator deletes what is before the last snapshots.
                    "cleanup.policy": "delete",
                    "retention.ms": "-1",
                    "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
                    "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                    "compression.type": "producer",
                    "unclean.leader.election.enable": "false",
                },
            )
        return config.num_partitions, config.default_replication_factor, {}

    async def _create(self, name: str, assignment: Mapping[int, tuple[int, ...]], overrides: Mapping[str, str]) -> None:
        try:
            await self._writer.create(name, assignment, overrides)
            self._configs.set_topic(name, overrides)
            log.info("automatically created topic=%s partitions=%s", name, len(assignment))
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.warning("cannot create topic for a client, which has to retry topic=%s error=%s", name, error)
        except ZooKeeperError as error:
            log.warning("cannot create topic for a client, which has to retry topic=%s error=%s", name, error)
