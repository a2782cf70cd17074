"""ShareFetch (key 78, versions 1-2): acquires records for a member of a share group, and takes acknowledgements.

Served with `share` in group.coordinator.rebalance.protocols.  Acknowledgements come first, and are stored before the
response.  Then records are acquired, unless there are fewer than min_bytes; the response waits for them for
max_wait_ms.  Each partition is read from its first available offset on, and the response has the batches with acquired
records.  Consecutive records with one delivery count are one range, which is cut where a batch begins after batch_size
records; Kafka returns records that are delivered again in the ranges of their first delivery.

Version notes: 2 the acquire mode (KIP-1206), and renewals (KIP-1222), with which nothing is fetched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.share_acknowledge import LeaderIdAndEpoch
from kctl.protocol.apis.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kctl.security.acls import Operation, ResourceType
from kctl.server.loop.slices import Slices
from kctl.server.replication.fetching.fetch_reading import FetchKey
from kctl.server.requests.context import RequestContext
from kctl.server.requests.purgatory import Purgatory
from kctl.server.share_partitions.manager import READ_BYTES_MAX, ShareManager
from kctl.server.share_partitions.service import Acknowledged, ShareService
from kctl.server.share_partitions.sessions import INITIAL_EPOCH, MemberKey, ShareSession, TopicIdPartition
from kctl.server.share_partitions.values import ShareKey

RECORD_LIMIT = 1
"""The acquire mode in which max_records is never exceeded."""
_READ_PER_SLICE = 8
"""Partitions whose records are read without a pause: each up to a megabyte."""
_WAIT_MS_MAX = 300_000


@dataclass(eq=False, slots=True)
class _Reading:
    """What was acquired so far."""

    results: dict[TopicIdPartition, PartitionData] = field(default_factory=dict)
    records_left: int = 0
    bytes_left: int = 0
    is_done: bool = False
    """There are records or an error."""


class ShareFetchHandler:
    """Serves ShareFetch requests.  Owner: event loop."""

    def __init__(
        self, service: ShareService, manager: ShareManager, purgatory: Purgatory[FetchKey], *, fetch_max_bytes: int
    ) -> None:
        self._service = service
        self._manager = manager
        self._purgatory = purgatory
        self._fetch_max_bytes = fetch_max_bytes

    async def handle(self, request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
        """Serve one request and return the response."""
        group_id, member_id = request.group_id or "", request.member_id or ""
        try:
            context.check(Operation.READ, ResourceType.GROUP, group_id)
            session = self._session(request, MemberKey(group_id, member_id), context)
        except ApiError as error:
            message = error.message or error.code.description
            return ShareFetchResponse(error_code=error.code, error_message=message, responses=[], node_endpoints=[])
        acknowledged = await self._acknowledge(request, MemberKey(group_id, member_id), context)
        reading = _Reading(records_left=request.max_records, bytes_left=min(request.max_bytes, self._fetch_max_bytes))
        if session is not None and not request.is_renew_ack:
            await self._read(request, context, session, reading, waits=not acknowledged)
        for partition, outcome in acknowledged.items():
            result = reading.results.get(partition)
            if result is None:
                result = reading.results[partition] = _result(partition)
            result.acknowledge_error_code = outcome.error
            result.acknowledge_error_message = outcome.message
        return self._response(group_id, reading, context)

    def _session(self, request: ShareFetchRequest, key: MemberKey, context: RequestContext) -> ShareSession | None:
        """Return the session of the request; None if it closes the session.  Raises ApiError."""
        added = [
            TopicIdPartition(topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]
        has_acknowledgements = any(
            partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
        )
        forgotten = [
            TopicIdPartition(topic.topic_id, number)
            for topic in request.forgotten_topics_data
            for number in topic.partitions
        ]
        if request.share_session_epoch == INITIAL_EPOCH and has_acknowledgements:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a share session does not begin with acknowledgements")
        return self._service.session(key, request.share_session_epoch, added, forgotten, context.peer)

    async def _acknowledge(
        self, request: ShareFetchRequest, key: MemberKey, context: RequestContext
    ) -> dict[TopicIdPartition, Acknowledged]:
        requested = {
            TopicIdPartition(topic.topic_id, partition.partition_index): partition.acknowledgement_batches
            for topic in request.topics
            for partition in topic.partitions
            if partition.acknowledgement_batches
        }
        is_renewal = request.is_renew_ack
        outcomes = await self._service.acknowledge(key, requested, context, may_renew=is_renewal)
        if request.share_session_epoch < INITIAL_EPOCH:
            self._service.close(key)
        return outcomes

    async def _read(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        session: ShareSession,
        reading: _Reading,
        *,
        waits: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(max(request.max_wait_ms, 0), _WAIT_MS_MAX) / 1000
        min_bytes = min(request.min_bytes, reading.bytes_left)
        while True:
            left_ms = int((deadline_s - loop.time()) * 1000)
            is_last = not waits or left_ms <= 0
            names = [self._service.name(partition) for partition in session.partitions]
            keys = [tp for tp in names if tp is not None]
            wait = _Wait(self._manager, request.group_id or "")
            if min_bytes > 1 and not is_last:
                # Before the sizes are added up in slices, so that no change is missed.
                self._purgatory.watch(wait, keys, left_ms)
            if is_last or min_bytes <= 1 or await self._has_bytes(request, names, min_bytes):
                await self._read_once(request, context, session, reading)
            if reading.is_done or is_last:
                wait.on_timeout()
                return
            if min_bytes <= 1:
                self._purgatory.complete_or_watch(wait, keys, max(int((deadline_s - loop.time()) * 1000), 0))
            await wait.future

    async def _has_bytes(
        self, request: ShareFetchRequest, names: Collection[TopicPartition | None], min_bytes: int
    ) -> bool:
        """Return whether the partitions have so many bytes that can be acquired, or there is an error."""
        size = 0
        slices = Slices(_READ_PER_SLICE)
        async for name in slices.of(names):
            if name is not None:
                size += self._manager.available_bytes(request.group_id or "", name, min_bytes)
            if name is None or size >= min_bytes:
                return True
        return False

    async def _read_once(
        self, request: ShareFetchRequest, context: RequestContext, session: ShareSession, reading: _Reading
    ) -> None:
        slices = Slices(_READ_PER_SLICE)
        async for partition in slices.of(session.rotated()):
            if reading.records_left <= 0 or reading.bytes_left <= 0:
                return
            try:
                await self._read_partition(request, context, partition, reading)
            except ApiError as error:
                result = _result(partition)
                result.error_code, result.error_message = error.code, error.message or error.code.description
                reading.results[partition] = result
                reading.is_done = True

    async def _read_partition(
        self, request: ShareFetchRequest, context: RequestContext, partition: TopicIdPartition, reading: _Reading
    ) -> None:
        group_id, member_id = request.group_id or "", request.member_id or ""
        topic_partition = self._service.checked_name(partition, context)
        key = ShareKey(group_id, partition.topic_id, partition.partition)
        hosted = await self._manager.get(key, topic_partition.topic)
        acquisition = self._manager.acquire(
            hosted,
            member_id,
            records_max=reading.records_left,
            bytes_max=min(reading.bytes_left, READ_BYTES_MAX),
            is_exact=request.share_acquire_mode == RECORD_LIMIT,
            batch_size=request.batch_size,
        )
        if not acquisition.ranges:
            return
        result = _result(partition)
        result.records = acquisition.records
        result.acquired_records = [
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in acquisition.ranges
        ]
        reading.results[partition] = result
        reading.records_left -= sum(last - first + 1 for first, last, _ in acquisition.ranges)
        reading.bytes_left -= len(acquisition.records)
        reading.is_done = True

    def _response(self, group_id: str, reading: _Reading, context: RequestContext) -> ShareFetchResponse:
        topics: dict[object, ShareFetchableTopicResponse] = {}
        for partition, result in reading.results.items():
            topic = topics.setdefault(
                partition.topic_id, ShareFetchableTopicResponse(topic_id=partition.topic_id, partitions=[])
            )
            code = result.error_code or result.acknowledge_error_code
            result.current_leader = self._service.leader(partition, code)
            topic.partitions.append(result)
        leaders = [result.current_leader for result in reading.results.values()]
        return ShareFetchResponse(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=self._manager.settings(group_id).limits.lock_ms,
            responses=list(topics.values()),
            node_endpoints=self._service.endpoints(leaders, context.listener),
        )


class _Wait:
    """Waits until one of the partitions may have records for the group, or for the timeout."""

    def __init__(self, manager: ShareManager, group_id: str) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._manager = manager
        self._group_id = group_id

    def try_complete(self, changed: Collection[FetchKey]) -> bool:
        """Complete if a fetch of one of the changed partitions could return something."""
        is_ready = any(self._manager.has_more(self._group_id, tp) for tp in changed if isinstance(tp, TopicPartition))
        if is_ready:
            self.on_timeout()
        return is_ready

    def on_timeout(self) -> None:
        """Complete, so that the partitions are read again."""
        if not self.future.done():
            self.future.set_result(None)


def _result(partition: TopicIdPartition) -> PartitionData:
    return PartitionData(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        acknowledge_error_code=ErrorCode.NONE,
        current_leader=LeaderIdAndEpoch(),
        records=b"",
        acquired_records=[],
    )
