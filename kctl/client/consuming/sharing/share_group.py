"""A member of a share group: its heartbeats, one share session per broker, records that wait, acknowledgements.

    poll -> fetches of all brokers -> records, each locked for this member -> acknowledgements -> brokers

Records are fetched when none wait, so that their acquisition locks do not expire here.  Requests go on if the caller of
`poll` is cancelled.  The rules are in kctl.client.consuming.sharing.session and in kctl.client.consuming.membership,
whose consumer protocol is the one of share groups without revocations: partitions are not owned by one member.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import Connection, ConnectionLost
from kctl.client.consuming.fetching.fetcher import Decode
from kctl.client.consuming.membership.consumer_protocol import ConsumerMember
from kctl.client.consuming.membership.member import (
    Disconnected,
    HeartbeatDue,
    Left,
    MembershipSettings,
    Phase,
    PollOverdue,
    PollRequested,
    Revoked,
)
from kctl.client.consuming.membership.runner import MembershipRunner, require_share_groups
from kctl.client.consuming.sharing.acquired import acquired_records
from kctl.client.consuming.sharing.session import (
    AcknowledgeType,
    Pending,
    SessionRequest,
    ShareLimits,
    ShareSession,
    TopicIdPartition,
    acknowledge_request,
    acknowledged,
    fetch_request,
)
from kctl.client.metadata import ClusterMetadata
from kctl.client.retrying import LEADER_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.protocol.apis.share_acknowledge import ShareAcknowledgeResponse
from kctl.protocol.apis.share_fetch import PartitionData, ShareFetchResponse
from kctl.system.reference_cycles import copy_of

logger = logging.getLogger(__name__)

R = TypeVar("R")

PURPOSE = "share"
"""The connections of share sessions: a broker ends the sessions of a connection that is closed."""
BEAT_CHECK_MS = 100
RENEW_VERSION_MIN = 2
"""First version of ShareAcknowledge with renewals."""
IDLE_MS = 100
_LOST_SESSION = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
_MOVED = LEADER_MOVED | {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH}

OnAcknowledged = Callable[[TopicPartition, tuple[int, ...], ApiError | None], None]
"""Gets a partition, offsets of records whose acknowledgement has a response, and its error."""


class Delivery(NamedTuple, Generic[R]):
    """A record that this member holds."""

    tp: TopicPartition
    record: R
    delivery_count: int
    session: ShareSession
    partition: TopicIdPartition
    locked_until_ms: int


@dataclass(slots=True)
class ShareCounts:
    """Totals since the subscription."""

    records: int = 0
    bytes: int = 0
    requests: int = 0
    errors: int = 0
    acknowledged: int = 0
    acknowledgement_errors: int = 0


class ShareGroup(Generic[R]):
    """A member of a share group.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        settings: MembershipSettings,
        decode: Decode[R],
        limits: ShareLimits,
        on_acknowledged: OnAcknowledged = lambda *_: None,
    ) -> None:
        """Prepare the member; `settings` have the protocol "share"."""
        self.counts = ShareCounts()
        self.lock_timeout_ms: int | None = None
        """The acquisition lock time-out of the group, from the last response."""
        self.changed = asyncio.Event()
        """Set when there may be records, an error or the outcome of acknowledgements."""
        self._client = client
        self._decode = decode
        self._limits = limits
        self._on_acknowledged = on_acknowledged
        self._runner = MembershipRunner(client, settings, lambda _: None)
        self._sessions: dict[int, ShareSession] = {}
        self._requests: dict[int, asyncio.Task[None]] = {}
        """The open request of each broker."""
        self._retry_ms: dict[int, int] = {}
        self._waiting: deque[Delivery[R]] = deque()
        self._names: dict[UUID, str] = {}
        """Of the topics that were fetched."""
        self._metadata: ClusterMetadata | None = None
        self._metadata_end_ms = 0
        self._outcomes: dict[TopicPartition, ApiError | None] = {}
        """Of acknowledgements since the last `flush`."""
        self._failure: KctlError | None = None
        self._beating: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[None] | None = None
        self._polled_ms = self._runner.now_ms()
        self._is_polling = False
        self.is_interrupted = False

    @property
    def member(self) -> ConsumerMember:
        """The state of the member."""
        member = self._runner.member
        assert isinstance(member, ConsumerMember)
        return member

    @property
    def joins(self) -> int:
        """How many times the group was joined."""
        return self._runner.joins

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that the member fetches, as others may."""
        return self.member.owned

    # Records.

    def interrupt(self) -> None:
        """Make the `poll` in progress return without records."""
        self.is_interrupted = True
        self.changed.set()

    async def poll(self, end_s: float, count_max: int) -> list[Delivery[R]]:
        """Return records that this member holds from now on; empty if none arrived until a time of the loop.

        Joins the group first if necessary.  Raises ApiError, CorruptBatch, and ClusterUnreachable if no broker has
        responded to the join.
        """
        loop = asyncio.get_running_loop()
        self._polled_ms, self._is_polling = self._runner.now_ms(), True
        try:
            await self._join()
            while True:
                self.changed.clear()
                self._raise_failure()
                if records := self._take(count_max):
                    self.send_due(fetches=False)
                    return records
                if loop.time() >= end_s or self.is_interrupted:
                    return []
                await self._look_up_leaders()
                self.send_due(fetches=True)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(end_s, loop.time() + IDLE_MS / 1000)):
                        await self.changed.wait()
        finally:
            self._polled_ms, self._is_polling = self._runner.now_ms(), False

    def _take(self, count_max: int) -> list[Delivery[R]]:
        """Return the records whose locks have not expired: those of the others are handed out again by the broker."""
        taken: list[Delivery[R]] = []
        now_ms = self._runner.now_ms()
        while self._waiting and len(taken) < count_max:
            delivery = self._waiting.popleft()
            if now_ms < delivery.locked_until_ms:
                taken.append(delivery)
        return taken

    def put_back(self, deliveries: Sequence[Delivery[R]]) -> None:
        """Make these records, the last ones that `poll` has returned, the first ones of the next `poll`."""
        self._waiting.extendleft(reversed(deliveries))

    def acknowledge(self, delivery: Delivery[R], kind: AcknowledgeType) -> None:
        """Acknowledge the record with the next request to its broker."""
        delivery.session.acknowledge(delivery.partition, delivery.record.offset, kind)  # type: ignore[attr-defined]

    async def require_renewals(self) -> None:
        """Raise ApiError unless the brokers renew acquisition locks."""
        connection = await self._client.any_broker()
        if not connection.versions.has(79, RENEW_VERSION_MIN):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{connection.address} does not renew acquisition locks (KIP-1222), which needs Kafka 4.2 or newer",
            )

    async def flush(self, timeout_ms: int) -> dict[TopicPartition, ApiError | None]:
        """Send all acknowledgements; return the outcome of each partition.

        Raises ClusterUnreachable after the timeout.
        """
        deadline = self._runner.now_ms() + timeout_ms
        while self._has_acknowledgements():
            self.changed.clear()
            self.send_due(fetches=False)
            self._fail_acknowledgements_without_session()
            left_ms = deadline - self._runner.now_ms()
            if not self._has_acknowledgements():
                break
            if left_ms <= 0:
                group_id = self.member.settings.group_id
                raise ClusterUnreachable(f"group '{group_id}': no acknowledgement within {timeout_ms} ms")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_ms, IDLE_MS) / 1000):
                    await self.changed.wait()
        outcomes, self._outcomes = self._outcomes, {}
        return outcomes

    def _has_acknowledgements(self) -> bool:
        return any(
            session.pending or (session.open_request is not None and session.open_request.acknowledgements)
            for session in self._sessions.values()
        )

    def _fail_acknowledgements_without_session(self) -> None:
        """Handle the loss of a session by the broker, which has released its records: their acknowledgements have
        failed.
        """
        for session in self._sessions.values():
            if session.epoch == 0 and session.open_request is None and session.pending:
                self._fail(session.lost(), ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND))

    async def close(self, timeout_ms: int) -> None:
        """Send acknowledgements, release the other records by closing the sessions, and leave the group."""
        self._waiting.clear()
        beating, self._beating = self._beating, None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.gather(*(self._close_session(broker) for broker in list(self._sessions)))
        except TimeoutError:
            logger.warning("share sessions were not closed in time group=%s", self.member.settings.group_id)
        finally:
            tasks = [*self._requests.values(), *(task for task in (beating, self._joining) if task is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._fail_acknowledgements_without_session()
            self._runner.is_closing = True
            with contextlib.suppress(KctlError, TimeoutError):  # The session of the member expires in the end.
                async with asyncio.timeout(max(timeout_ms, IDLE_MS) / 1000):
                    await self._runner.perform_all(self._runner.step(Left()))

    async def _close_session(self, broker: int) -> None:
        if (task := self._requests.get(broker)) is not None:
            await asyncio.wait([task])
        if (request := self._sessions[broker].last_request()) is not None:
            await self._send(broker, request)

    # Membership.

    async def _join(self) -> None:
        if self._beating is None:
            self._beating = asyncio.create_task(self._keep_beating(), name="share group heartbeats")
        self._raise_failure()
        while self.member.phase in {Phase.OUTSIDE, Phase.JOINING}:
            if self._joining is None or self._joining.done():
                self._joining = asyncio.create_task(self._runner.drive(PollRequested()), name="share group join")
            try:
                await asyncio.shield(self._joining)
            except KctlError:
                self._runner.step(Disconnected(self.member.phase))  # The outcome of the request is unknown.
                self._runner.forget_coordinator()
                self._runner.renew_deadline()
                raise
            self._raise_failure()
        self._runner.renew_deadline()

    async def _keep_beating(self) -> None:
        while True:
            await self._client.transport.sleep(BEAT_CHECK_MS)
            try:
                await self._leave_if_overdue()
                await self._runner.drive(HeartbeatDue())
                if self.member.phase is Phase.REVOKING:  # Nothing is to be done before: others read it as well.
                    await self._runner.drive(Revoked())
            except ClusterUnreachable:
                continue
            except ApiError as error:
                self._runner.failure = copy_of(error)
                self.changed.set()
                return

    async def _leave_if_overdue(self) -> None:
        """Leaves the group if the application does not poll; the next `poll` joins it again."""
        interval_ms = self.member.settings.rebalance_timeout_ms
        if self._is_polling or self._runner.now_ms() < self._polled_ms + interval_ms:
            return
        if actions := self._runner.step(PollOverdue()):
            group_id = self.member.settings.group_id
            logger.warning("left the group: poll is overdue group=%s max_poll_interval_ms=%d", group_id, interval_ms)
            with contextlib.suppress(KctlError):
                await self._runner.perform_all(actions)

    def _raise_failure(self) -> None:
        if self._runner.failure is not None:
            raise copy_of(self._runner.failure)
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure

    # Sessions.

    async def _look_up_leaders(self) -> None:
        """Metadata of the assigned topics, when it is old or lacks one."""
        names = {tp.topic for tp in self.member.owned}
        known = self._metadata.topics if self._metadata is not None else {}
        if not names or (names <= known.keys() and self._runner.now_ms() < self._metadata_end_ms):
            return
        settings = self._client.settings
        try:
            self._metadata = await self._client.refreshed(names)
            self._metadata_end_ms = self._runner.now_ms() + settings.metadata_max_age_ms
        except (ConnectionLost, ClusterUnreachable) as lost:
            logger.warning("cannot look up leaders: %s", lost)
            await self._client.transport.sleep(settings.retry_backoff_ms)

    def _wanted(self) -> dict[int, set[TopicIdPartition]]:
        """Return the assigned partitions by leader."""
        wanted: dict[int, set[TopicIdPartition]] = {}
        if self._metadata is None:
            return wanted
        for tp, topic_id in self.member.owned_ids.items():
            self._names[topic_id] = tp.topic
            leader, code = self._metadata.leader_of(tp)
            if code is ErrorCode.NONE:
                wanted.setdefault(leader, set()).add(TopicIdPartition(topic_id, tp.partition))
            else:
                self._refresh_soon()
        return wanted

    def send_due(self, *, fetches: bool) -> None:
        """Send what the sessions without an open request have to send."""
        wanted = self._wanted()
        now_ms = self._runner.now_ms()
        for broker in {*wanted, *self._sessions}:
            if broker in self._requests or now_ms < self._retry_ms.get(broker, 0):
                continue
            session = self._sessions.setdefault(broker, ShareSession())
            request = session.next_request(wanted.get(broker, set()), fetches=fetches)
            if request is not None:
                task = asyncio.create_task(self._send(broker, request), name="share session")
                self._requests[broker] = task
                task.add_done_callback(lambda _, broker=broker: self._note_end(broker))  # type: ignore[misc]

    def _note_end(self, broker: int) -> None:
        self._requests.pop(broker, None)
        self.changed.set()

    async def _send(self, broker: int, request: SessionRequest) -> None:
        """One request of a session, and what its response means."""
        session = self._sessions[broker]
        connection: Connection | None = None
        member = self.member
        group_id, member_id = member.settings.group_id, member.member_id
        try:
            metadata = self._metadata
            assert metadata is not None
            if broker not in metadata.brokers:
                raise ConnectionLost(f"broker {broker} is not in the metadata")
            connection = await self._client.connected(metadata.brokers[broker], purpose=PURPOSE)
            require_share_groups(connection, group_id)
            response: ShareFetchResponse | ShareAcknowledgeResponse
            if request.fetches:
                message = fetch_request(request, group_id, member_id, self._limits)
                response = await connection.send(message, ShareFetchResponse)
            else:
                acknowledgement = acknowledge_request(request, group_id, member_id)
                response = await connection.send(acknowledgement, ShareAcknowledgeResponse)
        except (ConnectionLost, ApiError) as error:
            if isinstance(error, ConnectionLost):
                logger.warning("lost a share session broker=%d: %s", broker, error)
            else:
                self._failure = copy_of(error)
            self.counts.errors += 1
            self._retry_ms[broker] = self._runner.now_ms() + self._client.settings.retry_backoff_ms
            self._refresh_soon()
            self._lose(session, ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)))
            if connection is not None:
                await connection.close()
            return
        except BaseException:
            self._lose(session, ApiError(ErrorCode.NETWORK_EXCEPTION, "the request was cancelled"))
            raise
        self.counts.requests += 1
        self._note_outcomes(request.acknowledgements, acknowledged(request, response))
        code = ErrorCode.of(response.error_code)
        session.completed(code)
        if response.acquisition_lock_timeout_ms > 0:
            self.lock_timeout_ms = response.acquisition_lock_timeout_ms
        if code is not ErrorCode.NONE:
            self.counts.errors += 1
            self._lose(session, ApiError(code))
            self._retry_ms[broker] = self._runner.now_ms() + self._client.settings.retry_backoff_ms
            if code not in _LOST_SESSION and not code.retriable:
                self._failure = ApiError(code, f"group '{group_id}': {response.error_message or code.description}")
        elif isinstance(response, ShareFetchResponse):
            self._fetched(session, response)

    def _fetched(self, session: ShareSession, response: ShareFetchResponse) -> None:
        locked_until_ms = self._runner.now_ms() + response.acquisition_lock_timeout_ms
        for topic in response.responses:
            name = self._names.get(topic.topic_id)
            for data in topic.partitions:
                partition = TopicIdPartition(topic.topic_id, data.partition_index)
                if name is not None:
                    tp = TopicPartition(name, data.partition_index)
                    self._fetched_partition(session, partition, tp, data, locked_until_ms)

    def _fetched_partition(
        self,
        session: ShareSession,
        partition: TopicIdPartition,
        tp: TopicPartition,
        data: PartitionData,
        locked_until_ms: int,
    ) -> None:
        code = ErrorCode.of(data.error_code)
        if code in _MOVED:
            self.counts.errors += 1
            self._refresh_soon()
        elif code is not ErrorCode.NONE:
            self.counts.errors += 1
            if not code.retriable:
                self._failure = ApiError(code, f"{tp}: {data.error_message or code.description}")
        if not data.acquired_records:
            return
        buffer = data.records if isinstance(data.records, memoryview) else memoryview(bytes(data.records))  # type: ignore[call-overload]
        acquired = acquired_records(tp, buffer, data.acquired_records, self._decode)
        session.acknowledge_ranges(partition, acquired.ranges)
        self.counts.records += len(acquired.records)
        self.counts.bytes += len(buffer)
        self._waiting.extend(
            Delivery(tp, record, count, session, partition, locked_until_ms) for record, count in acquired.records
        )
        if acquired.damage is not None:
            self._failure = acquired.damage

    def _refresh_soon(self) -> None:
        self._metadata_end_ms = min(
            self._metadata_end_ms, self._runner.now_ms() + self._client.settings.retry_backoff_ms
        )

    # Outcomes of acknowledgements.

    def _lose(self, session: ShareSession, error: ApiError) -> None:
        """Drop what was acquired in the session, which the broker has released: others get these records."""
        self._waiting = deque(delivery for delivery in self._waiting if delivery.session is not session)
        self._fail(session.lost(), error)

    def _fail(self, failed: Pending, error: ApiError) -> None:
        self._note_outcomes(failed, dict.fromkeys(failed, error))

    def _note_outcomes(self, acknowledgements: Pending, outcomes: Mapping[TopicIdPartition, ApiError | None]) -> None:
        for partition, error in outcomes.items():
            offsets = tuple(sorted(acknowledgements[partition].records))
            name = self._names.get(partition.topic_id)
            if not offsets or name is None:
                continue
            tp = TopicPartition(name, partition.partition)
            if error is None:
                self.counts.acknowledged += len(offsets)
                self._outcomes.setdefault(tp, None)
            else:
                self.counts.acknowledgement_errors += len(offsets)
                self._outcomes[tp] = error
            self._on_acknowledged(tp, offsets, None if error is None else copy_of(error))
