"""Produce (key 0, versions 0-13): appends record batches to partitions that this broker leads.

acks 0: no response; on an error the connection is closed, because there is no other way to report it.
acks 1: responds after the local append, and after the flush if flush.messages requires one.  acks -1: responds when the
high watermark has passed the records; if fewer replicas than min.insync.replicas are in sync by then,
NOT_ENOUGH_REPLICAS_AFTER_APPEND.
Each partition has its own result; an error of one does not affect the others.
Batches that take long to decompress, convert or validate are validated in a thread and appended after the others
(requests/record_work).  A request for many partitions is appended in slices.  Most requests are served by
replication/plain_produce, which does the same with fewer calls.

Transactional records need the transactional id in the request, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and all of
them one producer id, else INVALID_PRODUCER_ID_MAPPING; either error is that of the whole request.  A fenced producer is
refused by the partition, by its epoch.  Before the first records of a transaction in a partition, the coordinator
verifies that the partition is in the transaction, or adds it (coordination/transactions/verification); meanwhile the
connection is not read.

Version notes: 0-2 carry message formats 0 and 1, which are stored as 2 (records/conversion); 3 transactional id; 5 log
start offset; 7 zstd; 8 errors of single records; 11 TRANSACTION_ABORTABLE; 12 partitions are added to transactions
(KIP-890); 13 topic ids,
UNKNOWN_TOPIC_ID if there is none.
For a codec that does not exist the error is UNSUPPORTED_COMPRESSION_TYPE, and INVALID_RECORD for a partition without
records, in which Kafka 2.8 fails with UNKNOWN_SERVER_ERROR or closes the connection, so that producers try again.  It
is INVALID_RECORD for records that cannot be decompressed or read as well, where Kafka fails with UNKNOWN_SERVER_ERROR.
Compressed batches whose offset deltas are not 0, 1, 2 and so on get these; Kafka does so only when it changes the codec
and fails otherwise.  A timestamp of more than 64 bits is INVALID_TIMESTAMP; Kafka stores it wrapped around.
Refused, and accepted by Kafka: magic 0 or 1 without a whole message, zstd in versions 0-2, a wrong checksum of the
content of an lz4 frame.  The bit for LogAppendTime is refused without errors of single records.  A compressed batch
that claims more than RECORDS_PER_BATCH_MAX records is MESSAGE_TOO_LARGE.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from kctl.errors import ApiError, ErrorCode
from kctl.limits import APPENDED_INLINE_BYTES_MAX, HANDLED_AT_ONCE_BYTES_MAX
from kctl.model import INTERNAL_TOPICS, ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kctl.protocol.source import constructor
from kctl.records.allowance import Allowance, AllowanceExceeded, memory_max
from kctl.records.header import ATTRIBUTES_POSITION, HEADER_SIZE, MAGIC_POSITION, TRANSACTIONAL_BIT
from kctl.records.validate import ValidBatches, validate_produced
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.transactions.verification import (
    Question,
    TransactionVerifier,
    Verification,
    refusal_of_records,
)
from kctl.server.loop.slices import pause, sliced
from kctl.server.loop.tasks import in_thread
from kctl.server.network.dispatch import waiting_reply
from kctl.server.peers.metadata import MetadataCache, is_placeholder
from kctl.server.replication.partition import Partition
from kctl.server.replication.plain_produce import (
    APPENDS_PER_SLICE_MAX,
    FIRST_VERSION_WITH_IDS,
    WATCHERS_PER_APPEND,
)
from kctl.server.replication.produce_results import (
    ALL_IN_SYNC,
    FIRST_VERSION_THAT_ADDS_PARTITIONS,
    note_failure,
    raise_failures,
    refuse,
    respond_or_wait,
)
from kctl.server.replication.produce_waits import UncommittedAppend, fail_append
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.record_work import RecordWork
from kctl.storage.segments.draft import DraftedBatches
from kctl.system.environment import Clock

_WRITE, _TOPIC, _NO_ERROR = Operation.WRITE, ResourceType.TOPIC, ErrorCode.NONE
"""Constants, because Python 3.11 takes 0.1 us to find a member of an enum."""
_response_of = constructor(ProduceResponse)
_topic_response = constructor(TopicProduceResponse)
_partition_response = constructor(PartitionProduceResponse)
MAGIC = 2
_ATTRIBUTES = ATTRIBUTES_POSITION + 1
"""The byte with the flags."""
_PRODUCER_POSITION = 43
_PRODUCER = struct.Struct(">qh")
"""Id and epoch of the producer of a batch."""
_SEQUENCE = slice(53, 57)
_FIRST_SEQUENCE = bytes(4)
_PRODUCER_ID = slice(_PRODUCER_POSITION, 51)
_SLICE_COST = HANDLED_AT_ONCE_BYTES_MAX // 2
_NONE: frozenset[str] = frozenset()
INTERNAL_WRITER = "__admin_client"
"""The only client id that may produce to internal topics; Kafka's AdminUtils.AdminClientId."""


