"""Transactions: records in any partitions, and offsets of a group, that become visible to read-committed consumers
together, or never.

Initialising a transactional id fences its previous producer and aborts that producer's open transaction.  After a crash
the transaction is aborted by the next producer with the id, or after transaction.timeout.ms.  Source: KIP-98.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Self

from kctl.client.cluster import ClusterClient, CoordinatorType
from kctl.client.connections.loop_thread import SharedWork
from kctl.client.connections.transport import Connection
from kctl.client.consuming.committed_offsets import CommittedOffset, commit_of
from kctl.client.consuming.groups.metadata import CommitFailed, GroupMetadata
from kctl.client.consuming.membership.assignors import NO_GENERATION
from kctl.client.consuming.positions import Position
from kctl.errors import ApiError, ErrorCode, KctlError
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.output.quantities import counted
from kctl.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kctl.system.reference_cycles import copy_of

TRANSACTION_TIMEOUT_MS = 60_000
"""transaction.timeout.ms of Kafka's producer."""

GENERATION_VERSION_MIN = 3
"""First version of TxnOffsetCommit that fences former members (KIP-447)."""

_BUSY = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})
"""The previous transaction is still being completed."""
_EXCLUDED = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
"""The group has rebalanced without the member; Java's producer raises CommitFailedException too."""
_WORDS = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer uses the transactional id, or the transaction has timed out",
    ErrorCode.PRODUCER_FENCED: "another producer uses the transactional id, or the transaction has timed out",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction.timeout.ms is larger than the broker allows",
    ErrorCode.INVALID_TXN_STATE: "the transaction has already been completed",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer uses the group.instance.id",
}


FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors of the coordinator after which the producer cannot go on: another one has its id."""
EPOCH_VERSION_MIN = 3
"""First version of InitProducerId that raises the epoch of the same producer only (KIP-360)."""


class Transaction:
    """The open transaction of a transactional id; after its end, the next one.  Owner: event loop.

    Requests go on when their caller is cancelled, and the end of the transaction waits for them.
    """

    def __init__(
        self, client: ClusterClient, transactional_id: str, producer: ProducerIdAndEpoch, *, is_started: bool = False
    ) -> None:
        """`is_started`: another process has sent records in it, and this one only ends it."""
        self.transactional_id = transactional_id
        self.producer = producer
        self.added: set[TopicPartition] = set()
        """The partitions that the coordinator has added to the transaction."""
        self.fatal: ApiError | None = None
        """Why this producer cannot go on."""
        self.is_forgotten = False
        """Whether the coordinator does not know the producer id any more, so that the next one has to be a new one."""
        self._client = client
        self._work = SharedWork()
        self._failure: KctlError | None = None
        """Of a request whose caller may not have seen it; the transaction can then only be aborted."""
        self._ending: asyncio.Task[None] | None = None
        self._is_committing = False
        self._is_started = is_started
        """Whether the coordinator has a transaction, or may have one because the outcome of a request is unknown."""

    @classmethod
    async def begin(
        cls,
        client: ClusterClient,
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        previous: ProducerIdAndEpoch | None = None,
    ) -> Self:
        """Initialise the transactional id and fence other producers; after `timeout_ms` the coordinator aborts.

        With `previous` it raises the epoch of this producer, which is refused if another one has fenced it (KIP-360;
        Kafka 2.5 and newer).  Raises ApiError.
        """

        async def send_to(connection: Connection) -> ProducerIdAndEpoch:
            raised = previous
            if connection.versions.highest(InitProducerIdRequest) < EPOCH_VERSION_MIN:
                raised = None
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1 if raised is None else raised.producer_id,
                producer_epoch=-1 if raised is None else raised.epoch,
            )
            response = await connection.send(request, InitProducerIdResponse)
            _raise_for(response.error_code, transactional_id)
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        producer = await client.on_coordinator(transactional_id, send_to, CoordinatorType.TRANSACTION, codes=_BUSY)
        return cls(client, transactional_id, producer)

    async def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the transaction; required before the first batch is sent to them.  Raises ApiError."""
        missing = [tp for tp in partitions if tp not in self.added]
        if missing:
            await self._run(self._add(missing), f"add {counted(len(missing), 'partition')} to a transaction")

    async def add_offsets(
        self, group: GroupMetadata, offsets: Mapping[TopicPartition, int | Position | CommittedOffset]
    ) -> None:
        """Commit offsets of a group as part of the transaction.

        Raises ApiError with the first error: CommitFailed if the group has excluded the member since,
        UNSUPPORTED_VERSION if the group has a generation and the broker is older than Kafka 2.5.
        """
        join = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            group_id=group.group_id,
        )
        commits = {tp: commit_of(offset) for tp, offset in offsets.items()}
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=tp.partition,
                            committed_offset=commits[tp].offset,
                            committed_leader_epoch=commits[tp].leader_epoch,
                            committed_metadata=commits[tp].metadata,
                        )
                        for tp in sorted(offsets)
                        if tp.topic == topic
                    ],
                )
                for topic in sorted({tp.topic for tp in offsets})
            ],
        )

        async def send_join(connection: Connection) -> None:
            response = await connection.send(join, AddOffsetsToTxnResponse)
            _raise_for(response.error_code, self.transactional_id)

        async def send_commit(connection: Connection) -> None:
            has_generation = connection.versions.highest(TxnOffsetCommitRequest) >= GENERATION_VERSION_MIN
            if group.generation != NO_GENERATION and not has_generation:
                text = "the broker cannot check the generation of the group, which needs Kafka 2.5 or newer"
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{text}: commit by the group's id")
            response = await connection.send(commit, TxnOffsetCommitResponse)
            for topic in response.topics:
                for partition in topic.partitions:
                    if ErrorCode.of(partition.error_code) in _EXCLUDED:
                        tp = TopicPartition(topic.name, partition.partition_index)
                        raise CommitFailed(group.group_id, tp, ErrorCode.of(partition.error_code))
                    _raise_for(partition.error_code, self.transactional_id)

        async def send_both() -> None:
            try:
                await self._start(
                    self._client.on_coordinator(
                        self.transactional_id, send_join, CoordinatorType.TRANSACTION, codes=_BUSY
                    )
                )
                await self._client.on_coordinator(group.group_id, send_commit)
            except KctlError as error:
                self._failure = copy_of(error)
                raise

        await self._run(send_both(), "add offsets to a transaction")

    async def commit(self) -> None:
        """Commit the transaction.  Raises ApiError, and ClusterUnreachable if the outcome is unknown."""
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """Abort the transaction.

        Raises ApiError, and ClusterUnreachable; then the coordinator aborts it after the timeout.
        """
        await self._end(is_commit=False)

    async def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self.fatal is not None:
            work.close()
            raise copy_of(self.fatal)
        await self._work.run(work, name)

    async def _add(self, partitions: Sequence[TopicPartition]) -> None:
        topics = {tp.topic: [other.partition for other in partitions if other.topic == tp.topic] for tp in partitions}
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )

        async def send_to(connection: Connection) -> None:
            response = await connection.send(request, AddPartitionsToTxnResponse)
            codes = [result.error_code for topic in response.results for result in topic.results]
            skipped = ErrorCode.OPERATION_NOT_ATTEMPTED  # because of another partition, whose error says why
            _raise_for(next((code for code in codes if code not in {0, skipped}), 0), self.transactional_id)
            if not codes or any(codes):
                _raise_for(skipped, self.transactional_id)

        await self._start(
            self._client.on_coordinator(self.transactional_id, send_to, CoordinatorType.TRANSACTION, codes=_BUSY)
        )
        self.added.update(partitions)

    async def _start(self, adding: Awaitable[None]) -> None:
        """Wait until a partition or group has been added, which starts the transaction at the coordinator."""
        try:
            await adding
        except ApiError as error:
            self._note(error)
            raise  # refused: nothing was added
        except BaseException:
            self._is_started = True
            raise
        self._is_started = True

    def _note(self, error: ApiError) -> None:
        if error.code in FENCED:
            self.fatal = self.fatal or copy_of(error)

    async def _end(self, *, is_commit: bool) -> None:
        """End the transaction; join an end that is in progress because its caller was cancelled."""
        if self._ending is not None and not self._ending.done() and self._is_committing is not is_commit:
            await asyncio.wait([self._ending])
            if self._ending.exception() is None:
                done = "aborted" if is_commit else "committed"
                raise ApiError(ErrorCode.INVALID_TXN_STATE, f"the transaction has already been {done}")
        if self._ending is None or self._ending.done():
            self._is_committing = is_commit
            self._ending = self._work.start(self._send_end(is_commit=is_commit), "end a transaction")
        await asyncio.shield(self._ending)

    async def _send_end(self, *, is_commit: bool) -> None:
        """Send EndTxn, which is safe to repeat: the coordinator returns the same outcome."""
        await self._work.finished()
        if self.fatal is not None:
            raise copy_of(self.fatal)
        if is_commit and self._failure is not None:
            raise copy_of(self._failure)
        if self._is_started:  # The coordinator would refuse to end a transaction in which nothing is.
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer.producer_id,
                producer_epoch=self.producer.epoch,
                committed=is_commit,
            )

            async def send_to(connection: Connection) -> None:
                response = await connection.send(request, EndTxnResponse)
                _raise_for(response.error_code, self.transactional_id)

            try:
                await self._client.on_coordinator(
                    self.transactional_id, send_to, CoordinatorType.TRANSACTION, codes=_BUSY
                )
            except ApiError as error:
                self._note(error)
                # The coordinator has forgotten the id (transactional.id.expiration.ms), and with it the transaction.
                self.is_forgotten = error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
                if is_commit or not self.is_forgotten:
                    raise
        self.added.clear()
        self._failure = None
        self._is_started = False


def _raise_for(error_code: int, transactional_id: str) -> None:
    if error_code:
        code = ErrorCode.of(error_code)
        raise ApiError(code, f"transactional id '{transactional_id}': {_WORDS.get(code, code.description)}")
