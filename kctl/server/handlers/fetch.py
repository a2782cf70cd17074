"""Fetch (key 1, versions 0-12): records from partitions, as slices of their segment files.

A consumer sees up to the high watermark, or up to the last stable offset when it asks for committed records only; a
follower sees up to the log end, and what it asks for tells how far it has come.  The answer waits until min_bytes are
there, max_wait_ms are over, or there is an error to tell.  The first batch is whole even when it is larger than the
limits (KIP-74), else its reader could not go on.  Sessions: KIP-227, replication/fetch_session.

Version notes: 0-1 get message format 0 and 2-3 format 1 (replication/old_formats); 3 first batch whole; 4 isolation
level; 5 log start offset; 6 KAFKA_STORAGE_ERROR; 7 sessions; 9 leader epochs (KIP-320); 10 zstd; 11 rack; 12 flexible,
last fetched epoch.
Not done: preferred read replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from kctl.environment import Clock, Random
from kctl.errors import ApiError, ErrorCode, LogDirFailure
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kctl.server.replication import old_formats
from kctl.server.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPosition,
    FetchSession,
    FetchSessionCache,
)
from kctl.server.replication.isr_changes import IsrChanges
from kctl.server.replication.partition import ANY_EPOCH, Partition
from kctl.server.replication.replica_manager import ReplicaManager
from kctl.server.requests.context import RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.storage.lookup import RecordsSlice

READ_COMMITTED = 1
FIRST_VERSION_WITH_STORAGE_ERROR = 6
FIRST_VERSION_OF_SESSIONS = 7
EMPTY = b""


class FetchHandler:
    """Owner: event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory[TopicPartition],
        sessions: FetchSessionCache,
        isr_changes: IsrChanges,
        *,
        clock: Clock,
        random: Random,
        fetch_max_bytes: int,
    ) -> None:
        self._replicas = replicas
        self._purgatory = purgatory
        self._sessions = sessions
        self._isr_changes = isr_changes
        self._clock = clock
        self._random = random
        self._fetch_max_bytes = fetch_max_bytes

    def handle(self, request: FetchRequest, context: RequestContext) -> FetchResponse | asyncio.Future[FetchResponse]:
        now_ms = self._clock.monotonic_ms()
        try:
            session = self._session(request, context.api_version, now_ms)
        except ApiError as error:
            return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
        positions = list(session.positions.values()) if session else list(_positions(request))
        if request.replica_id >= 0:
            self._note_follower(request.replica_id, positions, now_ms)
        fetch = Fetch(
            self._replicas,
            positions,
            replica_id=request.replica_id,
            is_committed_only=request.isolation_level == READ_COMMITTED,
            min_bytes=request.min_bytes,
            max_bytes=min(request.max_bytes, self._fetch_max_bytes),
            version=context.api_version,
        )
        wants_session = request.session_epoch == INITIAL_EPOCH and context.api_version >= FIRST_VERSION_OF_SESSIONS
        delayed = DelayedFetch(self, fetch, session, wants_session=wants_session)
        if fetch.is_ready(request.max_wait_ms):
            return delayed.response()
        delayed.future = asyncio.get_running_loop().create_future()
        keys = [position.topic_partition for position in positions]
        self._purgatory.complete_or_watch(delayed, keys, request.max_wait_ms)
        return delayed.future

    def _session(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession | None:
        """The session that an incremental request goes on with; None for a full request."""
        if version < FIRST_VERSION_OF_SESSIONS:
            return None
        if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
            self._sessions.close(request.session_id)
            return None
        session = self._sessions.resume(request.session_id, request.session_epoch, now_ms)
        forgotten = (TopicPartition(t.topic, p) for t in request.forgotten_topics_data for p in t.partitions)
        session.update(_positions(request), forgotten)
        if not session.positions:
            self._sessions.close(session.session_id)
        return session

    def _note_follower(self, replica_id: int, positions: list[FetchPosition], now_ms: int) -> None:
        """What a follower asks for is what it has: the high watermark may move, and the follower may be in sync."""
        for position in positions:
            partition = self._replicas.partitions.get(position.topic_partition)
            if partition is None or not partition.is_leader or replica_id not in partition.followers:
                continue
            if position.current_leader_epoch not in {ANY_EPOCH, partition.leader_epoch}:
                continue
            has_moved = partition.record_fetch(replica_id, position.fetch_offset, position.log_start_offset, now_ms)
            self._isr_changes.may_expand(partition, replica_id)
            if has_moved:
                self._replicas.partition_moved(position.topic_partition)

    def create_session(self, fetch: Fetch) -> FetchSession | None:
        """A new session for a full request, or None when the cache is full."""
        session_id = self._random.randrange(1, 1 << 31)
        return self._sessions.create(
            session_id, fetch.positions, is_follower=fetch.replica_id >= 0, now_ms=self._clock.monotonic_ms()
        )


@dataclass(slots=True)
class _Reading:
    """What one look at all partitions gave."""

    answers: dict[TopicPartition, PartitionData]
    record_bytes: dict[TopicPartition, int]
    total_bytes: int
    has_error: bool


class Fetch:
    """The partitions of one request and how they are read."""

    def __init__(
        self,
        replicas: ReplicaManager,
        positions: list[FetchPosition],
        *,
        replica_id: int,
        is_committed_only: bool,
        min_bytes: int,
        max_bytes: int,
        version: int,
    ) -> None:
        self.positions = positions
        self.replica_id = replica_id
        self._replicas = replicas
        self._is_committed_only = is_committed_only
        self._min_bytes = min_bytes
        self._version = version
        self._magic = old_formats.magic_for(version)
        self._answer_max_bytes = max_bytes
        self._max_bytes = max_bytes if self._magic is None else min(max_bytes, old_formats.SOURCE_BYTES_MAX)
        self._last: _Reading | None = None

    def is_ready(self, max_wait_ms: int) -> bool:
        """Whether the answer goes out now."""
        reading = self.read()
        is_enough = reading.total_bytes >= self._min_bytes
        is_ready = max_wait_ms <= 0 or not self.positions or reading.has_error or is_enough
        if is_ready and self._magic is not None:
            self._take_back(reading, self._magic)
            return max_wait_ms <= 0 or not self.positions or reading.has_error or reading.total_bytes > 0
        return is_ready

    def could_have_more(self) -> bool:
        """A cheap look before reading again: anything beyond a fetch position, or a partition that is not as it was."""
        for position in self.positions:
            partition = self._replicas.partitions.get(position.topic_partition)
            if partition is None or not partition.is_leader or partition.log.log_start_offset > position.fetch_offset:
                return True
            if (
                self._upper_bound(partition) > position.fetch_offset
                or partition.log.log_end_offset < position.fetch_offset
            ):
                return True
        return False

    def read(self) -> _Reading:
        """Reads all partitions in order until max_bytes are used up."""
        answers: dict[TopicPartition, PartitionData] = {}
        record_bytes: dict[TopicPartition, int] = {}
        total = 0
        has_error = False
        for position in self.positions:
            # Only the first partition with records may exceed the limit, so that every reader gets on.
            left = self._max_bytes - total
            answer = self._read_one(position, left, is_first=total == 0)
            answers[position.topic_partition] = answer
            size = len(answer.records) if answer.records is not None else 0
            if size:
                record_bytes[position.topic_partition] = size
                total += size
            has_error = has_error or answer.error_code != ErrorCode.NONE or answer.diverging_epoch is not None
        self._last = _Reading(answers, record_bytes, total, has_error)
        return self._last

    def _take_back(self, reading: _Reading, magic: int) -> None:
        """Put messages of an old format in the place of what was read, or what makes that impossible."""
        reading.total_bytes = 0
        for position in self.positions:
            answer = reading.answers[position.topic_partition]
            if isinstance(answer.records, RecordsSlice):
                try:
                    left = max(self._answer_max_bytes - reading.total_bytes, 0)
                    answer.records = self._messages(position, answer.records, magic, left)
                except ApiError as error:
                    answer = reading.answers[position.topic_partition] = self._refusal(answer.partition_index, error)
                    reading.has_error = True
            size = len(answer.records) if answer.records is not None else 0
            reading.record_bytes[position.topic_partition] = size
            reading.total_bytes += size

    def _messages(self, position: FetchPosition, records: RecordsSlice, magic: int, max_bytes: int) -> bytes:
        partition = self._replicas.partition(*position.topic_partition)
        try:
            return old_formats.messages_in(
                partition.log,
                records,
                magic,
                fetch_offset=position.fetch_offset,
                max_bytes=min(position.partition_max_bytes, max_bytes),
                max_offset=self._upper_bound(partition),
            )
        except LogDirFailure as failure:
            self._replicas.log_dir_failed(failure)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from failure

    def last(self) -> _Reading:
        """The latest reading."""
        return self._last if self._last is not None else self.read()

    def _upper_bound(self, partition: Partition) -> int:
        if self.replica_id >= 0:
            return partition.log.log_end_offset
        return partition.last_stable_offset if self._is_committed_only else partition.high_watermark

    def _read_one(self, position: FetchPosition, max_bytes: int, *, is_first: bool) -> PartitionData:
        topic, index = position.topic_partition
        try:
            partition = self._replicas.partition(topic, index)
            partition.check_leader(position.current_leader_epoch)
            return self._read_led(partition, position, max_bytes, is_first=is_first)
        except LogDirFailure as failure:
            self._replicas.log_dir_failed(failure)
            return self._refusal(index, ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
        except ApiError as error:
            return self._refusal(index, error)

    def _read_led(
        self, partition: Partition, position: FetchPosition, max_bytes: int, *, is_first: bool
    ) -> PartitionData:
        log = partition.log
        offset = position.fetch_offset
        answer = PartitionData(
            partition_index=partition.topic_partition.partition,
            error_code=ErrorCode.NONE,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._is_committed_only else None,
            records=EMPTY,
        )
        if position.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(position.last_fetched_epoch)
            if epoch >= 0 and (epoch < position.last_fetched_epoch or end_offset < offset):
                answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                return answer
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self._version < old_formats.FIRST_VERSION_WITH_ZSTD:
            old_formats.check_allowed(log, self._version, is_follower=self.replica_id >= 0)
        upper_bound = self._upper_bound(partition)
        limit = min(max_bytes, position.partition_max_bytes)
        if offset >= upper_bound or (limit <= 0 and not is_first):
            return answer
        records = log.read(offset, max(limit, 0), max_offset=upper_bound, min_one_batch=is_first)
        if self._version <= old_formats.LAST_VERSION_WITH_HARD_LIMITS and (
            len(records) > position.partition_max_bytes or (not len(records) and limit == position.partition_max_bytes)
        ):
            answer.records = old_formats.cut_off(offset, position.partition_max_bytes)
            return answer
        if not len(records):
            return answer
        answer.records = records
        if self._is_committed_only:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in log.aborted_transactions(offset, records.upper_bound(upper_bound))
            ]
        return answer

    def _refusal(self, index: int, error: ApiError) -> PartitionData:
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version < FIRST_VERSION_WITH_STORAGE_ERROR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # Which makes readers that do not know the other look for a leader.
        return PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=EMPTY,
        )


