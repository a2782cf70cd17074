"""Waits until the records of a Produce request are committed, or flushed; Kafka's DelayedProduce."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.produce import PartitionProduceResponse, ProduceResponse
from kctl.server.replication.partition import Partition


class UncommittedAppend:
    """A partition whose records are not committed or, if `min_insync_replicas` is None, not flushed yet."""

    __slots__ = ("_min_insync_replicas", "partition", "partition_result", "required_offset")

    def __init__(
        self,
        partition: Partition,
        required_offset: int,
        partition_result: PartitionProduceResponse,
        *,
        min_insync_replicas: int | None,
    ) -> None:
        self._min_insync_replicas = min_insync_replicas
        self.partition = partition
        self.required_offset = required_offset
        self.partition_result = partition_result

    def is_settled(self) -> bool:
        """True if the result is known; it is then in the response."""
        partition = self.partition
        if not partition.may_lead:
            self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if not partition.log.log_directory.is_online:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return True
        if self._min_insync_replicas is None:
            return partition.log.settled_end_offset >= self.required_offset
        if partition.high_watermark < self.required_offset:
            return False
        if len(partition.isr) < self._min_insync_replicas:
            self.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def fail(self, code: ErrorCode) -> None:
        self.partition_result.error_code = code
        self.partition_result.base_offset = -1
        self.partition_result.log_append_time_ms = -1


class DelayedProduce:
    """A produce request with acks=-1 that waits until all its partitions are complete."""

    def __init__(self, response: ProduceResponse, appended: list[UncommittedAppend]) -> None:
        self.future: asyncio.Future[ProduceResponse] | None = None
        self._response = response
        self._unsettled: dict[TopicPartition, list[UncommittedAppend]] = {}
        for waiting in appended:
            self._unsettled.setdefault(waiting.partition.topic_partition, []).append(waiting)

    def try_complete(self, changed: Collection[TopicPartition]) -> bool:
        """Completes if all partitions are complete."""
        for topic_partition in changed:
            unsettled = [each for each in self._unsettled.pop(topic_partition, ()) if not each.is_settled()]
            if unsettled:
                self._unsettled[topic_partition] = unsettled
        if self._unsettled:
            return False
        self._respond()
        return True

    def on_timeout(self) -> None:
        """Completes; partitions that are not complete get REQUEST_TIMED_OUT."""
        for unsettled in self._unsettled.values():
            for waiting in unsettled:
                waiting.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._respond()

    def _respond(self) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(self._response)
