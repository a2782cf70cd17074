"""Appends the batches of a Produce request that was read into flat values (kctl.records.compiled.produce_frame).

It does what kctl/server/handlers/produce.py does with fewer calls, for requests in which nothing is unusual.  What is
unusual is found before anything has changed, and is left to that handler.  An append that fails, is a duplicate or has
to wait gets the result that it has there.

Owner: event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import INTERNAL_TOPICS, TopicPartition
from kctl.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kctl.records.allowance import Allowance
from kctl.records.compiled.produce_frame import (
    UNREAD,
    AppendedBatch,
    PlainBatch,
    PlainProduce,
    write_produce_response,
)
from kctl.records.header import CODEC_MASK, TRANSACTIONAL_BIT, parse_header
from kctl.records.validate import ValidBatches, validate_produced
from kctl.security.acls import Operation, ResourceType
from kctl.server.network.dispatch import PlainReply, waiting_reply
from kctl.server.replication.partition import Partition
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
from kctl.server.requests.context import EVERYTHING_ALLOWED, AccessControl, Peer, RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.quotas.meters import LimitedClient
from kctl.storage.log.appending import NO_APPEND_TIME
from kctl.system.environment import Clock

APPENDS_PER_SLICE_MAX = bound(
    Subject.PARTITIONS,
    "partitions of a Produce request that are appended to without a pause",
    200,
    "partitions",
    on_excess="the records of the others are copied, and other connections are served in between",
)
WATCHERS_PER_APPEND = 10
"""Fetch sessions that have examined a partition are notified of its next append; so many notifications take as long as
an append.
"""
_WRITE, _TOPIC = Operation.WRITE, ResourceType.TOPIC
_NOTHING = -1
PRODUCER_EPOCH_POSITION = 51
"""In a batch; a negative epoch is that of no open transaction."""
FIRST_VERSION_WITH_IDS = 13

Finish = Callable[[RequestContext], Any]
"""Returns for a request that has been performed what a handler returns."""


class PlainProduceHandler:
    """Serves Produce requests that were read into flat values."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory[TopicPartition],
        clock: Clock,
        verifies: Callable[[bool], bool] = lambda _adds: False,
    ) -> None:
        """Create the handler.

        `verifies`: whether a transaction that is not open in a partition is verified with its coordinator; its argument
        is whether the partition is added to it.
        """
        self._verifies = verifies
        self._replicas = replicas
        self._purgatory = purgatory
        self._clock = clock

    def handle(
        self,
        request: PlainProduce,
        frame: memoryview,
        peer: Peer,
        access: AccessControl,
        limited: LimitedClient | None,
    ) -> PlainReply | Finish | None:
        """Serve one request: return the reply without errors, or a function that makes the response.

        Return None, and change nothing, for what is left to the other handler.
        """
        del limited  # The dispatcher settles it.
        version, correlation_id, _, _, acks, _, transactional_id, topics, batches = request
        found = self._found(batches, peer, access)
        if found is None:
            return None
        partitions, kinds, is_plain = found
        checked: dict[int, ValidBatches] | None = None
        if kinds or not is_plain:
            if kinds & TRANSACTIONAL_BIT:
                if not _may_write_transaction(transactional_id, batches, peer, access):
                    return None
                if self._verifies(version >= FIRST_VERSION_THAT_ADDS_PARTITIONS) and _may_begin(
                    batches, partitions, frame
                ):
                    return None
            is_compressed = kinds & CODEC_MASK != 0
            if is_compressed or not is_plain:
                checked = self._checked(batches, partitions, frame, version, is_compressed=is_compressed)
                if checked is None:
                    return None
        replicas = self._replicas
        appended: list[AppendedBatch] = []
        ends: list[int] = []
        moved: list[TopicPartition] = []
        failed: dict[int, ApiError | ErrorCode] = {}
        is_settled = True
        now_ms = self._clock.now_ms()
        led_in: int | None = None
        for at, (batch, partition) in enumerate(zip(batches, partitions, strict=True)):
            _, index, start, size, count, max_timestamp, producer_id, _, _ = batch
            log, traffic = partition.log, partition.traffic
            traffic.produce_requests += 1
            records = frame[start : start + size]
            try:
                if log.log_directory.failure is not None:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
                if partition.leader != partition.broker_id or partition.role_broker_epoch != led_in:
                    # One check, which reads the clock, suffices for all partitions with a role of one registration.
                    partition.check_leader()
                    led_in = partition.role_broker_epoch
                offset, valid = _NOTHING, checked.get(at) if checked else None
                if valid is None:
                    header = None if producer_id < 0 else parse_header(records)
                    offset = replicas.append_plain(
                        partition, records, size, count, max_timestamp, required_acks=acks, now_ms=now_ms, header=header
                    )
                if offset != _NOTHING:
                    end = offset + count
                    appended.append((index, offset, NO_APPEND_TIME, log.log_start_offset))
                    if acks == ALL_IN_SYNC and partition.high_watermark < end:
                        is_settled = False
                else:
                    # Something else is to be done, such as the start of a segment.
                    if valid is None:
                        valid = ValidBatches(records, (header or parse_header(records),))
                    result = replicas.append(partition, valid, required_acks=acks, request_version=version)
                    offset, end = result.base_offset, result.last_offset + 1
                    appended.append((index, offset, result.log_append_time_ms, result.log_start_offset))
                    if offset < 0:
                        failed[at] = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                    if acks and (partition.high_watermark < end if acks == ALL_IN_SYNC else log.awaits_flush):
                        is_settled = False
                ends.append(end)
                moved.append(partition.topic_partition)
            except ApiError as error:
                note_failure(traffic, error, records)
                appended.append((index, -1, NO_APPEND_TIME, -1))
                failed[at] = error
                ends.append(_NOTHING)
        replicas.partitions_moved(moved)
        if is_settled and not failed:
            if not acks:
                return None, 1
            return [write_produce_response(version, correlation_id, topics, appended)], len(appended)
        return partial(self._finish, request, partitions, appended, ends, failed)

    def _found(
        self, batches: list[PlainBatch], peer: Peer, access: AccessControl
    ) -> tuple[list[Partition], int, bool] | None:
        """Return the partition of each batch, the attributes of all, and whether their topics require no more of an
        uncompressed batch than to be sound; None if something is unusual.
        """
        granted = None
        if access is not EVERYTHING_ALLOWED:
            granted = access.granted.get((peer.principal, peer.client_host, _WRITE, _TOPIC))
            if granted is None or access.audited.allowed:
                return None
        replicas = self._replicas.partitions
        cost = len(batches)
        kinds, is_plain = 0, True
        partitions: list[Partition] = []
        for topic, index, _, size, _, _, _, keyless, attributes in batches:
            partition: Partition | None = replicas.get((topic, index))  # type: ignore[call-overload]
            if partition is None or topic in INTERNAL_TOPICS or (granted is not None and topic not in granted):
                return None
            rules = partition.log.config.append_rules
            if size > rules.plain_bytes_max:
                is_plain = False
            if keyless and rules.is_compacted:
                return None
            kinds |= attributes
            watching = partition.watchers.watching
            if watching:
                cost += len(watching) // WATCHERS_PER_APPEND
            partitions.append(partition)
        if cost > APPENDS_PER_SLICE_MAX and len(batches) > 1:
            return None
        return partitions, kinds, is_plain

    def _checked(
        self,
        batches: list[PlainBatch],
        partitions: list[Partition],
        frame: memoryview,
        version: int,
        *,
        is_compressed: bool,
    ) -> dict[int, ValidBatches] | None:
        """Return copies of those batches for which more is to be checked or changed, by their place in the request.

        Return None if one is not sound, needs another codec, or takes too long here.
        """
        checked: dict[int, ValidBatches] = {}
        allowance: Allowance | None = None
        for at, (batch, partition) in enumerate(zip(batches, partitions, strict=True)):
            _, _, start, size, count, _, _, _, attributes = batch
            rules = partition.log.config.append_rules
            if size <= rules.plain_bytes_max and not is_compressed:
                continue
            allowance = allowance or Allowance()
            try:
                if size <= rules.plain_bytes_max and count != UNREAD:
                    allowance.take_walk(count, size)
                    continue
                if rules.codec not in (None, attributes & CODEC_MASK):
                    return None
                valid = validate_produced(
                    bytearray(frame[start : start + size]),
                    rules,
                    now_ms=self._clock.now_ms(),
                    request_version=version,
                    allowance=allowance,
                )
            except ApiError:
                return None
            if len(valid.buffer) != size:
                return None
            checked[at] = valid
        return checked

    def _finish(
        self,
        request: PlainProduce,
        partitions: list[Partition],
        appended: list[AppendedBatch],
        ends: list[int],
        failed: dict[int, ApiError | ErrorCode],
        context: RequestContext,
    ) -> Any:
        """Return the response, a future of it, or None for acks=0.  Raises UnansweredRequestFailed."""
        _, _, _, _, acks, timeout_ms, _, _, batches = request
        respond = partial(_respond, request, appended, failed)
        if not acks:
            raise_failures(_response(request, appended, failed))
            return None
        waiting = [
            UncommittedAppend(
                partition,
                end,
                partial(failed.__setitem__, at),
                min_insync_replicas=self._replicas.min_insync_replicas(batches[at][0]) if acks == ALL_IN_SYNC else None,
            )
            for at, (partition, end) in enumerate(zip(partitions, ends, strict=True))
            if end != _NOTHING and (acks == ALL_IN_SYNC or partition.log.awaits_flush)
        ]
        create_future = partial(waiting_reply, context, may_overlap=True)
        return respond_or_wait(respond, waiting, timeout_ms, self._purgatory, create_future)