class ProduceHandler:
    """Serves Produce requests.  Owner: event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory[TopicPartition],
        work: RecordWork,
        clock: Clock,
        metadata: MetadataCache,
        verifier: TransactionVerifier | None = None,
    ) -> None:
        self._replicas = replicas
        self._verifier = verifier
        self._metadata = metadata
        self._purgatory = purgatory
        self._work = work
        self._clock = clock

    def handle(
        self, request: ProduceRequest, context: RequestContext
    ) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
        """Serve one request: return the response, an awaitable of it, or None for acks=0."""
        if context.api_version >= FIRST_VERSION_WITH_IDS:
            self._set_names(request)
        refusal = _refusal_of_transaction(request, context)
        if refusal is not None:
            return self._refuse_all(request, refusal)
        appends = _Appends(request, context)
        question = None if request.transactional_id is None else self._question(request, context)
        if question is not None:
            self._append_some(appends, request.topic_data, appends.response.responses, is_deferred=True)
            return self._append_verified(appends, question, ())
        appended = self._append_some(appends, request.topic_data, appends.response.responses)
        if appends.deferred:
            return self._append_sliced(appends, ())
        if not appends.waiting:
            context.successes = appended
            if request.acks:
                return appends.response
        return self._respond(appends, partial(waiting_reply, context, may_overlap=True))

    async def handle_long(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
        """As `handle`, for a request with thousands of partitions, which is appended in slices.

        Its records are not overwritten, so that they are not copied.
        """
        if context.api_version >= FIRST_VERSION_WITH_IDS:
            self._set_names(request)
        refusal = _refusal_of_transaction(request, context)
        if refusal is not None:
            return self._refuse_all(request, refusal)
        appends = _Appends(request, context, are_records_kept=True)
        question = None if request.transactional_id is None else self._question(request, context)
        slices = _slices(request.topic_data)
        if question is not None:
            return await self._append_verified(appends, question, slices)
        return await self._append_sliced(appends, slices)

    def _question(self, request: ProduceRequest, context: RequestContext) -> Question | None:
        """Return what the coordinator has to verify before records of a transaction are appended, if anything."""
        transactional_id, adds = request.transactional_id, context.api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS
        if transactional_id is None or self._verifier is None or not self._verifier.is_needed(adds=adds):
            return None
        producer: ProducerIdAndEpoch | None = None
        partitions: dict[TopicPartition, None] = {}
        denied = context.denied(_WRITE, _TOPIC, (topic.name for topic in request.topic_data), is_logged=False)
        for topic in request.topic_data:
            if topic.name in denied or topic.name in INTERNAL_TOPICS:
                continue
            for data in topic.partition_data:
                tp = TopicPartition(topic.name, data.index)
                replica = self._replicas.partitions.get(tp)
                if replica is None or not _is_transactional(data.records):
                    continue
                batch = _producer_of(data.records)
                if replica.log.producer_state.may_begin(*batch):
                    producer = producer or batch
                    partitions[tp] = None
        return None if producer is None else Question(transactional_id, producer, tuple(partitions), adds)

    async def _append_verified(
        self, appends: _Appends, question: Question, slices: Iterable[Sequence[TopicProduceData]]
    ) -> ProduceResponse | None:
        """Append what is deferred and the slices, except to partitions that are not in the transaction."""
        assert self._verifier is not None
        try:
            verification = await self._verifier.verify(question)
        except BaseException:
            self._work.release_hold(sum(len(records) for _, _, records in appends.take_deferred()))
            raise
        appends.verification = verification
        try:
            return await self._append_sliced(appends, slices)
        finally:
            self._verifier.done(verification)

    def _set_names(self, request: ProduceRequest) -> None:
        for topic in request.topic_data:
            topic.name = self._metadata.name_or_placeholder(topic.topic_id)

    async def _append_sliced(
        self, appends: _Appends, slices: Iterable[Sequence[TopicProduceData]]
    ) -> ProduceResponse | None:
        """Append the deferred batches and then the slices, and respond.

        State that may have changed since the request arrived, such as leader and sequence numbers, is checked at each
        append.
        """
        await self._append_deferred(appends)
        async for topics in sliced(slices, per_slice=1):
            responses: list[TopicProduceResponse] = []
            self._append_some(appends, topics, responses)
            # What the slice defers is appended before the next one, in the order of the request: a partition may be
            # listed twice.
            await self._append_deferred(appends)
            appends.add(responses)
        response = self._respond(appends, asyncio.get_running_loop().create_future)
        return await response if isinstance(response, asyncio.Future) else response

    def _append_some(
        self,
        appends: _Appends,
        topics: Sequence[TopicProduceData],
        responses: list[TopicProduceResponse],
        *,
        is_deferred: bool = False,
    ) -> int:
        """Append to the first APPENDS_PER_SLICE_MAX partitions, to fewer if many fetch sessions have them, and defer
        the others, or all with `is_deferred`.

        Return the number of partitions if there was an append to each of them, else 0.
        """
        allowance = Allowance()
        count = appends.cost = 0
        permitted = appends.context.permitted(_WRITE, _TOPIC)
        denied = _NONE
        for topic in topics:
            if permitted is not None and topic.name not in permitted:
                # All together, so that a topic that is listed twice is checked once.
                names = [topic.name for topic in topics if not is_placeholder(topic.name)]
                denied, permitted = appends.context.denied(_WRITE, _TOPIC, names), None
            traffic = self._replicas.traffic.found(topic.name)
            results: list[PartitionProduceResponse] = []
            responses.append(_topic_response(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
            for data in topic.partition_data:
                partition_result = _partition_response(index=data.index, error_code=_NO_ERROR, base_offset=-1)
                results.append(partition_result)
                traffic.produce_requests += 1
                count += 1
                appends.cost += 1
                try:
                    if topic.name in denied:
                        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    is_full = is_deferred or appends.cost > APPENDS_PER_SLICE_MAX
                    if is_full or (appends.deferred and appends.has_deferred(topic.name, data.index)):
                        self._defer(appends, topic.name, data, partition_result)
                        continue
                    self._append(appends, topic.name, partition_result, data.records, allowance)
                except AllowanceExceeded:
                    self._defer(appends, topic.name, data, partition_result)
                except ApiError as error:
                    note_failure(traffic, error, data.records)
                    refuse(partition_result, error)
        moved = appends.take_moved()
        self._replicas.partitions_moved(moved)
        return count if len(moved) == count else 0

    def _defer(
        self, appends: _Appends, topic: str, data: PartitionProduceData, partition_result: PartitionProduceResponse
    ) -> None:
        """Copy the records for `_append_deferred` if the request's buffer is reused."""
        records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
        try:
            self._work.hold(len(records))
        except ApiError as error:
            refuse(partition_result, error)
            return
        kept = records if appends.are_records_kept else memoryview(bytearray(records))
        appends.defer(topic, partition_result, kept)

    async def _append_deferred(self, appends: _Appends) -> None:
        """Append the deferred batches in slices, those that take long after their validation in a thread."""
        deferred = appends.take_deferred()
        if not deferred:
            return
        allowance = Allowance()
        appends.cost = APPENDS_PER_SLICE_MAX
        try:
            for topic, partition_result, records in deferred:
                if appends.cost >= APPENDS_PER_SLICE_MAX:
                    # Readers see what has been appended without waiting for the rest of the request.
                    self._replicas.partitions_moved(appends.take_moved())
                    await pause()
                    allowance, appends.cost = Allowance(), 0
                appends.cost += 1
                await self._append_one_deferred(appends, topic, partition_result, records, allowance)
            self._replicas.partitions_moved(appends.take_moved())
        finally:
            self._work.release_hold(sum(len(records) for _, _, records in deferred))

    async def _append_one_deferred(
        self,
        appends: _Appends,
        topic: str,
        partition_result: PartitionProduceResponse,
        records: memoryview,
        allowance: Allowance,
    ) -> None:
        try:
            try:
                self._append(appends, topic, partition_result, records, allowance)
            except AllowanceExceeded:
                self._replicas.partitions_moved(appends.take_moved())
                valid = await self._validated(appends, topic, partition_result.index, records)
                try:
                    self._append(appends, topic, partition_result, valid)
                finally:
                    if isinstance(valid, DraftedBatches) and not valid.draft.is_taken:
                        await in_thread(valid.draft.remove)
        except ApiError as error:
            note_failure(self._replicas.traffic.found(topic), error, records)
            refuse(partition_result, error)

    async def _validated(self, appends: _Appends, topic: str, index: int, records: memoryview) -> ValidBatches:
        partition_log = self._partition(topic, index, appends).log
        draft = partition_log.new_draft() if len(records) > APPENDED_INLINE_BYTES_MAX else None
        rules, now_ms, version = partition_log.config.append_rules, self._clock.now_ms(), appends.context.api_version

        def work() -> ValidBatches:
            valid = validate_produced(records, rules, now_ms=now_ms, request_version=version)
            return valid if draft is None else draft.with_batches(valid)

        began_ms = self._clock.monotonic_ms()
        try:
            valid = await self._work.run(memory_max(records), work)
        except OSError as error:
            self._replicas.log_dir_failed(partition_log.log_directory.fail(error))
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        except BaseException:
            if draft is not None:
                await in_thread(draft.remove)
            raise
        if valid.is_converted:
            self._replicas.traffic.produce_conversion_times.record(self._clock.monotonic_ms() - began_ms)
        return valid

    def _append(
        self,
        appends: _Appends,
        topic: str,
        partition_result: PartitionProduceResponse,
        records: object,
        allowance: Allowance | None = None,
    ) -> None:
        """Append the records.  Raises ApiError, and AllowanceExceeded before anything has changed."""
        acks = appends.request.acks
        partition = self._partition(topic, partition_result.index, appends)
        if not isinstance(records, (memoryview, ValidBatches)) or not records:
            raise ApiError(ErrorCode.INVALID_RECORD, "the request has no record batch for this partition")
        if appends.verification is not None:
            is_new = appends.verification.question.producer.producer_id not in partition.log.producer_state.producers
            appends.check_transaction(appends.verification, partition.topic_partition, records, is_new=is_new)
        watchers = len(partition.watchers.watching)
        if watchers >= WATCHERS_PER_APPEND:
            appends.cost += watchers // WATCHERS_PER_APPEND
        result = self._replicas.append(
            partition,
            records,
            required_acks=acks,
            request_version=appends.context.api_version,
            allowance=allowance,
        )
        if result.base_offset < 0:
            partition_result.error_code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        partition_result.base_offset = result.base_offset
        partition_result.log_append_time_ms = result.log_append_time_ms
        partition_result.log_start_offset = result.log_start_offset
        appends.moved.append(partition.topic_partition)
        if acks == ALL_IN_SYNC or (acks == 1 and partition.log.awaits_flush):
            appends.waiting.append(
                UncommittedAppend(
                    partition,
                    result.last_offset + 1,
                    partial(fail_append, partition_result),
                    min_insync_replicas=self._replicas.min_insync_replicas(topic) if acks == ALL_IN_SYNC else None,
                )
            )

    def _respond(
        self, appends: _Appends, create_future: Callable[[], asyncio.Future[ProduceResponse]]
    ) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
        request, response = appends.request, appends.response
        if request.acks == 0:
            raise_failures(response)
            return None
        return respond_or_wait(lambda: response, appends.waiting, request.timeout_ms, self._purgatory, create_future)

    def _refuse_all(self, request: ProduceRequest, error: ApiError) -> ProduceResponse | None:
        response = ProduceResponse(responses=[])
        for topic in request.topic_data:
            results = [
                PartitionProduceResponse(index=data.index, error_code=error.code, base_offset=-1)
                for data in topic.partition_data
            ]
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
            )
            for partition_result in results:
                refuse(partition_result, error)
        if request.acks == 0:
            raise_failures(response)
            return None
        return response

    def _partition(self, topic: str, index: int, appends: _Appends) -> Partition:
        if appends.request.acks not in {0, 1, ALL_IN_SYNC}:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic in INTERNAL_TOPICS and appends.context.client_id != INTERNAL_WRITER:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if appends.context.api_version >= FIRST_VERSION_WITH_IDS and is_placeholder(topic):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self._replicas.partition(topic, index)


