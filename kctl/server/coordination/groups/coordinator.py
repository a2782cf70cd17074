"""The group coordinator of a broker: the API that request handlers use.

Calls are checked in Kafka's order (group id, coordinator active, partition loading, partition led here) and become
events for the group, which the runner processes; each call gets one result, now or later.

While a partition loads, its groups get COORDINATOR_LOAD_IN_PROGRESS and those of other partitions are served.  Two
calls differ because old clients cannot handle that error: Heartbeat gets NONE, SyncGroup REBALANCE_IN_PROGRESS.

Owner: event loop.  Kafka: GroupCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar
from uuid import UUID

from kctl.errors import ApiError, ErrorCode
from kctl.limits import REQUEST_ELEMENTS_PER_SLICE_MAX, SLICE_OBJECTS, Subject, bound
from kctl.model import TopicPartition
from kctl.server.coordination.consumer_groups.group import ConsumerGroup
from kctl.server.coordination.consumer_groups.requests import HeartbeatOutcome, HeartbeatRequest, check_request
from kctl.server.coordination.groups.actions import (
    CommitOutcome,
    DeleteOffsetsOutcome,
    GroupCounts,
    GroupDescription,
    GroupOverview,
    GroupState,
    JoinOutcome,
    LeaveOutcome,
    SyncOutcome,
)
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.events import (
    UNKNOWN_MEMBER,
    CommitRequest,
    DeleteGroup,
    DeleteOffsets,
    Event,
    ExpireOffsets,
    ForgetTopics,
    Heartbeat,
    JoinRequest,
    Leaver,
    LeaveRequest,
    MemberEvent,
    SyncRequest,
    TransactionalCommit,
    memory_of,
    size_of,
)
from kctl.server.coordination.groups.offsets import OffsetAndMetadata, TransactionEnd
from kctl.server.coordination.groups.rules.epochs import fetch_error
from kctl.server.coordination.groups.runner import GroupRunner, HostedGroup
from kctl.server.coordination.hosted import HostedObjects, PeriodicChecks
from kctl.server.coordination.newer_groups import ClusterTopics
from kctl.server.coordination.partitions import CoordinatorPartitions
from kctl.server.coordination.ports import CoordinatorLog
from kctl.server.coordination.replies import ParkedCall, Reply, result_of
from kctl.server.coordination.share_groups.group import NamedPartitions, ShareGroup
from kctl.server.coordination.share_groups.ports import GroupShareStates, NoShareStates, share_keys
from kctl.server.coordination.share_groups.requests import (
    ForgetStates,
    ResetOutcome,
    ResetStates,
    ShareHeartbeat,
    ShareOutcome,
    StatesInitialized,
    check_share_request,
)
from kctl.server.coordination.streams_groups.group import StreamsGroup
from kctl.server.coordination.streams_groups.requests import StreamsHeartbeat, StreamsOutcome, check_streams_request
from kctl.server.loop.slices import pause, sliced, sliced_batches
from kctl.server.share_partitions.values import ShareKey
from kctl.system.environment import Clock, Random, Timer

MEMBER_ID_PREFIX_BYTES_MAX = bound(
    Subject.COORDINATION,
    "client id or group.instance.id in a generated member id",
    32_767 - 37,
    "bytes",
    on_excess="truncated, so that the member id fits into a string of the protocol",
)
GROUPS_MAX = bound(
    Subject.COORDINATION,
    "groups of one coordinator; those without members and offsets are removed",
    200_000,
    "groups",
    on_excess="COORDINATOR_NOT_AVAILABLE for calls that would create a group",
)
MEMBER_METADATA_BYTES_MAX = bound(
    Subject.COORDINATION,
    "protocols of one member with their metadata",
    1 << 20,
    "bytes",
    on_excess="INVALID_REQUEST",
)
"""A group is stored in one record, which has to fit into a batch of 1 MB by default."""
MEMBER_PROTOCOLS_MAX = bound(
    Subject.COORDINATION,
    "protocols of one member",
    100,
    "protocols",
    on_excess="INVALID_REQUEST",
)
"""Each member votes for one of them when a generation begins; consumers have one or two."""
MEMBERS_METADATA_BYTES_MAX = bound(
    Subject.COORDINATION,
    "members of the groups of one coordinator: their ids, also before they have joined, protocols and metadata, and "
    "1,000 bytes for each",
    128 << 20,
    "bytes",
    on_excess="COORDINATOR_NOT_AVAILABLE for members that join",
)
"""Freeing 256 MB at once, when all members of a group have gone, took 28 ms."""
GROUP_OFFSETS_MAX = bound(
    Subject.COORDINATION,
    "partitions with a committed offset in one group",
    200_000,
    "partitions",
    on_excess="OFFSET_METADATA_TOO_LARGE for all partitions of the request",
)


T = TypeVar("T", ConsumerGroup, ShareGroup, StreamsGroup)
NO_MEMBER: tuple[str | None, int] = (None, -1)
OFFSET_OF_NOTHING = OffsetAndMetadata(offset=-1)
DEAD_GROUP = GroupDescription(state=GroupState.DEAD, protocol_type="", protocol="", members=())


class GroupCoordinator:
    """All groups of one broker."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: GroupConfig,
        offsets_log: CoordinatorLog,
        topics: ClusterTopics | None = None,
        topic_names: Callable[[], Iterable[str]] = tuple,
        share_states: GroupShareStates | None = None,
        clock: Clock,
        timer: Timer,
        random: Random,
    ) -> None:
        """`topics` and `topic_names` are for groups of the consumer protocol, and `share_states` for share groups."""
        self._share_states = NoShareStates() if share_states is None else share_states
        self._config = config
        self._random = random
        self._is_active = False
        self._runner = GroupRunner(
            broker_id,
            config=config,
            offsets_log=offsets_log,
            topics=topics,
            topic_names=topic_names,
            share_states=share_states,
            clock=clock,
            timer=timer,
        )
        self._groups: HostedObjects[HostedGroup] = self._runner.hosted
        self.partitions = CoordinatorPartitions(broker_id, offsets_log, self._runner, clock)
        """The partitions of `__consumer_offsets` that this broker leads; notified of changes of leadership."""
        self._checks = PeriodicChecks(timer)

    @property
    def hosted(self) -> HostedObjects[HostedGroup]:
        """The groups of the partitions that this broker leads."""
        return self._groups

    @property
    def counts(self) -> GroupCounts:
        """What has happened since the start of the broker."""
        return self._runner.counts

    def start(self) -> None:
        """Start serving calls; before that they get COORDINATOR_NOT_AVAILABLE."""
        self._is_active = True
        self._checks.every(self._config.offsets_retention_check_interval_ms, self.expire)

    async def stop(self) -> None:
        """Stop; all parked requests get NOT_COORDINATOR."""
        self._is_active = False
        self._checks.cancel()
        await self.partitions.close()
        await self._runner.stop()

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Remove all commits of deleted topics."""
        self._runner.run_all(ForgetTopics(frozenset(topics)))

    def join(self, group_id: str, request: JoinRequest) -> Reply[JoinOutcome]:
        """JoinGroup: completes when the generation is complete, or at once with an error."""
        error = self._status(group_id)
        if error is ErrorCode.NONE and not self._allows_session_timeout(request.session_timeout_ms):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and request.group_instance_id is not None and not self._config.allows_static_members:
            # An older coordinator could not read the instance id from the log.
            error = ErrorCode.UNSUPPORTED_VERSION
        error = error or self._size_error_of(request)
        if error is ErrorCode.NONE and request.member_id != UNKNOWN_MEMBER and group_id not in self._groups:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        error = error or self._creation_error(group_id)
        if error is not ErrorCode.NONE:
            return JoinOutcome(error=error, member_id=request.member_id)
        call: ParkedCall[JoinOutcome] = ParkedCall()
        prefix = request.group_instance_id or request.client_id
        fresh_member_id = "" if request.member_id else self._fresh_member_id(prefix)
        self._run_or_create(group_id, replace(request, token=call, fresh_member_id=fresh_member_id))
        return call.reply()

    def sync(self, group_id: str, request: SyncRequest) -> Reply[SyncOutcome]:
        """SyncGroup: completes when the leader's assignment is stored, or at once."""
        error = self._status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance is lost anyway, and this error makes the member join again without a FindCoordinator.
            return SyncOutcome(ErrorCode.REBALANCE_IN_PROGRESS)
        hosted = self._groups.get(group_id)
        if error is not ErrorCode.NONE or hosted is None:
            return SyncOutcome(error or ErrorCode.UNKNOWN_MEMBER_ID)
        call: ParkedCall[SyncOutcome] = ParkedCall()
        self._runner.run(hosted, replace(request, token=call))
        return call.reply()

    def heartbeat(
        self, group_id: str, *, member_id: str, group_instance_id: str | None, generation: int
    ) -> Reply[ErrorCode]:
        """Heartbeat: refreshes the session; REBALANCE_IN_PROGRESS requests that the member joins."""
        error = self._status(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        hosted = self._groups.get(group_id)
        if error is not ErrorCode.NONE or hosted is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        call: ParkedCall[ErrorCode] = ParkedCall()
        self._runner.run(hosted, Heartbeat(call, member_id, group_instance_id, generation))
        return call.reply()

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> Reply[LeaveOutcome]:
        """LeaveGroup: removes members; one error per leaver."""
        error = self._status(group_id)
        if error is not ErrorCode.NONE:
            return LeaveOutcome(error)
        hosted = self._groups.get(group_id)
        if hosted is None:
            return LeaveOutcome(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leavers))
        call: ParkedCall[LeaveOutcome] = ParkedCall()
        self._runner.run(hosted, LeaveRequest(call, tuple(leavers)))
        return call.reply()

    def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest, version: int) -> Reply[HeartbeatOutcome]:
        """ConsumerGroupHeartbeat: completes when what it changes is replicated, or at once."""
        try:
            check_request(group_id, request, version, self._config.consumer)
            self._check_heartbeat(group_id, request, "Consumer")
        except ApiError as refusal:
            return HeartbeatOutcome(error=refusal.code, message=refusal.message)
        call: ParkedCall[HeartbeatOutcome] = ParkedCall()
        fresh_member_id = "" if request.member_id else str(self._fresh_uuid())
        self._run_or_create(group_id, replace(request, token=call, fresh_member_id=fresh_member_id))
        return call.reply()

    def share_heartbeat(self, group_id: str, request: ShareHeartbeat) -> Reply[ShareOutcome]:
        """ShareGroupHeartbeat: completes when what it changes is replicated, or at once."""
        try:
            check_share_request(group_id, request)
            self._check_heartbeat(group_id, request, "Share")
        except ApiError as refusal:
            return ShareOutcome(error=refusal.code, message=refusal.message)
        call: ParkedCall[ShareOutcome] = ParkedCall()
        self._run_or_create(group_id, replace(request, token=call))
        return call.reply()

    def streams_heartbeat(self, group_id: str, request: StreamsHeartbeat) -> Reply[StreamsOutcome]:
        """StreamsGroupHeartbeat: completes when what it changes is replicated, or at once."""
        try:
            check_streams_request(group_id, request)
            self._check_heartbeat(group_id, request, "Streams")
        except ApiError as refusal:
            return StreamsOutcome(error=refusal.code, message=refusal.message)
        call: ParkedCall[StreamsOutcome] = ParkedCall()
        self._run_or_create(group_id, replace(request, token=call))
        return call.reply()

    def _check_heartbeat(self, group_id: str, request: MemberEvent, kind: str) -> None:
        """Raise ApiError if the group is not served here, or cannot be created."""
        error = self._status(group_id)
        if error is ErrorCode.NONE and request.is_joining and self._runner.metadata_bytes > MEMBERS_METADATA_BYTES_MAX:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = error or self._creation_error(group_id)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        if group_id not in self._groups and not request.is_joining:
            what = "Group" if request.is_leaving else f"{kind} group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")

    def find(self, group_id: str, cls: type[T]) -> T:
        """Return a group of one of the newer types on this broker.

        Raises ApiError: GROUP_ID_NOT_FOUND for a group that is missing or of another type.
        """
        error = self._status(group_id)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        hosted = self._groups.get(group_id)
        if hosted is None or not isinstance(hosted.group.newer, cls):
            what = "not found" if hosted is None else f"is not a {cls.kind} group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return hosted.group.newer

    async def reset_share_states(self, group_id: str, offsets: Mapping[ShareKey, tuple[str, int]]) -> None:
        """Set start offsets of a share group without members; the names of the topics are beside the offsets.

        A group that does not exist is created, as by Kafka.  Raises ApiError.
        """
        error = self._status(group_id) or self._creation_error(group_id)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        topics: dict[UUID, NamedPartitions] = {}
        for key, (name, _) in offsets.items():
            before = topics.get(key.topic_id, NamedPartitions(name, frozenset()))
            topics[key.topic_id] = NamedPartitions(name, before.numbers | {key.partition})
        call: ParkedCall[ResetOutcome] = ParkedCall()
        self._run_or_create(group_id, ResetStates(call, topics))
        outcome = await result_of(call.reply())
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error)
        for key, (_, offset) in offsets.items():
            await self._share_states.initialize(key, outcome.state_epoch, offset)
        hosted = self._groups.get(group_id)
        if hosted is not None:
            self._runner.run(hosted, StatesInitialized(topics, is_over=False))

    async def delete_share_states(self, group_id: str, topic_ids: Collection[UUID] | None = None) -> None:
        """Delete the state of some topics, or all, of a share group without members.  Raises ApiError."""
        share = self.find(group_id, ShareGroup)
        if not share.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        known = share.partitions.known()
        chosen = {topic_id: named for topic_id, named in known.items() if topic_ids is None or topic_id in topic_ids}
        for key, _ in share_keys(group_id, chosen):
            await self._share_states.delete(key)
        hosted = self._groups.get(group_id)
        if hosted is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        call: ParkedCall[ResetOutcome] = ParkedCall()
        self._runner.run(hosted, ForgetStates(call, frozenset(chosen)))
        outcome = await result_of(call.reply())
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error)

    def is_missing(self, group_id: str) -> bool:
        """Return whether this broker coordinates the group, and there is no such group."""
        return group_id not in self._groups and self._status(group_id, may_be_empty=True) is ErrorCode.NONE

    def commit(self, group_id: str, request: CommitRequest) -> Reply[CommitOutcome]:
        """OffsetCommit: completes when the commits are in the log, or at once with an error."""
        error = self._status(group_id, may_be_empty=True)
        if error is ErrorCode.NONE and request.generation >= 0 and group_id not in self._groups:
            # A commit for a group that was deleted or has expired.
            error = ErrorCode.GROUP_ID_NOT_FOUND if request.knows_epochs else ErrorCode.ILLEGAL_GENERATION
        return self._run_commit(group_id, request, error)

    def commit_in_transaction(self, group_id: str, request: TransactionalCommit) -> Reply[CommitOutcome]:
        """TxnOffsetCommit: completes when the commits are in the log, or at once with an error."""
        error = self._status(group_id)
        if error is ErrorCode.NONE and request.producer.producer_id < 0:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if error is ErrorCode.NONE and request.producer.epoch < 0:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.NONE and not self._has_room_in_transaction(group_id, request.producer.producer_id):
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return self._run_commit(group_id, request, error)

    def transaction_completed(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Commit or drop the pending offsets of a producer's transaction, whose marker is in this partition."""
        led = self.partitions.get(partition)
        if led is not None:
            self._runner.transaction_completed(led, TransactionEnd(producer_id, committed))

    def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
        member: tuple[str | None, int] = NO_MEMBER,
    ) -> tuple[ErrorCode, dict[TopicPartition, tuple[ErrorCode, OffsetAndMetadata]]]:
        """OffsetFetch: one error for the group, or one per partition; None means every partition with a commit.

        A partition without a commit is not an error: it has offset -1.  `member` is the id and the epoch of a member of
        the consumer protocol.
        """
        error = self._status(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error, {}
        hosted = self._groups.get(group_id)
        if hosted is None:
            return ErrorCode.NONE, dict.fromkeys(partitions or (), (ErrorCode.NONE, OFFSET_OF_NOTHING))
        if hosted.group.reconciled is not None:
            error = fetch_error(hosted.group.reconciled, *member)
            if error is not ErrorCode.NONE:
                return error, {}
        offsets = hosted.group.offsets
        found: dict[TopicPartition, tuple[ErrorCode, OffsetAndMetadata]] = {}
        for tp in list(offsets) if partitions is None else partitions:
            if require_stable and offsets.is_unstable(tp):
                found[tp] = ErrorCode.UNSTABLE_OFFSET_COMMIT, OFFSET_OF_NOTHING
            else:
                found[tp] = ErrorCode.NONE, offsets.get(tp) or OFFSET_OF_NOTHING
        return ErrorCode.NONE, found

    def committed_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions for which the group has a commit; none if it is not on this broker."""
        hosted = self._groups.get(group_id)
        return [] if hosted is None else list(hosted.group.offsets)

    def describe(self, group_id: str) -> tuple[ErrorCode, GroupDescription]:
        """DescribeGroups: a group that does not exist, or is of the consumer protocol, is described as dead."""
        error = self._status(group_id, may_be_empty=True)
        hosted = self._groups.get(group_id) if error is ErrorCode.NONE else None
        is_classic = hosted is not None and hosted.group.newer is None
        return error, hosted.group.describe() if hosted is not None and is_classic else DEAD_GROUP

    async def groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: the groups on this broker, of the given states and types if any are given, examined in slices.

        While a partition loads the list is incomplete, and the error is COORDINATOR_LOAD_IN_PROGRESS.
        """
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.partitions.are_loading else ErrorCode.NONE
        if len(self._groups) > SLICE_OBJECTS:
            # Requests that arrive together begin one after the other.
            await pause()
        present = self._groups.present()
        if error is not ErrorCode.NONE:
            present = (hosted for hosted in present if hosted.partition.is_served)
        overviews = (hosted.group.overview() for hosted in present)
        return error, [
            overview
            async for overview in sliced(overviews, SLICE_OBJECTS)
            if (not states or overview.state in states) and (not types or overview.type in types)
        ]

    async def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups, for one group.

        Most of many offsets are removed before, in slices: if a member joins in a pause, these are removed, and the
        error is NON_EMPTY_GROUP.
        """
        while (
            (found := self._groups.get(group_id)) is not None
            and found.group.has_no_members
            and len(found.group.offsets) > REQUEST_ELEMENTS_PER_SLICE_MAX
        ):
            # Those of one slice; the next are selected after the pause, since the offsets may be others then.
            some = tuple(islice(found.group.offsets, REQUEST_ELEMENTS_PER_SLICE_MAX))
            call_of_some: ParkedCall[DeleteOffsetsOutcome] = ParkedCall()
            self._runner.run(found, DeleteOffsets(call_of_some, some))
            await result_of(call_of_some.reply())
            await pause()
        error = self._status(group_id, may_be_empty=True)
        hosted = self._groups.get(group_id)
        if error is not ErrorCode.NONE or hosted is None:
            return error or ErrorCode.GROUP_ID_NOT_FOUND
        if hosted.group.share is not None:
            try:
                await self.delete_share_states(group_id)
            except ApiError as refusal:
                return refusal.code
            hosted = self._groups.get(group_id)
            if hosted is None:
                return ErrorCode.NOT_COORDINATOR
        call: ParkedCall[ErrorCode] = ParkedCall()
        self._runner.run(hosted, DeleteGroup(call))
        return await result_of(call.reply())

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> DeleteOffsetsOutcome:
        """OffsetDelete: one error for the group, or one per partition; removes them in slices."""
        errors: dict[TopicPartition, ErrorCode] = {}
        if not partitions:
            return await result_of(self._delete_some_offsets(group_id, ()))
        async for batch in sliced_batches(partitions, REQUEST_ELEMENTS_PER_SLICE_MAX):
            outcome = await result_of(self._delete_some_offsets(group_id, batch))
            if outcome.error is ErrorCode.GROUP_ID_NOT_FOUND and errors:
                # Without its last offset the group is gone.
                outcome = DeleteOffsetsOutcome(ErrorCode.NONE, dict.fromkeys(batch, ErrorCode.NONE))
            if outcome.error is not ErrorCode.NONE:
                return outcome
            errors.update(outcome.partitions)
        return DeleteOffsetsOutcome(ErrorCode.NONE, errors)

    def _delete_some_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> Reply[DeleteOffsetsOutcome]:
        error = self._status(group_id)
        hosted = self._groups.get(group_id)
        if error is not ErrorCode.NONE or hosted is None:
            return DeleteOffsetsOutcome(error or ErrorCode.GROUP_ID_NOT_FOUND, {})
        call: ParkedCall[DeleteOffsetsOutcome] = ParkedCall()
        self._runner.run(hosted, DeleteOffsets(call, tuple(partitions)))
        return call.reply()

    def expire(self) -> None:
        """Check for expired offsets and unused groups now; `start` makes this periodic."""
        self._runner.run_all(ExpireOffsets())

    def _status(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Return the error if the group cannot be served here.  Kafka: GroupCoordinator.validateGroupStatus."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if group_id in self._groups else self.partitions.status(group_id)

    def _size_error_of(self, request: JoinRequest) -> ErrorCode:
        protocols = request.protocols
        size = size_of(protocols)
        if size > MEMBER_METADATA_BYTES_MAX or len(protocols) > MEMBER_PROTOCOLS_MAX:
            return ErrorCode.INVALID_REQUEST
        size += memory_of(request.member_id, request.group_instance_id, request.client_id)
        if self._runner.metadata_bytes + size > MEMBERS_METADATA_BYTES_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def _creation_error(self, group_id: str) -> ErrorCode:
        is_full = group_id not in self._groups and len(self._groups) >= GROUPS_MAX
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_full else ErrorCode.NONE

    def _size_error(self, group_id: str, offsets: Collection[TopicPartition]) -> ErrorCode:
        hosted = self._groups.get(group_id)
        known = 0 if hosted is None else len(hosted.group.offsets)
        if known + len(offsets) <= GROUP_OFFSETS_MAX:
            return ErrorCode.NONE
        new = sum(hosted is None or hosted.group.offsets.get(tp) is None for tp in offsets)
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if known + new > GROUP_OFFSETS_MAX else ErrorCode.NONE

    def _has_room_in_transaction(self, group_id: str, producer_id: int) -> bool:
        hosted = self._groups.get(group_id)
        partition = self.partitions.of(group_id) if hosted is None else hosted.partition
        return partition is None or self._runner.may_commit(partition, producer_id, group_id)

    def _allows_session_timeout(self, timeout_ms: int) -> bool:
        return self._config.group_min_session_timeout_ms <= timeout_ms <= self._config.group_max_session_timeout_ms

    def _fresh_uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def _fresh_member_id(self, prefix: str) -> str:
        """Return a new member id; the prefix is truncated so that the id fits into a string of the protocol and the
        log.
        """
        kept = prefix.encode()[:MEMBER_ID_PREFIX_BYTES_MAX].decode(errors="ignore")
        return f"{kept}-{self._fresh_uuid()}"

    def _run_commit(
        self, group_id: str, request: CommitRequest | TransactionalCommit, error: ErrorCode
    ) -> Reply[CommitOutcome]:
        error = error or self._creation_error(group_id) or self._size_error(group_id, request.offsets)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(request.offsets, error)
        call: ParkedCall[CommitOutcome] = ParkedCall()
        self._run_or_create(group_id, replace(request, token=call))
        return call.reply()

    def _run_or_create(self, group_id: str, event: Event) -> None:
        hosted = self._groups.get(group_id)
        if hosted is not None:
            self._runner.run(hosted, event)
            return
        partition = self.partitions.of(group_id)
        assert partition is not None
        self._runner.run_new(group_id, partition, event)
