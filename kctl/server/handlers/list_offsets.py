"""ListOffsets (key 2, versions 0-6): the offset of the first record at or after a timestamp, and the two ends.

-1 asks for the latest offset: the high watermark, or the last stable offset for readers of committed records.  -2 asks
for the earliest.  A timestamp after the last record answers offset -1.  Partitions named twice answer INVALID_REQUEST.
A new leader whose high watermark has not reached the start of its epoch does not know the end yet: readers of its
predecessor would go back, so it answers OFFSET_NOT_AVAILABLE (KIP-207).

Version notes: 0 answers a list of segment base offsets; 1 one offset with its timestamp; 2 isolation level; 4 leader
epochs (KIP-320); 5 OFFSET_NOT_AVAILABLE, before it LEADER_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections import Counter

from kctl.environment import Clock
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kctl.server.replication.partition import Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext

LATEST = -1
EARLIEST = -2
READ_COMMITTED = 1
FIRST_VERSION_WITH_EPOCHS = 4
FIRST_VERSION_WITH_NOT_AVAILABLE = 5
NO_EPOCH = -1


class ListOffsetsHandler:
    """Owner: event loop."""

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock

    def handle(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        named = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
        topics: list[ListOffsetsTopicResponse] = []
        for topic in request.topics:
            answers: list[ListOffsetsPartitionResponse] = []
            for asked in topic.partitions:
                try:
                    if named[topic.name, asked.partition_index] > 1:
                        raise ApiError(ErrorCode.INVALID_REQUEST)
                    answers.append(self._answer(topic.name, asked, request, context.api_version))
                except ApiError as error:
                    answers.append(
                        ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)
                    )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _answer(
        self, topic: str, asked: ListOffsetsPartition, request: ListOffsetsRequest, version: int
    ) -> ListOffsetsPartitionResponse:
        partition = self._replicas.partition(topic, asked.partition_index)
        partition.check_leader(asked.current_leader_epoch)
        upper_bound = _upper_bound(partition, request)
        answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=ErrorCode.NONE)
        if version == 0:
            answer.old_style_offsets = _segment_offsets(partition, asked, upper_bound, self._clock.now_ms())
        elif asked.timestamp == LATEST:
            _check_end_is_known(partition, request, version)
            answer.offset = upper_bound
            answer.leader_epoch = partition.leader_epoch
        elif asked.timestamp == EARLIEST:
            answer.offset = partition.log.log_start_offset
            answer.leader_epoch = partition.log.leader_epochs.epoch_for(answer.offset)
        elif asked.timestamp < 0:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        else:
            found = partition.log.offset_for_timestamp(asked.timestamp, max_offset=upper_bound)
            if found is None:
                _check_end_is_known(partition, request, version)
            else:
                answer.timestamp, answer.offset, answer.leader_epoch = found.timestamp, found.offset, found.leader_epoch
        if version < FIRST_VERSION_WITH_EPOCHS:
            answer.leader_epoch = NO_EPOCH
        return answer


def _upper_bound(partition: Partition, request: ListOffsetsRequest) -> int:
    if request.replica_id >= 0:
        return partition.log.log_end_offset
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def _check_end_is_known(partition: Partition, request: ListOffsetsRequest, version: int) -> None:
    if request.replica_id < 0 and partition.high_watermark < partition.leader_epoch_start_offset:
        has_code = version >= FIRST_VERSION_WITH_NOT_AVAILABLE
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if has_code else ErrorCode.LEADER_NOT_AVAILABLE)


def _segment_offsets(partition: Partition, asked: ListOffsetsPartition, upper_bound: int, now_ms: int) -> list[int]:
    """Version 0: where segments begin that were last written at or before the timestamp, newest first, and the end.

    Times are those of the files, not of records; at most max_num_offsets.  Log.legacyFetchOffsetsBefore.
    """
    log = partition.log
    marks = [(max(segment.base_offset, log.log_start_offset), segment.modified_ms) for segment in log.segments]
    if log.active_segment.size:
        marks.append((log.log_end_offset, now_ms))
    if asked.timestamp == EARLIEST:
        marks = marks[:1]
    elif asked.timestamp != LATEST:
        while marks and marks[-1][1] > asked.timestamp:
            marks.pop()
    offsets = [offset for offset, _ in reversed(marks)][: max(asked.max_num_offsets, 0)]
    visible = [offset for offset in offsets if offset <= upper_bound]
    return visible if len(visible) == len(offsets) else [upper_bound, *visible]