class _Appends:
    """The state of one request."""

    __slots__ = (
        "_deferred_partitions",
        "are_records_kept",
        "context",
        "cost",
        "deferred",
        "moved",
        "request",
        "response",
        "verification",
        "waiting",
    )

    def __init__(self, request: ProduceRequest, context: RequestContext, *, are_records_kept: bool = False) -> None:
        self.are_records_kept = are_records_kept
        self.request = request
        self.context = context
        self.response = _response_of(responses=[])
        self.waiting: list[UncommittedAppend] = []
        self.moved: list[TopicPartition] = []
        self.cost = 0
        """What the appends since the last pause cost, in appends without fetch sessions."""
        self.deferred: list[tuple[str, PartitionProduceResponse, memoryview]] = []
        """Topic, response and records of batches that take long or are not in the first slice."""
        self._deferred_partitions: set[tuple[str, int]] = set()
        self.verification: Verification | None = None
        """What the transaction coordinator has said of some of the partitions."""

    def check_transaction(
        self,
        verification: Verification,
        partition: TopicPartition,
        records: memoryview | ValidBatches,
        *,
        is_new: bool,
    ) -> None:
        """Raise ApiError if the partition was to be verified, and is not in the transaction of the records.

        `is_new`: whether the partition has nothing of the producer.
        """
        if partition not in verification.errors:
            return
        refusal = refusal_of_records(verification, partition, self.context.api_version)
        if refusal is not None:
            raise refusal
        batch = records.buffer if isinstance(records, ValidBatches) else records
        if _producer_of(batch) != verification.question.producer:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, "the batches of a transaction have several epochs")
        if verification.question.adds and is_new and batch[_SEQUENCE] != _FIRST_SEQUENCE:
            # Each transaction has an epoch of its own, whose numbers begin at 0.
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the first batch of a transaction has sequence 0")

    def has_deferred(self, topic: str, index: int) -> bool:
        """Return whether an earlier batch of the partition is not appended yet; a partition may be listed twice."""
        return (topic, index) in self._deferred_partitions

    def defer(self, topic: str, partition_result: PartitionProduceResponse, records: memoryview) -> None:
        self._deferred_partitions.add((topic, partition_result.index))
        self.deferred.append((topic, partition_result, records))

    def take_deferred(self) -> list[tuple[str, PartitionProduceResponse, memoryview]]:
        """Return the deferred batches, which are appended next."""
        deferred, self.deferred = self.deferred, []
        self._deferred_partitions.clear()
        return deferred

    def add(self, responses: list[TopicProduceResponse]) -> None:
        """Add the results of a slice, which may begin within the topic in which the last one ended."""
        former = self.response.responses
        if former and responses and former[-1].name == responses[0].name:
            former[-1].partition_responses += responses.pop(0).partition_responses
        former += responses

    def take_moved(self) -> list[TopicPartition]:
        moved, self.moved = self.moved, []
        return moved


