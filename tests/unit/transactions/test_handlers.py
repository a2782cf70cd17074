"""The handlers of the transaction APIs in every version, from request bytes to response bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.model import GROUP_METADATA_TOPIC, TopicPartition, partition_for_key
from kctl.protocol import codec, registry
from kctl.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kctl.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from kctl.protocol.apis.describe_transactions import DescribeTransactionsRequest
from kctl.protocol.apis.end_txn import EndTxnRequest
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest
from kctl.protocol.apis.list_transactions import ListTransactionsRequest
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kctl.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kctl.records.build import build_batch
from kctl.records.control import ControlType, EndTransactionMarker
from kctl.records.header import Record, parse_header
from kctl.server.coordination.transactions.partition_markers import PartitionMarkers
from kctl.server.handlers.add_offsets_to_txn import AddOffsetsToTxnHandler
from kctl.server.handlers.add_partitions_to_txn import AddPartitionsToTxnHandler
from kctl.server.handlers.describe_producers import DescribeProducersHandler
from kctl.server.handlers.describe_transactions import DescribeTransactionsHandler
from kctl.server.handlers.end_txn import EndTxnHandler
from kctl.server.handlers.init_producer_id import InitProducerIdHandler
from kctl.server.handlers.list_transactions import ListTransactionsHandler
from kctl.server.handlers.produce import ProduceHandler
from kctl.server.handlers.txn_offset_commit import TxnOffsetCommitHandler
from kctl.server.handlers.write_txn_markers import WriteTxnMarkersHandler
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.throttles import BrokerTraffic
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.record_work import RecordWork
from kctl.storage.log.watchers import Watchers
from kctl.storage.state.producer_state import ProducerState
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups import hosting as group_hosting
from tests.unit.groups.world import protocols
from tests.unit.transactions.hosting import Host
from tests.unit.transactions.world import T0

NONE = ErrorCode.NONE
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, partition_for_key("g", 4))


class Topics:
    """ports.TopicExistence: topic "t" has partitions 0 and 1."""

    def has_partition(self, topic: str, partition: int) -> bool:
        return topic == "t" and partition in {0, 1}


class Replicas:
    """The part of a replica manager that DescribeProducers and Produce use: ("t", 0) exists, ("t", 1) does not."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.traffic = BrokerTraffic()
        self.produced: list[bytes] = []

    def partition(self, topic: str, index: int) -> Any:
        if topic != "t":
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if index != 0:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = SimpleNamespace(producer_state=self.state, awaits_flush=False)
        return SimpleNamespace(log=log, topic_partition=T0, watchers=Watchers())

    def append(self, _partition: Any, records: memoryview, **_options: Any) -> Any:
        self.produced.append(bytes(records))
        return SimpleNamespace(base_offset=0, last_offset=0, log_append_time_ms=-1, log_start_offset=0)

    def partitions_moved(self, partitions: Iterable[TopicPartition]) -> None:
        pass


class Broker:
    """All handlers over one transaction and one group coordinator, called through encoded requests and responses."""

    def __init__(self, loop: SimLoop) -> None:
        self.host = Host(loop)
        self.groups = group_hosting.Host(loop, group_initial_rebalance_delay_ms=0, offset_metadata_max_bytes=10)
        self.replicas = Replicas()
        coordinator, clock = self.host.coordinator, self.host.clock
        markers = PartitionMarkers(self.host.partitions, self.groups.coordinator, clock, timeout_ms=1)
        self._handlers: dict[str, Any] = {
            "InitProducerId": InitProducerIdHandler(self.host.producer_ids, coordinator),  # type: ignore[arg-type]
            "AddPartitionsToTxn": AddPartitionsToTxnHandler(coordinator, Topics()),
            "AddOffsetsToTxn": AddOffsetsToTxnHandler(coordinator, lambda: 4),
            "EndTxn": EndTxnHandler(coordinator),
            "TxnOffsetCommit": TxnOffsetCommitHandler(self.groups.coordinator, Topics(), clock),
            "WriteTxnMarkers": WriteTxnMarkersHandler(markers),
            "DescribeProducers": DescribeProducersHandler(self.replicas),  # type: ignore[arg-type]
            "DescribeTransactions": DescribeTransactionsHandler(coordinator),
            "ListTransactions": ListTransactionsHandler(coordinator),
            "Produce": ProduceHandler(self.replicas, None, RecordWork(), clock, MetadataCache()),  # type: ignore[arg-type]
        }

    async def call(self, request: Any, version: int) -> Any:
        api = registry.api_of(type(request))
        request, _ = codec.decode(type(request), codec.encode_bytes(request, version), version)
        response = self._handlers[api.kafka_name].handle(request, context(version))
        if isinstance(response, Awaitable):
            response = await response
        return codec.decode(api.response, codec.encode_bytes(response, version), version)[0]

    async def producer(self, transactional_id: str = "id") -> dict[str, Any]:
        """The fields of further requests of a producer."""
        started = await self.call(init(transactional_id), 2)
        assert started.error_code == NONE
        return {
            "transactional_id": transactional_id,
            "producer_id": started.producer_id,
            "producer_epoch": started.producer_epoch,
        }


