"""Brings a member of a group to rest: joins, revocations, calls of the listener, start positions of new partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.consuming.committed_offsets import (
    CommittedOffset,
    commits_or_errors,
    no_topic_id,
    takes_topic_ids,
)
from kctl.client.consuming.fetching.fetcher import GONE
from kctl.client.consuming.fetching.runner import FetchRunner
from kctl.client.consuming.groups.commits import GroupCommits
from kctl.client.consuming.groups.metadata import RebalanceListener
from kctl.client.consuming.groups.progress import GroupProgress
from kctl.client.consuming.membership.consumer_protocol import ConsumerMember
from kctl.client.consuming.membership.member import (
    CommitResultReceived,
    Disconnected,
    Event,
    Phase,
    PollRequested,
    Revoked,
)
from kctl.client.consuming.membership.runner import MembershipRunner
from kctl.client.consuming.positions import Begin, Position
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode, KctlError
from kctl.model import TopicPartition
from kctl.system.reference_cycles import copy_of

logger = logging.getLogger(__name__)

R = TypeVar("R")

START_MS = 5_000
"""How long a leader may take to respond with start positions before the partitions of others are read."""
LATE_MS = 1_000
"""How soon start positions are looked up again that could not be found."""
STALE_MS = 20
"""The pause before commits are looked up again with another member epoch."""

_NOT_YET = frozenset({*COORDINATOR_MOVED, ErrorCode.UNSTABLE_OFFSET_COMMIT})
_OF_EPOCH = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""A look-up of commits with an epoch that is over."""