def _is_transactional(records: object) -> bool:
    """Return whether records for a partition begin with a batch of a transaction."""
    return (
        isinstance(records, memoryview)
        and len(records) >= HEADER_SIZE
        and records[_ATTRIBUTES] & TRANSACTIONAL_BIT != 0
        and records[MAGIC_POSITION] == MAGIC
    )


def _producer_of(batch: Any) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(*_PRODUCER.unpack_from(batch, _PRODUCER_POSITION))


def _refusal_of_transaction(request: ProduceRequest, context: RequestContext) -> ApiError | None:
    """Return the error for the whole request, if any.

    Reads headers as bytes, since most batches are not transactional.
    """
    producer_ids: set[bytes] = set()
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if _is_transactional(records):
                assert isinstance(records, memoryview)
                if request.transactional_id is None:
                    return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                producer_ids.add(bytes(records[_PRODUCER_ID]))
    if producer_ids:
        assert request.transactional_id is not None
        if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING) if len(producer_ids) > 1 else None


def _slices(topics: Iterable[TopicProduceData]) -> Iterator[list[TopicProduceData]]:
    """Yield the partitions of a request in slices of at most APPENDS_PER_SLICE_MAX; topics may be divided.

    A slice ends after HANDLED_AT_ONCE_BYTES_MAX / 2 bytes of records.
    """
    some: list[TopicProduceData] = []
    cost = 0
    for topic in topics:
        current = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[])
        some.append(current)
        for data in topic.partition_data:
            if cost >= _SLICE_COST:
                yield some
                cost = 0
                current = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[])
                some = [current]
            current.partition_data.append(data)
            size = len(data.records) if isinstance(data.records, memoryview) else 0
            cost += max(-(-_SLICE_COST // APPENDS_PER_SLICE_MAX), size)
        cost += -(-_SLICE_COST // APPENDS_PER_SLICE_MAX)
    if some:
        yield some
