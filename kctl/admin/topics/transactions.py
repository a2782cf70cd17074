"""Lists and describes transactions (KIP-664), and finds hanging ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kctl.client.cluster import ClusterClient, CoordinatorType
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.leaders import Outcomes, on_coordinators, on_leaders
from kctl.client.outcome import Outcome, failure_of, outcome_of
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.output.quantities import INT32_MAX
from kctl.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from kctl.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kctl.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# Producer state of partitions (KIP-664), and abort of a single transaction of a producer.


NO_TRANSACTION = -1


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """State of one producer in a partition; -1 for unknown, `txn_start_offset` -1 for no open transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    txn_start_offset: int

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is open in the partition."""
        return self.txn_start_offset != NO_TRANSACTION


@dataclass(frozen=True, slots=True)
class Marker:
    """An abort marker for a transaction in one partition."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


async def describe_producers(
    client: ClusterClient, partitions: Collection[TopicPartition], *, broker: int | None = None
) -> Outcomes[list[ActiveProducer]]:
    """Return the producers of each partition, from its leader or from `broker`, in the order of the response."""

    async def send_to(connection: Connection, tps: list[TopicPartition]) -> Outcomes[list[ActiveProducer]]:
        topics: dict[str, TopicRequest] = {}
        for tp in tps:
            topic = topics.setdefault(tp.topic, TopicRequest(name=tp.topic, partition_indexes=[]))
            topic.partition_indexes.append(tp.partition)
        request = DescribeProducersRequest(topics=list(topics.values()))
        response = await connection.send(request, DescribeProducersResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): _producers(partition)
            for topic in response.topics
            for partition in topic.partitions
        }

    if broker is None:
        return await on_leaders(client, partitions, send_to)
    return await send_to(await client.broker(broker), sorted(partitions))


async def write_abort_marker(client: ClusterClient, marker: Marker) -> Outcome:
    """Make the partition leader abort the transaction, regardless of its coordinator."""
    tp = marker.tp

    async def send_to(connection: Connection, tps: list[TopicPartition]) -> Outcomes[Outcome]:
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=False,
                    topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                    # A transaction that hangs before the first marker of its producer has no coordinator; as in
                    # Kafka's tool, 0 is not above the epoch of any.
                    coordinator_epoch=max(0, marker.coordinator_epoch),
                )
            ]
        )
        response = await connection.send(request, WriteTxnMarkersResponse)
        results = [
            partition.error_code
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        ]
        if not results:
            text = "The broker's response does not contain this partition."
            return dict.fromkeys(tps, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text))
        outcome = outcome_of(str(tp), results[0])
        if not outcome.is_done:
            return dict.fromkeys(tps, ApiError(outcome.error, outcome.message))
        return dict.fromkeys(tps, outcome)

    reply = (await on_leaders(client, [tp], send_to))[tp]
    return Outcome(str(tp), reply.code, str(reply)) if isinstance(reply, ApiError) else reply


def _producers(partition: PartitionResponse) -> list[ActiveProducer] | ApiError:
    if partition.error_code:
        return ApiError(ErrorCode.of(partition.error_code), partition.error_message)
    return [_producer(producer) for producer in partition.active_producers]


