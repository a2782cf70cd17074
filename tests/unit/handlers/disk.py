"""A broker's partitions on a real disk: log manager and replica manager, whose leaders the test sets."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from kctl.config.dynamic import ConfigView
from kctl.model import TopicPartition
from kctl.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.apis.update_metadata import UpdateMetadataBroker, UpdateMetadataRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.loop.timer import WheelTimer
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.purgatory import Purgatory
from kctl.storage.config import LogConfig
from kctl.storage.files import Files, RealFiles
from kctl.storage.log_manager import LogManager
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop

BROKER_ID = 0


class Disk:
    """Broker 0 with its logs in `folders`; brokers `live` are in the metadata cache."""

    def __init__(
        self,
        loop: SimLoop,
        *folders: Path,
        live: tuple[int, ...] = (0,),
        properties: Mapping[str, str] | None = None,
        files: Files | None = None,
    ) -> None:
        self.loop = loop
        self.clock = SimClock(loop.time)
        self.configs = ConfigView(properties or {})
        self.purgatory: Purgatory[TopicPartition] = Purgatory(WheelTimer(self.clock, loop))
        self.metadata = MetadataCache()
        self.metadata.update(
            UpdateMetadataRequest(
                controller_id=0,
                controller_epoch=1,
                live_brokers=[UpdateMetadataBroker(id=broker, endpoints=[]) for broker in live],
            )
        )
        self.logs = LogManager(
            [str(folder) for folder in folders],
            files=files or RealFiles(),
            clock=self.clock,
            random=random.Random(1),
        )
        self.logs.load()
        self.replicas = ReplicaManager(
            BROKER_ID,
            logs=self.logs,
            metadata=self.metadata,
            clock=self.clock,
            produce_purgatory=self.purgatory,
            fetch_purgatory=Purgatory(WheelTimer(self.clock, loop)),
            log_config=lambda topic: LogConfig.of(self.configs.topic(topic)),
            lag_time_max_ms=30_000,
            min_insync_replicas=lambda _: 1,
        )
        self._leader_epoch = 0

    def lead(
        self,
        topic: str,
        index: int = 0,
        *,
        leader: int = 0,
        replicas: tuple[int, ...] = (0,),
        isr: tuple[int, ...] | None = None,
    ) -> Partition:
        """The controller makes `leader` the leader of a partition; without `isr` all replicas are in sync."""
        self._leader_epoch += 1
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=self._leader_epoch,
            isr=list(replicas if isr is None else isr),
            partition_epoch=0,
            replicas=list(replicas),
            is_new=True,
        )
        topics = [LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])]
        request = LeaderAndIsrRequest(controller_id=0, controller_epoch=1, type=0, topic_states=topics, live_leaders=[])
        self.replicas.become_leader_or_follower(request)
        return self.replicas.partitions[TopicPartition(topic, index)]

    def append(self, partition: Partition, count: int) -> None:
        """Appends so many batches of one record."""
        for number in range(count):
            batch = bytearray(build_batch([Record(0, self.clock.now_ms(), b"key", b"value %d" % number, ())]))
            self.replicas.append(partition, memoryview(batch), required_acks=1, request_version=9)

    def close(self) -> None:
        self.logs.clean_shutdown()
