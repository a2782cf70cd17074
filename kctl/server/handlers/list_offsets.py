"""ListOffsets (key 2, versions 0-11): the offset of the first record at or after a timestamp, or a log's start or end.

-1 means the latest offset: the high watermark, or the last stable offset for read_committed.  -2 means the earliest.  A
timestamp after the last record gets offset -1.  Partitions listed twice get INVALID_REQUEST.  A new leader whose high
watermark has not reached the start of its epoch responds with OFFSET_NOT_AVAILABLE (KIP-207): the high watermark of the
previous leader may have been larger, and its readers would go back.

Replica id -2 is that of a debugging consumer, such as `kctl cluster verify`: followers respond as well, and the latest
offset is the end of the log of this replica.

A search by timestamp that has to read many records continues in a thread (requests/record_work).

Version notes: 0 has a list of segment base offsets; 1 one offset with its timestamp; 2 isolation level; 4 leader
epochs (KIP-320); 5 OFFSET_NOT_AVAILABLE, before it LEADER_NOT_AVAILABLE; 7 timestamp -3 is the first record with the
largest timestamp (KIP-734); 8 -4 is the start of the local log, which is that of the log without remote storage
(KIP-405); 9 and 11 -5 and -6 ask for offsets in remote storage, of which there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from functools import partial

from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.limits import READ_PER_SLICE_MAX
from kctl.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kctl.records.allowance import Allowance
from kctl.security.acls import Operation, ResourceType
from kctl.server.loop.slices import Slices, pause, started
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext
from kctl.server.requests.record_work import RecordWork
from kctl.storage.log.lookup import SCAN_BYTES_MAX, TimestampSearch, scan_allowance
from kctl.system.environment import Clock

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""Of timestamps that stand for an offset."""
READ_COMMITTED = 1
CONSUMER = -1
DEBUGGING_CONSUMER = -2
"""Replica ids of clients: the second compares replicas, so that followers respond, with the end of their logs."""
FIRST_VERSION_WITH_EPOCHS = 4
FIRST_VERSION_WITH_NOT_AVAILABLE = 5
NO_EPOCH = -1