class GroupSettling(Generic[R]):
    """What `poll` starts, and what goes on beside it.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        runner: MembershipRunner,
        progress: GroupProgress,
        fetches: FetchRunner[R],
        begin: Begin,
        commits: GroupCommits,
        listener: RebalanceListener,
        *,
        commits_before_revocation: bool,
    ) -> None:
        """`begin` returns the positions where to start without a committed offset."""
        self.announced: set[TopicPartition] = set()
        """Partitions that the listener has been notified of."""
        self.joining: asyncio.Task[None] | None = None
        self._client = client
        self._runner = runner
        self._progress = progress
        self._fetches = fetches
        self._fetcher = fetches.fetcher
        self._begin = begin
        self._commits = commits
        self._listener = listener
        self._commits_before_revocation = commits_before_revocation
        self._settled: tuple[TopicPartition, ...] | None = None
        """The partitions of the member when settling ended."""
        self._has_joined = False
        self._late: dict[TopicPartition, int] = {}
        """Partitions without a start position, because their topic or leader is absent, and when to try again (ms)."""

    @property
    def is_needed(self) -> bool:
        """Whether the group requires something that only a poll may do.  May be called in any thread."""
        member = self._runner.member
        if self._runner.failure is not None or member.owned is not self._settled:
            return True
        if self._late and self._runner.now_ms() >= min(self._late.values()):
            return True
        if member.phase is Phase.STABLE:
            return False
        joining = self.joining
        return joining is None or joining.done() or not self._fetcher.partitions

    async def settle(self) -> None:
        """Wait until this member has partitions and positions: in a generation, or cooperatively while rejoining."""
        member = self._runner.member
        while True:
            if self._runner.failure is not None:
                raise copy_of(self._runner.failure)
            self._read_only_owned()
            if lost := self._progress.missing(self.announced):
                self.announced.difference_update(lost)
                await self._listener.on_lost(sorted(lost))
            if self.joining is not None:
                if not self.joining.done() and self._fetcher.partitions:
                    break
                await self._end_join()
            elif member.phase is Phase.REVOKING:
                if self._commits_before_revocation:
                    await self._commit_before_revocation()
                await self.announce_revoked(member.revoking)
                self._drive_aside(Revoked())
            elif member.phase is not Phase.STABLE:
                if member.phase is Phase.OUTSIDE:
                    await self._match_topics()
                self._drive_aside(PollRequested())
            elif given := self._without_positions():
                await self._look_up_positions(given)
            else:
                break
        self._settled = member.owned
        self._has_joined = True
        self._runner.renew_deadline()
        self._fetches.note_change()

    async def _end_join(self) -> None:
        """Wait for the join.  Raises ApiError, and ClusterUnreachable at the first join; the next poll joins again."""
        joining, self.joining = self.joining, None
        assert joining is not None
        try:
            await joining
        except KctlError as error:
            # The outcome of the request is unknown.
            actions = self._runner.step(Disconnected(self._runner.member.phase))
            self._runner.renew_deadline()
            if not self._has_joined or not isinstance(error, ClusterUnreachable):
                self._runner.forget_coordinator()
                raise
            logger.warning("cannot join: %s", error)
            await self._runner.perform_all(actions)
        finally:
            del joining

    async def _match_topics(self) -> None:
        try:
            await self._runner.match_topics()
        except ClusterUnreachable as error:
            if not self._has_joined:
                raise
            logger.warning("cannot look up topics: %s", error)

    def _without_positions(self) -> list[TopicPartition]:
        """Return the partitions whose start positions are to be looked up now."""
        now_ms = self._runner.now_ms()
        missing = self._progress.missing(self._runner.member.owned)
        self._late = {tp: self._late[tp] for tp in missing if tp in self._late}
        return [tp for tp in missing if now_ms >= self._late.get(tp, 0)]

    async def _commit_before_revocation(self) -> None:
        try:
            await self._commits.commit()
        except (ApiError, ClusterUnreachable) as error:
            logger.warning("cannot commit before a revocation: %s", error)

    async def announce_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Call the listener for those of the partitions that it was notified of."""
        revoked = self.announced.intersection(partitions)
        self.announced -= revoked
        if revoked:
            await self._listener.on_revoked(sorted(revoked))

    def _drive_aside(self, event: Event) -> None:
        """Join, and wait for the response only if there is nothing to read meanwhile.

        The state of the member changes at once, so partitions that it revokes by joining are not read any more.
        """
        actions = self._runner.step(event)
        self.joining = asyncio.create_task(self._runner.perform_all(actions), name="group join")
        self.joining.add_done_callback(lambda _: self._fetches.arrived.set())

    def _read_only_owned(self) -> None:
        owned = self._runner.member.owned
        self._progress.keep_only(owned)
        kept = set(owned).difference(self._progress.missing(owned))
        self._fetcher.remove([tp for tp in self._fetcher.partitions if tp not in kept])

    async def _look_up_positions(self, given: Collection[TopicPartition]) -> None:
        found = await self._request_committed(given)
        if found is None:
            return  # The member has lost its partitions, or has another epoch now.
        committed: dict[TopicPartition, Position] = {}
        for tp, commit in found.items():
            if isinstance(commit, ApiError):
                self._note_late([tp], copy_of(commit))
            else:
                committed[tp] = commit.position
        begun = await self._begin_fresh([tp for tp in given if tp not in found])
        owned = frozenset(self._runner.member.owned)
        positions = {tp: position for tp, position in (*begun.items(), *committed.items()) if tp in owned}
        self._fetcher.set(positions)
        self._progress.begin(positions, {tp: position.offset for tp, position in committed.items() if tp in owned})
        self.announced.update(positions)
        if positions:
            await self._listener.on_assigned(sorted(positions))

    async def _begin_fresh(self, fresh: list[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Start positions; a topic that was deleted or has no leaders does not keep the others from being read."""
        if not fresh:
            return {}
        metadata = await self._client.metadata({tp.topic for tp in fresh})
        by_leader: dict[tuple[str, int], list[TopicPartition]] = {}
        for tp in fresh:
            by_leader.setdefault((tp.topic, metadata.leader_of(tp)[0]), []).append(tp)
        tasks = {asyncio.ensure_future(self._begin(tps)): tps for tps in by_leader.values()}
        begun: dict[TopicPartition, Position] = {}
        try:
            done, _ = await asyncio.wait(tasks, timeout=START_MS / 1000)
            for task, tps in tasks.items():
                try:
                    if task not in done:
                        raise ClusterUnreachable(f"the leader of {tps[0]} does not respond")
                    begun.update(task.result())
                except KctlError as error:
                    self._note_late(tps, error)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return begun

    def _note_late(self, tps: Collection[TopicPartition], error: KctlError) -> None:
        """Start positions are looked up again later, or the error is raised."""
        is_absent = isinstance(error, ClusterUnreachable) or (
            isinstance(error, ApiError) and (error.code in GONE or error.code.retriable)
        )
        if not is_absent:
            raise error
        logger.warning("no start positions: %s", error)
        self._late.update(dict.fromkeys(tps, self._runner.now_ms() + LATE_MS))
        self._runner.expect_changed_topics()

    async def _request_committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | ApiError] | None:
        """Return the commits, and the errors of topics that are gone; None if the epoch of the member was over."""
        while True:
            member = self._runner.member
            generation = member.generation
            try:
                connection = await self._runner.connect()
                names = {tp.topic for tp in partitions}
                has_ids = takes_topic_ids(connection)
                found = await commits_or_errors(
                    connection,
                    member.settings.group_id,
                    partitions,
                    member_epoch=(member.member_id, generation) if isinstance(member, ConsumerMember) else None,
                    topic_id=(await self._client.metadata(names)).topic_id if has_ids else no_topic_id,
                )
                for commit in found.values():
                    if isinstance(commit, ApiError) and commit.code not in GONE:
                        raise copy_of(commit)
                return found
            except (ConnectionLost, ClusterUnreachable) as lost:
                await self._runner.look_elsewhere(str(lost))
            except ApiError as error:
                if error.code in _OF_EPOCH and isinstance(member, ConsumerMember):
                    await self._runner.drive(CommitResultReceived(error.code, generation))
                    await self._client.transport.sleep(STALE_MS)
                    return None
                if error.code not in _NOT_YET:
                    raise
                await self._runner.look_elsewhere(str(error))
