"""Asks the transaction coordinator whether a partition is in the transaction of its records, before the first of them.

Without that, records that arrive after the end of their transaction would begin one that never ends (KIP-890).  Clients
of version 2 do not add partitions: the leader of the partition adds it.  For older ones it is only verified.  Both are
done while transaction.version is 2, at which every broker answers these questions.

Requests to another broker wait for the one in flight, and are sent together.  The result is no longer valid if a marker
was written meanwhile (`Verification.is_outdated`): the transaction that was verified has ended.  This does not apply to
clients of version 2, whose next transaction has another epoch, which the partition checks.

Owner: event loop.  Kafka: AddPartitionsToTxnManager, ReplicaManager.maybeSendPartitionsToTransactionCoordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.limits import Subject, bound
from kctl.model import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TopicPartition, partition_for_key
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kctl.server.coordination.replies import result_of
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.events import VERSION_WITH_RAISED_EPOCHS
from kctl.server.coordination.transactions.ports import PartitionLeaders, Peers, TransactionsInPartitions
from kctl.server.peers.connections import Purpose

log = logging.getLogger(__name__)

WAITING_MAX = bound(
    Subject.COORDINATION,
    "transactions that wait until the coordinator on another broker has verified their partitions",
    10_000,
    "transactions",
    on_excess="NOT_ENOUGH_REPLICAS, or COORDINATOR_NOT_AVAILABLE for offsets, which clients retry",
)
TRANSACTIONS_PER_REQUEST = 500
REQUEST_VERSION = 5
RETRY_S = 0.02
RETRIES = 5
"""How often the end of the previous transaction is waited for: add.partitions.to.txn.retry.backoff.max.ms of 100 ms."""

Errors = Mapping[TopicPartition, ErrorCode]


class Question(NamedTuple):
    """The partitions of a transaction that are to be added or verified."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]
    adds: bool
    """Whether the partitions are added, for a client of version 2, or only verified."""


class Verification:
    """The results for one request, NONE for the partitions that are in the transaction."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.errors: Errors = {}
        self.is_outdated = False
        """Whether a marker of the producer was written to one of the partitions since the question was asked."""


class TransactionVerifier:
    """Verifies partitions for the handlers of this broker."""

    def __init__(
        self,
        broker_id: int,
        *,
        coordinator: TransactionCoordinator,
        partitions: TransactionsInPartitions,
        leaders: PartitionLeaders,
        state_partitions: Callable[[], int | None],
        peers: Peers,
        level: Callable[[], int],
        verifies_older_clients: bool,
    ) -> None:
        """`state_partitions` returns the partition count of `__transaction_state`, None if it does not exist; `level`
        that of transaction.version.  `verifies_older_clients`: transaction.partition.verification.enable.
        """
        self._broker_id = broker_id
        self._coordinator = coordinator
        self.may_begin = partitions.may_begin
        self._leaders = leaders
        self._state_partitions = state_partitions
        self._peers = peers
        self._level = level
        self._verifies_older_clients = verifies_older_clients
        self._channels: dict[int, _Channel] = {}
        self._pending: dict[tuple[TopicPartition, int], set[Verification]] = {}
        """Verifications by partition and producer id, until their request is performed."""

    def is_needed(self, *, adds: bool) -> bool:
        """Return whether a transaction that is not open in a partition has to be verified."""
        return self._level() >= VERSION_WITH_RAISED_EPOCHS and (adds or self._verifies_older_clients)

    async def verify(self, question: Question) -> Verification:
        """Ask the coordinator; the caller calls `done` when it has used the result."""
        verification = Verification(question)
        for key in _keys(question):
            self._pending.setdefault(key, set()).add(verification)
        try:
            for _ in range(RETRIES):
                verification.errors = await self._ask(question)
                if not question.adds or ErrorCode.CONCURRENT_TRANSACTIONS not in verification.errors.values():
                    break
                await asyncio.sleep(RETRY_S)
        except BaseException:
            self.done(verification)
            raise
        return verification

    def done(self, verification: Verification) -> None:
        """Note that the result is not used any more."""
        for key in _keys(verification.question):
            waiting = self._pending.get(key)
            if waiting is not None:
                waiting.discard(verification)
                if not waiting:
                    del self._pending[key]

    def marker_written(self, partition: TopicPartition, producer_id: int) -> None:
        """Note that the transaction of a producer has ended in a partition."""
        for verification in self._pending.get((partition, producer_id), ()):
            verification.is_outdated = not verification.question.adds

    async def close(self) -> None:
        """Close the connections; pending questions get NETWORK_EXCEPTION."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    async def _ask(self, question: Question) -> Errors:
        count = self._state_partitions()
        leader: int | None = None
        if count is not None:
            index = partition_for_key(question.transactional_id, count)
            leader = self._leaders.leader_of(TopicPartition(TRANSACTION_STATE_TOPIC, index))
        if leader is None or leader < 0:
            return dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if leader == self._broker_id:
            return await self._ask_here(question)
        channel = self._channels.get(leader)
        if channel is None:
            channel = self._channels[leader] = _Channel(leader, self._peers)
        return await channel.ask(question)

    async def _ask_here(self, question: Question) -> Errors:
        transactional_id, producer, partitions, adds = question
        if adds:
            added = self._coordinator.add_partitions(transactional_id, producer, partitions, is_for_client=True)
            return dict.fromkeys(partitions, await result_of(added))
        error, missing = self._coordinator.verify_partitions(transactional_id, producer, partitions)
        return {tp: ErrorCode.TRANSACTION_ABORTABLE if tp in missing else error for tp in partitions}