def _may_begin(batches: list[PlainBatch], partitions: list[Partition], frame: memoryview) -> bool:
    """Return whether a batch may be the first one of its transaction in its partition."""
    for batch, partition in zip(batches, partitions, strict=True):
        if batch[8] & TRANSACTIONAL_BIT:
            epoch_at = batch[2] + PRODUCER_EPOCH_POSITION
            epoch = int.from_bytes(frame[epoch_at : epoch_at + 2], "big")
            if partition.log.producer_state.may_begin(batch[6], epoch):
                return True
    return False


def _may_write_transaction(
    transactional_id: str | None, batches: list[PlainBatch], peer: Peer, access: AccessControl
) -> bool:
    """Return whether the batches of transactions are of one producer, which has the permission for sure."""
    if transactional_id is None or len({batch[6] for batch in batches if batch[8] & TRANSACTIONAL_BIT}) > 1:
        return False
    if access is EVERYTHING_ALLOWED:
        return True
    granted = access.granted.get((peer.principal, peer.client_host, _WRITE, ResourceType.TRANSACTIONAL_ID))
    return granted is not None and transactional_id in granted


def _respond(
    request: PlainProduce, appended: list[AppendedBatch], failed: dict[int, ApiError | ErrorCode]
) -> ProduceResponse | PlainReply:
    """Return the response when all results are known."""
    if failed:
        return _response(request, appended, failed)
    return [write_produce_response(request[0], request[1], request[7], appended)], len(appended)


def _response(
    request: PlainProduce, appended: list[AppendedBatch], failed: dict[int, ApiError | ErrorCode]
) -> ProduceResponse:
    """Return a response with errors: of appends that were refused, are old duplicates, or were not committed."""
    results: list[PartitionProduceResponse] = []
    for at, (index, base_offset, append_time_ms, log_start_offset) in enumerate(appended):
        error = failed.get(at)
        result = PartitionProduceResponse(
            index=index,
            error_code=ErrorCode.NONE,
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=log_start_offset,
        )
        if isinstance(error, ApiError):
            refuse(result, error)
        elif error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            result.error_code = error
        elif error is not None:
            fail_append(result, error)
        results.append(result)
    rest = iter(results)
    response = ProduceResponse(responses=[])
    at = 0
    for name, count in request[7]:
        topic = TopicProduceResponse(name=request[8][at][0], partition_responses=[next(rest) for _ in range(count)])
        if request[0] >= FIRST_VERSION_WITH_IDS:
            topic.topic_id = UUID(bytes=name)
        response.responses.append(topic)
        at += count
    return response
