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

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.model import INTERNAL_TOPICS, TopicPartition
from kctl.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kctl.records.compiled.produce_frame import AppendedBatch, PlainBatch, PlainProduce, write_produce_response
from kctl.records.header import parse_header
from kctl.records.validate import ValidBatches
from kctl.security.acls import Operation, ResourceType
from kctl.server.network.dispatch import PlainReply, waiting_reply
from kctl.server.replication.partition import Partition
from kctl.server.replication.produce_results import ALL_IN_SYNC, note_failure, refuse, respond
from kctl.server.replication.produce_waits import UncommittedAppend
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import EVERYTHING_ALLOWED, AccessControl, Peer, RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.server.requests.quotas.meters import LimitedClient
from kctl.storage.log.appending import NO_APPEND_TIME

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

Finish = Callable[[RequestContext], Any]
"""Returns for a request that has been performed what a handler returns."""


class PlainProduceHandler:
    """Serves Produce requests that were read into flat values."""

    def __init__(self, replicas: ReplicaManager, purgatory: Purgatory[TopicPartition]) -> None:
        self._replicas = replicas
        self._purgatory = purgatory

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
        version, correlation_id, _, _, acks, _, _, topics, batches = request
        partitions = self._found(batches, peer, access)
        if partitions is None:
            return None
        replicas = self._replicas
        appended: list[AppendedBatch] = []
        ends: list[int] = []
        moved: list[TopicPartition] = []
        failed: dict[int, PartitionProduceResponse] = {}
        is_settled = True
        for batch, partition in zip(batches, partitions, strict=True):
            _, index, start, size, count, max_timestamp, producer_id, _, _ = batch
            log, traffic = partition.log, partition.traffic
            traffic.produce_requests += 1
            records = frame[start : start + size]
            try:
                if log.log_directory.failure is not None:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
                offset = _NOTHING
                if producer_id < 0:
                    offset = replicas.append_plain(partition, records, count, max_timestamp, required_acks=acks)
                if offset != _NOTHING:
                    end = offset + count
                    appended.append((index, offset, NO_APPEND_TIME, log.log_start_offset))
                else:
                    # Something else is to be done, such as a check of the producer, or the start of a segment.
                    valid = ValidBatches(records, (parse_header(records),))
                    result = replicas.append(partition, valid, required_acks=acks, request_version=version)
                    offset, end = result.base_offset, result.last_offset + 1
                    appended.append((index, offset, result.log_append_time_ms, result.log_start_offset))
                    if offset < 0:
                        failed[len(ends)] = _response(appended[-1], ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
                if acks and (partition.high_watermark < end if acks == ALL_IN_SYNC else log.awaits_flush):
                    is_settled = False
                ends.append(end)
                moved.append(partition.topic_partition)
            except ApiError as error:
                note_failure(traffic, error, records)
                appended.append((index, -1, NO_APPEND_TIME, -1))
                failed[len(ends)] = refused = _response(appended[-1], error.code)
                refuse(refused, error)
                ends.append(_NOTHING)
        replicas.partitions_moved(moved)
        if is_settled and not failed:
            if not acks:
                return None, 1
            return [write_produce_response(version, correlation_id, topics, appended)], len(appended)
        return partial(self._finish, request, partitions, appended, ends, failed)

    def _found(self, batches: list[PlainBatch], peer: Peer, access: AccessControl) -> list[Partition] | None:
        """Return the partition of each batch; None if something is unusual."""
        granted = None
        if access is not EVERYTHING_ALLOWED:
            granted = access.granted.get((peer.principal, peer.client_host, _WRITE, _TOPIC))
            if granted is None or access.audited.allowed:
                return None
        replicas = self._replicas.partitions
        cost = len(batches)
        partitions: list[Partition] = []
        for topic, index, _, size, _, _, _, keyless, attributes in batches:
            partition: Partition | None = replicas.get((topic, index))  # type: ignore[call-overload]
            if partition is None or topic in INTERNAL_TOPICS or (granted is not None and topic not in granted):
                return None
            rules = partition.log.config.append_rules
            if attributes or size > rules.plain_bytes_max or (keyless and rules.is_compacted):
                return None
            watching = partition.watchers.watching
            if watching:
                cost += len(watching) // WATCHERS_PER_APPEND
            partitions.append(partition)
        return partitions if cost <= APPENDS_PER_SLICE_MAX or len(batches) == 1 else None

    def _finish(
        self,
        request: PlainProduce,
        partitions: list[Partition],
        appended: list[AppendedBatch],
        ends: list[int],
        failed: dict[int, PartitionProduceResponse],
        context: RequestContext,
    ) -> Any:
        """Return the response, a future of it, or None for acks=0.  Raises UnansweredRequestFailed."""
        _, _, _, _, acks, timeout_ms, _, topics, batches = request
        results = [failed.get(at) or _response(result, ErrorCode.NONE) for at, result in enumerate(appended)]
        waiting = [
            UncommittedAppend(
                partition,
                end,
                result,
                min_insync_replicas=self._replicas.min_insync_replicas(batch[0]) if acks == ALL_IN_SYNC else None,
            )
            for batch, partition, end, result in zip(batches, partitions, ends, results, strict=True)
            if end != _NOTHING and (acks == ALL_IN_SYNC or (acks == 1 and partition.log.awaits_flush))
        ]
        if not waiting and _NOTHING not in ends:
            context.successes = len(ends)
        rest = iter(results)
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(name=name.decode(), partition_responses=[next(rest) for _ in range(count)])
                for name, count in topics
            ]
        )
        create_future = partial(waiting_reply, context, may_overlap=True)
        return respond(response, waiting, acks, timeout_ms, self._purgatory, create_future)


def _response(result: AppendedBatch, code: ErrorCode) -> PartitionProduceResponse:
    index, base_offset, append_time_ms, log_start_offset = result
    return PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=log_start_offset,
    )