def _producer(producer: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.current_txn_start_offset,
    )


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id and the broker that coordinates it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """State of a transactional id; with an error outcome the other fields are empty."""

    outcome: Outcome
    coordinator: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    state: str = ""
    timeout_ms: int = -1
    start_ms: int = -1
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in one partition."""

    tp: TopicPartition
    producer: ActiveProducer
    transactional_id: str | None = None
    """The transactional id of the producer, or None if no coordinator has it."""


async def list_transactions(
    client: ClusterClient, *, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
) -> tuple[list[ListedTransaction], list[Outcome]]:
    """Return the transactional ids of all brokers, and the brokers with an error."""
    metadata = await client.metadata([])
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))

    async def send_to(broker_id: int) -> list[ListedTransaction] | Outcome:
        try:
            connection = await client.broker(broker_id)
            response = await connection.send(request, ListTransactionsResponse)
        except (ApiError, ConnectionLost) as error:
            return failure_of(str(broker_id), error)
        if response.error_code:
            return outcome_of(str(broker_id), response.error_code)
        return [
            ListedTransaction(state.transactional_id, broker_id, state.producer_id, state.transaction_state)
            for state in response.transaction_states
        ]

    listed: list[ListedTransaction] = []
    failed: list[Outcome] = []
    for result in await client.gather([send_to(broker_id) for broker_id in metadata.brokers]):
        if isinstance(result, Outcome):
            failed.append(result)
        else:
            listed.extend(result)
    return listed, failed


async def describe_transactions(client: ClusterClient, transactional_ids: Collection[str]) -> list[Transaction]:
    """Return the state, producer and partitions of transactional ids, by name; unknown ones have
    TRANSACTIONAL_ID_NOT_FOUND.
    """

    async def send_to(connection: Connection, names: list[str]) -> dict[str, Transaction | ApiError]:
        request = DescribeTransactionsRequest(transactional_ids=names)
        response = await connection.send(request, DescribeTransactionsResponse)
        return {state.transactional_id: _described(state, connection.address) for state in response.transaction_states}

    transactions = await on_coordinators(client, transactional_ids, send_to, CoordinatorType.TRANSACTION)
    return [
        Transaction(Outcome(name, transaction.code, str(transaction)))
        if isinstance(transaction, ApiError)
        else transaction
        for name, transaction in transactions.items()
    ]


def _described(state: TransactionState, coordinator: str) -> Transaction | ApiError:
    code = ErrorCode.of(state.error_code)
    if code in COORDINATOR_MOVED:
        return ApiError(code)
    if state.error_code:
        return Transaction(outcome_of(state.transactional_id, state.error_code))
    return Transaction(
        Outcome(state.transactional_id),
        coordinator,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        tuple(sorted(TopicPartition(topic.topic, number) for topic in state.topics for number in topic.partitions)),
    )


FENCING_TIMEOUT_MS = 60_000
"""Timeout of a transactional id whose own one is unknown or out of range: the default of Kafka's producer."""
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States of a transaction that has begun, and whose markers are not written to all partitions."""


async def terminate(client: ClusterClient, transaction: Transaction) -> None:
    """End the transaction of an existing transactional id, and fence its producer.

    The coordinator aborts an open transaction, and completes one that is being committed, before it answers
    InitProducerId.  This is what forceTerminateTransaction of Kafka's Admin does (KIP-939).  An unknown id would be
    created, so that the caller has to know it.  Raises ApiError, CONCURRENT_TRANSACTIONS if the markers are not written
    within the deadline.
    """
    # The coordinator stores the timeout with the id.  One of a two-phase commit is larger than a request may have.
    is_ordinary = 0 < transaction.timeout_ms < INT32_MAX
    name = transaction.outcome.name
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=transaction.timeout_ms if is_ordinary else FENCING_TIMEOUT_MS
    )

    async def send_to(connection: Connection) -> None:
        response = await connection.send(request, InitProducerIdResponse)
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"{name}: {code.description}")

    is_completing = {ErrorCode.CONCURRENT_TRANSACTIONS}
    await client.on_coordinator(name, send_to, CoordinatorType.TRANSACTION, codes=is_completing)


async def find_hanging(
    client: ClusterClient, partitions: Collection[TopicPartition], *, idle_since_ms: int
) -> tuple[list[OpenTransaction], list[Outcome]]:
    """Return the transactions open in one of the partitions, without writes since the given time, and without a
    coordinator.

    Also returns partitions and brokers with an error.  If a broker has an error, no transactions are returned, because
    those that it coordinates would seem to hang.
    """
    candidates: list[OpenTransaction] = []
    failed: list[Outcome] = []
    for tp, result in (await describe_producers(client, partitions)).items():
        if isinstance(result, ApiError):
            failed.append(Outcome(str(tp), result.code, str(result)))
            continue
        by_id = sorted(result, key=lambda producer: producer.producer_id)
        candidates.extend(
            OpenTransaction(tp, producer)
            for producer in by_id
            if producer.has_transaction and producer.last_timestamp_ms < idle_since_ms
        )
    if not candidates:
        return [], failed
    owners, failed_brokers = await _owners(client, {candidate.producer.producer_id for candidate in candidates})
    if failed_brokers:
        return [], failed + failed_brokers
    return [
        OpenTransaction(candidate.tp, candidate.producer, owner.outcome.name if owner else None)
        for candidate in candidates
        if not is_coordinated(candidate, owner := owners.get(candidate.producer.producer_id))
    ], failed


async def owner_of(client: ClusterClient, producer_id: int) -> Transaction | None:
    """Return the transactional id of a producer.  Raises ApiError if a broker has an error."""
    owners, failed_brokers = await _owners(client, {producer_id})
    if failed_brokers:
        raise ApiError(failed_brokers[0].error, f"broker {failed_brokers[0].name}: {failed_brokers[0].message}")
    return owners.get(producer_id)


def is_coordinated(candidate: OpenTransaction, owner: Transaction | None) -> bool:
    """Return whether the coordinator has the transaction in its state and will end it in this partition."""
    return (
        owner is not None and owner.producer_id == candidate.producer.producer_id and candidate.tp in owner.partitions
    )


async def _owners(client: ClusterClient, producer_ids: Collection[int]) -> tuple[dict[int, Transaction], list[Outcome]]:
    """Return the transactional ids by producer id, and the coordinators with an error."""
    listed, failed = await list_transactions(client, producer_ids=sorted(producer_ids))
    described = await describe_transactions(client, [listed_id.transactional_id for listed_id in listed])
    failed += [description.outcome for description in described if not description.outcome.is_done]
    return {description.producer_id: description for description in described if description.outcome.is_done}, failed
