"""A broker in memory behind the client's transport: one topic, one partition, and the batches that a test adds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from kctl.client.connections.versions import BrokerVersions
from kctl.client.consuming.list_offsets import LATEST
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kctl.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kctl.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kctl.protocol.registry import all_apis
from kctl.records.batch import iterate_batches

T = TypeVar("T")

ORDERS = TopicPartition("orders", 0)


class FakeBroker:
    """Both the transport and the connection."""

    address = "fake:9092"
    is_open = True

    def __init__(self, *batches: bytes) -> None:
        self.log = b"".join(batches)
        self.log_start = 0
        self.topic_id = UUID(int=1)
        self.leader_epoch = 0
        self.epoch_ends: dict[int, tuple[int, int]] = {}
        """What OffsetForLeaderEpoch returns for an epoch: (epoch, end offset); for others there is none."""
        self.exists = True
        self.topic_error = ErrorCode.NONE
        self.response_bytes = 1
        """Responses contain whole batches up to this size, at least one."""
        self.hidden_from = 1 << 62
        """Fetches return no batch from this offset on."""
        self.aborted: list[tuple[int, int]] = []
        self.fetches: list[int] = []
        self.metadata_requests = 0
        self.before_fetch: Callable[[int], ErrorCode] = lambda offset: ErrorCode.NONE
        self.clock_ms = 0

    @property
    def end(self) -> int:
        """The offset after the last batch."""
        return max((batch.next_offset for batch in iterate_batches(self.log)), default=0)

    @property
    def versions(self) -> BrokerVersions:
        return BrokerVersions({key: (0, api.version_max) for key, api in all_apis().items()})

    async def connect(self, host: str, port: int, **_: Any) -> FakeBroker:
        return self

    async def send(self, request: Any, response_class: type[T], **_: Any) -> Any:
        match request:
            case MetadataRequest():
                self.metadata_requests += 1
                return self._metadata()
            case FetchRequest():
                (wanted,) = request.topics[0].partitions
                return self._fetch(wanted.fetch_offset, wanted.current_leader_epoch)
            case OffsetForLeaderEpochRequest():
                (asked,) = request.topics[0].partitions
                return self._epoch_end(asked.leader_epoch)
            case ListOffsetsRequest():
                is_latest = request.topics[0].partitions[0].timestamp == LATEST
                offset = self.end if is_latest else self.log_start
                found = ListOffsetsPartitionResponse(
                    partition_index=0, error_code=0, offset=offset, timestamp=-1, leader_epoch=self.leader_epoch
                )
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[found])])
        raise AssertionError(request)

    async def post(self, request: object, *, version: int | None = None) -> None: ...

    async def close(self) -> None: ...

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        return [await task for task in work]

    async def sleep(self, duration_ms: int) -> None:
        self.clock_ms += duration_ms

    def monotonic_ms(self) -> int:
        return self.clock_ms

    def _metadata(self) -> MetadataResponse:
        code = self.topic_error if self.exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=7,
            leader_epoch=self.leader_epoch,
            replica_nodes=[7],
            isr_nodes=[7],
        )
        topic = MetadataResponseTopic(
            error_code=code, name="orders", topic_id=self.topic_id, partitions=[partition] if self.exists else []
        )
        broker = MetadataResponseBroker(node_id=7, host="fake", port=9092)
        return MetadataResponse(brokers=[broker], cluster_id="c", controller_id=7, topics=[topic])

    def _epoch_end(self, epoch: int) -> OffsetForLeaderEpochResponse:
        own = {self.leader_epoch: (self.leader_epoch, self.end)}
        found, end = (own | self.epoch_ends).get(epoch, (-1, -1))
        result = EpochEndOffset(error_code=0, partition=0, leader_epoch=found, end_offset=end)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="orders", partitions=[result])])

    def _fetch(self, offset: int, leader_epoch: int) -> FetchResponse:
        self.fetches.append(offset)
        code = self.before_fetch(offset)
        if code is ErrorCode.NONE and leader_epoch not in {-1, self.leader_epoch}:
            code = ErrorCode.FENCED_LEADER_EPOCH
        batches = list(iterate_batches(self.log))
        end = self.end
        if code is ErrorCode.NONE and not self.log_start <= offset <= end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        records = b""
        for batch in batches if code is ErrorCode.NONE else []:
            if self.hidden_from > batch.last_offset >= offset and (not records or len(records) < self.response_bytes):
                records += self.log[batch.position : batch.end]
        aborted = [AbortedTransaction(producer_id=pid, first_offset=first) for first, pid in self.aborted]
        partition = PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=self.log_start,
            aborted_transactions=aborted,
            records=memoryview(records),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])