class DelayedFetch:
    """A fetch until there is enough to answer."""

    def __init__(
        self, handler: FetchHandler, fetch: Fetch, session: FetchSession | None, *, wants_session: bool
    ) -> None:
        self.future: asyncio.Future[FetchResponse] | None = None
        self._handler = handler
        self._fetch = fetch
        self._session = session
        self._wants_session = wants_session

    def try_complete(self) -> bool:
        if not self._fetch.could_have_more() or not self._fetch.is_ready(max_wait_ms=1):
            return False
        self._answer()
        return True

    def on_timeout(self) -> None:
        self._fetch.is_ready(max_wait_ms=0)
        self._answer()

    def response(self) -> FetchResponse:
        """Answers with the latest reading."""
        reading = self._fetch.last()
        session = self._session
        if session is not None:
            told = session.changes(reading.answers, reading.record_bytes)
            answers = {topic_partition: reading.answers[topic_partition] for topic_partition in told}
            return FetchResponse(error_code=ErrorCode.NONE, session_id=session.session_id, responses=_by_topic(answers))
        if self._wants_session and reading.answers:
            session = self._handler.create_session(self._fetch)
            if session is not None:
                session.changes(reading.answers, reading.record_bytes)
        return FetchResponse(
            error_code=ErrorCode.NONE,
            session_id=session.session_id if session else NO_SESSION,
            responses=_by_topic(reading.answers),
        )

    def _answer(self) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(self.response())


def _positions(request: FetchRequest) -> Iterable[FetchPosition]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield FetchPosition(
                TopicPartition(topic.topic, partition.partition),
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )


def _by_topic(answers: dict[TopicPartition, PartitionData]) -> list[FetchableTopicResponse]:
    topics: dict[str, list[PartitionData]] = {}
    for topic_partition, answer in answers.items():
        topics.setdefault(topic_partition.topic, []).append(answer)
    return [FetchableTopicResponse(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