class ListOffsetsHandler:
    """Serves ListOffsets requests.  Owner: event loop."""

    def __init__(self, replicas: ReplicaManager, work: RecordWork, clock: Clock) -> None:
        self._replicas = replicas
        self._work = work
        self._clock = clock

    def handle(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
        """Serve one request: return the response, or an awaitable if it has to wait."""
        return started(self._respond(request, context))

    async def _respond(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        if sum(len(topic.partitions) + 1 for topic in request.topics) > READ_PER_SLICE_MAX:
            # Several such requests may arrive together: each begins in an iteration of its own.
            await pause()
        lookups = _Lookups(request, context.api_version)
        slices = Slices(READ_PER_SLICE_MAX)
        named = Counter(
            (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
        )
        denied: dict[str, bool] = {}
        async for topic in slices.of(request.topics):
            if topic.name not in denied:
                denied[topic.name] = not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            results: list[ListOffsetsPartitionResponse] = []
            lookups.response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
            async for requested in slices.of(topic.partitions):
                result = ListOffsetsPartitionResponse(
                    partition_index=requested.partition_index, error_code=ErrorCode.NONE
                )
                results.append(result)
                try:
                    if denied[topic.name]:
                        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if named[topic.name, requested.partition_index] > 1:
                        raise ApiError(ErrorCode.INVALID_REQUEST)
                    self._look_up(topic.name, requested, result, lookups)
                except ApiError as error:
                    result.error_code = error.code
        return await self._search_long(lookups) if lookups.long else lookups.response

    def _look_up(
        self, topic: str, requested: ListOffsetsPartition, result: ListOffsetsPartitionResponse, lookups: _Lookups
    ) -> None:
        request, version = lookups.request, lookups.version
        partition = self._replicas.partition(topic, requested.partition_index)
        if request.replica_id == DEBUGGING_CONSUMER:
            partition.check_epoch(requested.current_leader_epoch)
        else:
            partition.check_leader(requested.current_leader_epoch)
        upper_bound = _upper_bound(partition, request)
        leader_epoch = NO_EPOCH
        if version == 0:
            result.old_style_offsets = _segment_offsets(partition, requested, upper_bound, self._clock.now_ms())
        elif requested.timestamp == LATEST:
            _check_end_is_known(partition, request, version)
            result.offset = upper_bound
            leader_epoch = partition.leader_epoch
        elif requested.timestamp < EARLIEST and version < FIRST_VERSIONS.get(requested.timestamp, version + 1):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        elif requested.timestamp in {EARLIEST, EARLIEST_LOCAL}:
            result.offset = partition.log.log_start_offset
            leader_epoch = partition.log.leader_epochs.epoch_for(result.offset)
        elif requested.timestamp not in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
            timestamp = requested.timestamp
            if timestamp == MAX_TIMESTAMP:
                timestamp = max(segment.largest_timestamp for segment in partition.log.segments)
            if timestamp >= 0:
                search = partition.log.timestamp_search(timestamp, max_offset=upper_bound)
                self._search(partition, result, search, lookups)
            return
        result.leader_epoch = leader_epoch if version >= FIRST_VERSION_WITH_EPOCHS else NO_EPOCH

    def _search(
        self,
        partition: Partition,
        result: ListOffsetsPartitionResponse,
        search: TimestampSearch,
        lookups: _Lookups,
    ) -> None:
        """Search within the request's allowance on the event loop; a longer search continues in a thread."""
        try:
            while (scan := partition.log.next_scan(search)) is not None:
                with partition.log.disk():
                    scan.run(lookups.allowance)
                if not scan.is_done:
                    lookups.long.append((partition, result, search))
                    return
        except LogDirFailure as failure:
            raise self._storage_error(failure) from failure
        _finish(partition, result, search, lookups)

    async def _search_long(self, lookups: _Lookups) -> ListOffsetsResponse:
        for partition, result, search in lookups.long:
            try:
                while (scan := partition.log.next_scan(search)) is not None:
                    with partition.log.disk():
                        await self._work.run(SCAN_BYTES_MAX, partial(scan.run, scan_allowance()))
                    partition.check_leader()
                _finish(partition, result, search, lookups)
            except LogDirFailure as failure:
                result.error_code = self._storage_error(failure).code
            except ApiError as error:
                result.error_code = error.code
        return lookups.response

    def _storage_error(self, failure: LogDirFailure) -> ApiError:
        self._replicas.log_dir_failed(failure)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR)


class _Lookups:
    """The state of one request."""

    def __init__(self, request: ListOffsetsRequest, version: int) -> None:
        self.request = request
        self.version = version
        self.response = ListOffsetsResponse(topics=[])
        self.allowance = Allowance()
        self.long: list[tuple[Partition, ListOffsetsPartitionResponse, TimestampSearch]] = []
        """Searches to continue in a thread."""


def _finish(
    partition: Partition, result: ListOffsetsPartitionResponse, search: TimestampSearch, lookups: _Lookups
) -> None:
    found = search.found
    if found is None:
        _check_end_is_known(partition, lookups.request, lookups.version)
        return
    result.timestamp, result.offset = found.timestamp, found.offset
    if lookups.version >= FIRST_VERSION_WITH_EPOCHS:
        result.leader_epoch = found.leader_epoch


def _upper_bound(partition: Partition, request: ListOffsetsRequest) -> int:
    if request.replica_id != CONSUMER:
        return partition.log.log_end_offset
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def _check_end_is_known(partition: Partition, request: ListOffsetsRequest, version: int) -> None:
    if request.replica_id == CONSUMER and partition.high_watermark < partition.leader_epoch_start_offset:
        has_code = version >= FIRST_VERSION_WITH_NOT_AVAILABLE
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if has_code else ErrorCode.LEADER_NOT_AVAILABLE)


def _segment_offsets(partition: Partition, requested: ListOffsetsPartition, upper_bound: int, now_ms: int) -> list[int]:
    """Version 0: the end offset, then base offsets of segments last written at or before the timestamp, newest first.

    Times are those of the files, not of records; at most max_num_offsets.  Kafka: Log.legacyFetchOffsetsBefore.
    """
    log = partition.log
    marks = [(max(segment.base_offset, log.log_start_offset), segment.modified_ms) for segment in log.segments]
    if log.active_segment.size:
        marks.append((log.log_end_offset, now_ms))
    if requested.timestamp == EARLIEST:
        marks = marks[:1]
    elif requested.timestamp != LATEST:
        while marks and marks[-1][1] > requested.timestamp:
            marks.pop()
    offsets = [offset for offset, _ in reversed(marks)][: max(requested.max_num_offsets, 0)]
    visible = [offset for offset in offsets if offset <= upper_bound]
    return visible if len(visible) == len(offsets) else [upper_bound, *visible]