def _keys(question: Question) -> list[tuple[TopicPartition, int]]:
    return [(partition, question.producer.producer_id) for partition in question.partitions]


class _Channel:
    """The questions to one other broker, and the connection to it.  At most one request is in flight."""

    def __init__(self, broker_id: int, peers: Peers) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._waiting: deque[tuple[Question, asyncio.Future[Errors]]] = deque()
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Errors:
        """Return the answer."""
        if len(self._waiting) >= WAITING_MAX:
            return dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)
        answer: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_all(), name=f"verify-at-{self._broker_id}")
        return await answer

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for question, answer in self._waiting:
            _settle(answer, dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION))
        self._waiting.clear()
        await self._disconnect()

    async def _send_all(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            answers: Mapping[str, Errors] = {}
            try:
                answers = await self._exchange([question for question, _ in batch])
            finally:
                for question, answer in batch:
                    errors = answers.get(question.transactional_id, {})
                    _settle(answer, {tp: errors.get(tp, ErrorCode.NETWORK_EXCEPTION) for tp in question.partitions})

    def _next_batch(self) -> list[tuple[Question, asyncio.Future[Errors]]]:
        """Take the first questions; a request has a transactional id once, since results are by id."""
        batch: dict[str, tuple[Question, asyncio.Future[Errors]]] = {}
        while self._waiting and len(batch) < TRANSACTIONS_PER_REQUEST:
            transactional_id = self._waiting[0][0].transactional_id
            if transactional_id in batch:
                break
            batch[transactional_id] = self._waiting.popleft()
        return list(batch.values())

    async def _exchange(self, questions: Collection[Question]) -> Mapping[str, Errors]:
        request = AddPartitionsToTxnRequest(transactions=[_transaction(question) for question in questions])
        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._peers.connect(self._broker_id, Purpose.TRANSACTION_VERIFICATION)
            response = await self._connection.send(request, AddPartitionsToTxnResponse, version=REQUEST_VERSION)
        except (ConnectionLost, MalformedRequest, ApiError) as error:
            log.warning("cannot verify transactions, clients try again broker=%s error=%s", self._broker_id, error)
            await self._disconnect()
            return {}
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            log.warning("cannot verify transactions, clients try again broker=%s error=%s", self._broker_id, code.name)
            return {}
        return {
            result.transactional_id: {
                TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
                for topic in result.topic_results
                for partition in topic.results
            }
            for result in response.results_by_transaction
        }

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _transaction(question: Question) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        by_topic.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.epoch,
        verify_only=not question.adds,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )


def _settle(answer: asyncio.Future[Errors], errors: Errors) -> None:
    if not answer.done():
        answer.set_result(errors)


# What clients see of the answers of the coordinator.


_OF_COORDINATORS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
FIRST_PRODUCE_WITH_ABORTABLE = 11
FIRST_COMMIT_WITH_ABORTABLE = 4
FIRST_COMMIT_THAT_ADDS = 5


def refusal_of_records(verification: Verification, partition: TopicPartition, version: int) -> ApiError | None:
    """Return why records of a partition are not appended, for a version of Produce."""
    if verification.is_outdated:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "the records are not part of an ongoing transaction")
    error = verification.errors.get(partition, ErrorCode.NONE)
    is_retried_by_older_clients = error is ErrorCode.CONCURRENT_TRANSACTIONS and not verification.question.adds
    if error in _OF_COORDINATORS or is_retried_by_older_clients:
        # Older clients retry this code without reading metadata again.
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"cannot verify that the partition is in the transaction: {error.name}",
        )
    if error is ErrorCode.NONE:
        return None
    code = _known_to_client(error, has_abortable=version >= FIRST_PRODUCE_WITH_ABORTABLE)
    is_absent = code is ErrorCode.INVALID_TXN_STATE
    return ApiError(code, "the partition is not in the transaction" if is_absent else None)


def error_of_offsets(verification: Verification, version: int) -> ErrorCode:
    """Return the error for offsets of a group, which are one partition, for a version of TxnOffsetCommit."""
    if verification.is_outdated:
        return ErrorCode.INVALID_TXN_STATE
    error = next(iter(verification.errors.values()))
    if error is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _known_to_client(error, has_abortable=version >= FIRST_COMMIT_WITH_ABORTABLE)


def _known_to_client(error: ErrorCode, *, has_abortable: bool) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not has_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