def context(version: int) -> RequestContext:
    return RequestContext(version, 1, "client", Peer("/127.0.0.1", "PLAINTEXT"))


def init(transactional_id: str | None = "id", **options: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000, **options)


def add(producer: dict[str, Any], *partitions: tuple[str, int]) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions]
    return AddPartitionsToTxnRequest(topics=topics, **producer)


def txn_commit(
    producer: dict[str, Any], *partitions: tuple[str, int], metadata: str | None = "m", **options: Any
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        group_id=options.pop("group_id", "g"),
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=5, committed_metadata=metadata
                    )
                ],
            )
            for topic, index in partitions
        ],
        **producer,
        **options,
    )


def on_a_broker(play: Callable[[Broker], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        broker = Broker(loop)
        await broker.host.start()
        await broker.groups.start()
        await play(broker)
        await broker.host.coordinator.stop()
        await broker.groups.coordinator.stop()

    simulate(main, seed=1)


def errors_of(response: Any) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def results_of(response: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, result.partition_index, result.error_code)
        for topic in response.results
        for result in topic.results
    ]


async def fenced_producer(broker: Broker) -> dict[str, Any]:
    old = await broker.producer()
    await broker.producer()
    return old


class TestInitProducerId:
    @pytest.mark.parametrize("version", range(5))
    def test_of_every_version_with_and_without_a_transactional_id(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            idempotent = await broker.call(init(None), version)
            assert (idempotent.error_code, idempotent.producer_epoch) == (NONE, 0)
            first = await broker.call(init(), version)
            again = await broker.call(init(), version)
            assert (first.error_code, first.producer_epoch) == (NONE, 0)
            assert (again.producer_id, again.producer_epoch) == (first.producer_id, 1)
            assert idempotent.producer_id != first.producer_id

        on_a_broker(play)

    @pytest.mark.parametrize(
        ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
    )
    def test_fenced_producer_gets_an_error_of_its_request_version(self, version: int, code: ErrorCode) -> None:
        async def play(broker: Broker) -> None:
            old = await fenced_producer(broker)
            expected = {"producer_id": old["producer_id"], "producer_epoch": old["producer_epoch"]}
            reply = await broker.call(init(**expected), version)
            assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (code, -1, -1)

        on_a_broker(play)

    @pytest.mark.parametrize("half", [{"producer_id": 3}, {"producer_epoch": 3}])
    @pytest.mark.parametrize("transactional_id", [None, "id"])
    def test_producer_id_without_epoch_or_epoch_without_id_is_an_invalid_request(
        self, half: dict[str, int], transactional_id: str | None
    ) -> None:
        async def play(broker: Broker) -> None:
            reply = await broker.call(init(transactional_id, **half), 3)
            assert reply.error_code == ErrorCode.INVALID_REQUEST

        on_a_broker(play)

    def test_without_zookeeper_no_producer_ids_are_assigned(self) -> None:
        async def play(broker: Broker) -> None:
            broker.host.producer_ids.is_lost = True
            for transactional_id in (None, "id"):
                reply = await broker.call(init(transactional_id), 4)
                assert (reply.error_code, reply.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)

        on_a_broker(play)

    def test_empty_transactional_id_is_not_treated_as_null(self) -> None:
        async def play(broker: Broker) -> None:
            assert (await broker.call(init(""), 4)).error_code == ErrorCode.INVALID_REQUEST

        on_a_broker(play)


class TestAddPartitionsToTxn:
    @pytest.mark.parametrize("version", range(4))
    def test_every_version_succeeds(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            reply = await broker.call(add(producer, ("t", 0), ("t", 1)), version)
            assert results_of(reply) == [("t", 0, NONE), ("t", 1, NONE)]
            assert broker.host.state() == "Ongoing"

        on_a_broker(play)

    @pytest.mark.parametrize("version", range(4))
    def test_one_invalid_partition_prevents_adding_the_others(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            requested = (("t", 0), ("nowhere", 0), (GROUP_METADATA_TOPIC, 0))
            assert results_of(await broker.call(add(producer, *requested), version)) == [
                ("t", 0, ErrorCode.OPERATION_NOT_ATTEMPTED),
                ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (GROUP_METADATA_TOPIC, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ]
            assert broker.host.state() == "Empty"

        on_a_broker(play)

    @pytest.mark.parametrize(
        ("version", "code"),
        [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED), (3, ErrorCode.PRODUCER_FENCED)],
    )
    def test_fenced_producer_gets_an_error_for_every_partition(self, version: int, code: ErrorCode) -> None:
        async def play(broker: Broker) -> None:
            old = await fenced_producer(broker)
            reply = await broker.call(add(old, ("t", 0), ("t", 1)), version)
            assert results_of(reply) == [("t", 0, code), ("t", 1, code)]

        on_a_broker(play)


class TestAddOffsetsToTxn:
    @pytest.mark.parametrize("version", range(4))
    def test_every_version_succeeds(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            reply = await broker.call(AddOffsetsToTxnRequest(group_id="g", **producer), version)
            assert reply.error_code == NONE
            described = broker.host.coordinator.describe("id")[1]
            assert described is not None
            assert described.partitions == (OFFSETS,)

        on_a_broker(play)

    @pytest.mark.parametrize(
        ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
    )
    def test_fenced_producer_gets_the_error_of_the_version(self, version: int, code: ErrorCode) -> None:
        async def play(broker: Broker) -> None:
            old = await fenced_producer(broker)
            reply = await broker.call(AddOffsetsToTxnRequest(group_id="g", **old), version)
            assert reply.error_code == code

        on_a_broker(play)


class TestEndTxn:
    @pytest.mark.parametrize("committed", [True, False])
    @pytest.mark.parametrize("version", range(4))
    def test_every_version_succeeds(self, version: int, committed: bool) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            await broker.call(add(producer, ("t", 0)), 0)
            reply = await broker.call(EndTxnRequest(committed=committed, **producer), version)
            assert reply.error_code == NONE
            await asyncio.sleep(0.01)
            assert broker.host.state() == ("CompleteCommit" if committed else "CompleteAbort")

        on_a_broker(play)

    @pytest.mark.parametrize(
        ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
    )
    def test_fenced_producer_gets_the_error_of_the_version(self, version: int, code: ErrorCode) -> None:
        async def play(broker: Broker) -> None:
            old = await fenced_producer(broker)
            reply = await broker.call(EndTxnRequest(committed=True, **old), version)
            assert reply.error_code == code

        on_a_broker(play)

    @pytest.mark.parametrize("version", range(4))
    def test_ending_without_a_transaction_is_refused(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            reply = await broker.call(EndTxnRequest(committed=True, **producer), version)
            assert reply.error_code == ErrorCode.INVALID_TXN_STATE

        on_a_broker(play)


def offset_of(broker: Broker, *, require_stable: bool = False) -> tuple[ErrorCode, int]:
    _, found = broker.groups.coordinator.committed("g", [T0], require_stable=require_stable)
    return found[T0][0], found[T0][1].offset


async def marker_arrives(broker: Broker, producer: dict[str, Any], *, committed: bool, version: int = 1) -> Any:
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer["producer_id"],
                producer_epoch=producer["producer_epoch"],
                transaction_result=committed,
                topics=[WritableTxnMarkerTopic(name=OFFSETS.topic, partition_indexes=[OFFSETS.partition])],
                coordinator_epoch=0,
            )
        ]
    )
    reply = await broker.call(request, version)
    await asyncio.sleep(0.001)
    return reply


class TestTxnOffsetCommit:
    @pytest.mark.parametrize("committed", [True, False])
    @pytest.mark.parametrize("version", range(4))
    def test_commit_is_visible_after_a_commit_marker_only(self, version: int, committed: bool) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            reply = await broker.call(txn_commit(producer, ("t", 0)), version)
            assert errors_of(reply) == [NONE]
            assert offset_of(broker) == (NONE, -1)
            assert offset_of(broker, require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            await marker_arrives(broker, producer, committed=committed)
            assert offset_of(broker, require_stable=True) == (NONE, 5 if committed else -1)

        on_a_broker(play)

    def test_appended_batch_carries_the_producer_id_and_epoch(self) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            await broker.call(txn_commit(producer, ("t", 0)), 3)
            (batch,) = broker.groups.log.batches[OFFSETS.partition]
            header = parse_header(batch)
            assert header.is_transactional
            assert not header.is_control
            assert (header.producer_id, header.producer_epoch) == (producer["producer_id"], producer["producer_epoch"])

        on_a_broker(play)

    @pytest.mark.parametrize("version", range(4))
    def test_unknown_partition_and_too_much_metadata_do_not_block_others(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            requested = txn_commit(producer, ("t", 0), ("nowhere", 1), ("t", 1))
            requested.topics[2].partitions[0].committed_metadata = "m" * 11
            assert errors_of(await broker.call(requested, version)) == [
                NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ]
            nowhere = await broker.call(txn_commit(producer, ("nowhere", 1)), version)
            assert errors_of(nowhere) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            too_large = await broker.call(txn_commit(producer, ("t", 0), metadata="m" * 11), version)
            assert errors_of(too_large) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]

        on_a_broker(play)

    @pytest.mark.parametrize(
        ("version", "code"),
        [
            (0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ],
    )
    def test_old_clients_do_not_get_coordinator_load_in_progress(self, version: int, code: ErrorCode) -> None:
        """KAFKA-7296"""

        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            broker.groups.log.gate = asyncio.Event()
            broker.groups.coordinator.partitions.on_leader(OFFSETS.partition, 7)
            assert errors_of(await broker.call(txn_commit(producer, ("t", 0)), version)) == [code]

        on_a_broker(play)

    def test_member_of_an_older_generation_is_refused(self) -> None:
        """KIP-447: so that two members of different generations cannot both commit."""

        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            joined = await group_hosting.settled(broker.groups.join("g", "", protocols=protocols("range")))
            member = {"member_id": joined.member_id, "generation_id": joined.generation}

            async def error(**options: Any) -> int:
                (code,) = errors_of(await broker.call(txn_commit(producer, ("t", 0), **options), 3))
                return code

            assert await error(**member) == NONE
            assert await error(**member | {"generation_id": joined.generation - 1}) == ErrorCode.ILLEGAL_GENERATION
            assert await error(**member | {"generation_id": joined.generation + 1}) == ErrorCode.ILLEGAL_GENERATION
            assert await error(**member | {"member_id": "unknown-member"}) == ErrorCode.UNKNOWN_MEMBER_ID
            assert await error(generation_id=joined.generation + 1) == ErrorCode.ILLEGAL_GENERATION
            assert await error() == NONE, "producers of before KIP-447 name neither"

        on_a_broker(play)

    def test_static_member_that_was_replaced_is_fenced(self) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            await group_hosting.settled(broker.groups.join("g", "", group_instance_id="i"))
            reply = await broker.call(
                txn_commit(producer, ("t", 0), member_id="old", group_instance_id="i", generation_id=1), 3
            )
            assert errors_of(reply) == [ErrorCode.FENCED_INSTANCE_ID]

        on_a_broker(play)

    def test_empty_group_id_is_invalid(self) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            reply = await broker.call(txn_commit(producer, ("t", 0), group_id=""), 3)
            assert errors_of(reply) == [ErrorCode.INVALID_GROUP_ID]

        on_a_broker(play)

    def test_append_error_is_returned(self) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            for error, reported in (
                (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
                (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
                (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
                (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
            ):
                broker.groups.log.error = error
                assert errors_of(await broker.call(txn_commit(producer, ("t", 0)), 3)) == [reported]
            assert offset_of(broker, require_stable=True) == (NONE, -1)
            assert (await broker.groups.coordinator.groups())[1] == []

        on_a_broker(play)


class TestWriteTxnMarkers:
    @pytest.mark.parametrize("version", range(2))
    def test_of_every_version_grouped_by_producer(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            broker.host.partitions.errors = {TopicPartition("u", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
            request = WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=producer_id,
                        producer_epoch=1,
                        transaction_result=True,
                        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in names],
                        coordinator_epoch=3,
                    )
                    for producer_id, names in ((1, "t"), (2, "tu"), (1, "u"))
                ]
            )
            reply = await broker.call(request, version)
            assert [
                (marker.producer_id, [(topic.name, topic.partitions[0].error_code) for topic in marker.topics])
                for marker in reply.markers
            ] == [
                (1, [("t", NONE), ("u", ErrorCode.NOT_LEADER_OR_FOLLOWER)]),
                (2, [("t", NONE), ("u", ErrorCode.NOT_LEADER_OR_FOLLOWER)]),
            ]

        on_a_broker(play)

    @pytest.mark.parametrize("version", range(2))
    def test_empty_request_gets_an_empty_response(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            assert (await broker.call(WriteTxnMarkersRequest(markers=[]), version)).markers == []

        on_a_broker(play)


class TestDescriptions:
    def test_described_partition_lists_its_producers(self) -> None:
        async def play(broker: Broker) -> None:
            records = [Record(0, 9, b"k", b"v")]
            batch = build_batch(
                records, producer_id=7, producer_epoch=3, base_sequence=4, base_offset=20, is_transactional=True
            )
            header = parse_header(batch)
            broker.replicas.state.append(header)
            other = parse_header(
                build_batch(records, producer_id=8, producer_epoch=0, base_offset=21, is_transactional=True)
            )
            broker.replicas.state.append_marker(other, EndTransactionMarker(ControlType.ABORT, 6))
            requested = [TopicRequest(name=name, partition_indexes=[0, 1]) for name in ("t", "nowhere", "?")]
            reply = await broker.call(DescribeProducersRequest(topics=requested), 0)
            assert errors_of(reply) == [
                NONE,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
                *[ErrorCode.INVALID_TOPIC_EXCEPTION] * 2,
            ]
            writing, ended = reply.topics[0].partitions[0].active_producers
            assert (writing.producer_id, writing.producer_epoch, writing.last_sequence) == (7, 3, 4)
            assert (writing.last_timestamp, writing.coordinator_epoch, writing.current_txn_start_offset) == (9, -1, 20)
            assert (ended.producer_id, ended.last_sequence) == (8, -1)
            assert (ended.coordinator_epoch, ended.current_txn_start_offset) == (6, -1)

        on_a_broker(play)

    def test_described_transaction_has_its_state_and_partitions(self) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer()
            await broker.call(add(producer, ("t", 0), ("t", 1)), 3)
            request = DescribeTransactionsRequest(transactional_ids=["id", "nobody", ""])
            found, nobody, nameless = (await broker.call(request, 0)).transaction_states
            assert (found.error_code, found.transactional_id, found.transaction_state) == (NONE, "id", "Ongoing")
            assert (found.producer_id, found.producer_epoch) == (producer["producer_id"], 0)
            assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (
                60_000,
                broker.host.clock.now_ms(),
            )
            assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
            assert (nobody.error_code, nobody.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "nobody")
            assert nameless.error_code == ErrorCode.INVALID_REQUEST

        on_a_broker(play)

    def test_listed_transactions_match_the_filters(self) -> None:
        async def play(broker: Broker) -> None:
            producer = await broker.producer("a")
            await broker.call(add(producer, ("t", 0)), 3)
            await broker.producer("b")
            request = ListTransactionsRequest(state_filters=["Ongoing", "Sleepy"], producer_id_filters=[])
            reply = await broker.call(request, 0)
            assert (reply.error_code, reply.unknown_state_filters) == (NONE, ["Sleepy"])
            assert [
                (state.transactional_id, state.producer_id, state.transaction_state)
                for state in reply.transaction_states
            ] == [("a", producer["producer_id"], "Ongoing")]

        on_a_broker(play)

    def test_listed_transactions_match_the_pattern_as_a_whole(self) -> None:
        async def play(broker: Broker) -> None:
            names = ["orders-1", "orders-2", "my-orders-1", "\u00fcber-1"]
            for name in names:
                await broker.producer(name)
            for pattern, expected in (
                ("orders-.", names[:2]),
                (".*-1", [names[0], *names[2:]]),
                ("\u00fc.*", names[3:]),
                (".ber-[^2]", names[3:]),
                ("orders", []),
                ("", names),
                (None, names),
            ):
                request = ListTransactionsRequest(
                    state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
                )
                reply = await broker.call(request, 2)
                listed = [state.transactional_id for state in reply.transaction_states]
                assert (reply.error_code, sorted(listed)) == (NONE, sorted(expected)), pattern
            for pattern, code in (
                ("(", ErrorCode.INVALID_REGULAR_EXPRESSION),
                ("(a|b|c|d|e|f|g|h){999}", ErrorCode.INVALID_REGULAR_EXPRESSION),
            ):
                request = ListTransactionsRequest(
                    state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
                )
                assert (await broker.call(request, 2)).error_code == code

        on_a_broker(play)


def produce(*batches: bytes, transactional_id: str | None = None, acks: int = 1) -> ProduceRequest:
    partitions = [PartitionProduceData(index=0, records=batch) for batch in batches]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[partition]) for partition in partitions],
    )


def batch_of(producer_id: int, *, is_transactional: bool = True) -> bytes:
    return build_batch(
        [Record(0, 1, b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=is_transactional,
    )


class TestProduce:
    @pytest.mark.parametrize("version", range(3, 10))
    def test_transactional_records_are_taken_with_their_transactional_id(self, version: int) -> None:
        async def play(broker: Broker) -> None:
            reply = await broker.call(produce(batch_of(1), batch_of(1), transactional_id="id"), version)
            assert [response.partition_responses[0].error_code for response in reply.responses] == [NONE, NONE]
            assert len(broker.replicas.produced) == 2

        on_a_broker(play)

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (produce(batch_of(1), batch_of(1)), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (
                produce(batch_of(-1, is_transactional=False), batch_of(1)),
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ),
            (produce(batch_of(1), batch_of(2), transactional_id="id"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ],
        ids=["no id", "no id for some", "two producers"],
    )
    def test_request_mixing_transactional_and_other_batches_is_refused(self, request_: Any, code: ErrorCode) -> None:
        async def play(broker: Broker) -> None:
            reply = await broker.call(request_, 9)
            assert [response.partition_responses[0].error_code for response in reply.responses] == [code, code]
            assert broker.replicas.produced == []

        on_a_broker(play)

    def test_idempotent_records_need_no_transactional_id(self) -> None:
        async def play(broker: Broker) -> None:
            batches = [batch_of(1, is_transactional=False), batch_of(2, is_transactional=False)]
            reply = await broker.call(produce(*batches), 9)
            assert [response.partition_responses[0].error_code for response in reply.responses] == [NONE, NONE]

        on_a_broker(play)


def of_brokers(
    producer: dict[str, Any], *partitions: tuple[str, int], verify: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions],
        verify_only=verify,
        **producer,
    )


def errors_by_transaction(response: Any) -> list[tuple[str, list[int]]]:
    return [
        (
            transaction.transactional_id,
            [partition.error_code for topic in transaction.topic_results for partition in topic.results],
        )
        for transaction in response.results_by_transaction
    ]


@pytest.mark.parametrize(
    ("version", "absent"), [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_brokers_add_and_verify_partitions_of_several_transactions(version: int, absent: ErrorCode) -> None:
    async def play(broker: Broker) -> None:
        one, two = await broker.producer("one"), await broker.producer("two")
        transactions = [of_brokers(one, ("t", 0)), of_brokers(two, ("t", 1), ("t", 9))]
        added = await broker.call(AddPartitionsToTxnRequest(transactions=transactions), version)
        assert errors_by_transaction(added) == [
            ("one", [NONE]),
            ("two", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ]
        fenced = {**one, "producer_epoch": one["producer_epoch"] + 1}
        checks = [
            of_brokers(one, ("t", 0), ("t", 1), verify=True),
            of_brokers(two, ("t", 1), verify=True),
            of_brokers({**two, "transactional_id": "nobody"}, ("t", 0), verify=True),
        ]
        verified = await broker.call(AddPartitionsToTxnRequest(transactions=checks), version)
        assert errors_by_transaction(verified) == [
            ("one", [NONE, absent]),
            ("two", [absent]),
            ("nobody", [ErrorCode.INVALID_PRODUCER_ID_MAPPING]),
        ]
        again = AddPartitionsToTxnRequest(transactions=[of_brokers(fenced, ("t", 0), verify=True)])
        assert errors_by_transaction(await broker.call(again, version)) == [("one", [ErrorCode.PRODUCER_FENCED])]
        described = await broker.call(DescribeTransactionsRequest(transactional_ids=["one", "two"]), 0)
        assert [len(state.topics) for state in described.transaction_states] == [1, 0]

    on_a_broker(play)
