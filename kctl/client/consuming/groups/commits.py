"""Commits the offsets of a member of a group: those that the application gives, and those of processed records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.consuming.committed_offsets import CommittedOffset, TopicId, commit_offsets
from kctl.client.consuming.fetching.fetcher import GONE, Fetcher
from kctl.client.consuming.groups.metadata import CommitFailed
from kctl.client.consuming.groups.progress import GroupProgress
from kctl.client.consuming.membership.member import CommitResultReceived, Disconnected
from kctl.client.consuming.membership.runner import PURPOSE, MembershipRunner
from kctl.client.consuming.positions import Position
from kctl.client.retrying import COORDINATOR_MOVED
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import TopicPartition
from kctl.system.reference_cycles import copy_of

_OF_PARTITIONS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""Commit errors about a partition; all others are about the member."""
_REBALANCED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


def _may_be_repeated(code: ErrorCode) -> bool:
    """Whether a commit may succeed later; with STALE_MEMBER_EPOCH after the next heartbeat, with its epoch."""
    return code.retriable or code is ErrorCode.STALE_MEMBER_EPOCH


class GroupCommits:
    """The commits of a member.  Owner: event loop."""

    def __init__(
        self,
        client: ClusterClient,
        runner: MembershipRunner,
        progress: GroupProgress,
        fetcher: Fetcher[Any],
        topic_id: TopicId,
        on_committed: Callable[[Mapping[TopicPartition, CommittedOffset]], None],
    ) -> None:
        self.count = self.error_count = 0
        """How many commits have succeeded and failed."""
        self.sent_ms = runner.now_ms()
        """When the last one was sent."""
        self._client = client
        self._runner = runner
        self._progress = progress
        self._fetcher = fetcher
        self._topic_id = topic_id
        self._on_committed = on_committed
        self._committing = asyncio.Lock()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | Position | CommittedOffset] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit these offsets, or those of processed records, with the leader epochs of the records before them.

        Retries until the timeout.  Raises ApiError, ClusterUnreachable, and CommitFailed if the member has lost one of
        the given partitions; without `offsets`, partitions that were lost are left out.
        """
        commits = (
            None if offsets is None else {tp: self._fetcher.history.commit_of(tp, at) for tp, at in offsets.items()}
        )
        if commits is not None:
            self._progress.confirm({tp: commit.offset for tp, commit in commits.items()})
        deadline = self._client.deadline(timeout_ms)
        while not await self.commit_once(commits):
            if not await deadline.pause():
                group_id = self._runner.member.settings.group_id
                raise ClusterUnreachable(f"group '{group_id}': no commit within {deadline.timeout_ms} ms")

    async def commit_once(self, explicit: Mapping[TopicPartition, CommittedOffset] | None = None) -> bool:
        """Send one commit; return True if nothing is left to commit, without `explicit` also if partitions were lost.

        One commit at a time, so that they arrive in their order.
        """
        async with self._committing:
            member = self._runner.member
            if explicit is None:
                done = self._progress.uncommitted(member.owned)
                commits = {tp: self._fetcher.history.commit_of(tp, offset) for tp, offset in done.items()}
                if not commits or not member.may_commit:
                    return True
            else:
                commits = dict(explicit)
                if self._runner.failure is not None:
                    raise copy_of(self._runner.failure)
                if lost := sorted(tp for tp in commits if tp not in member.owned):
                    raise CommitFailed(member.settings.group_id, lost[0])
                if not commits:
                    return True
            return await self._send_commits(commits, is_explicit=explicit is not None)

    async def _send_commits(self, commits: Mapping[TopicPartition, CommittedOffset], *, is_explicit: bool) -> bool:
        member = self._runner.member
        generation = member.generation
        # The connection used for joining is blocked until all members have joined.
        is_aside = not member.is_in_generation
        self.sent_ms = self._runner.now_ms()
        try:
            codes = await commit_offsets(
                await self._runner.connect(purpose="" if is_aside else PURPOSE),
                member.settings.group_id,
                commits,
                member_id=member.member_id,
                generation=generation,
                group_instance_id=member.settings.group_instance_id,
                topic_id=self._topic_id,
            )
        except (ConnectionLost, ClusterUnreachable):
            if is_aside:
                self._runner.forget_coordinator()
            else:
                await self._runner.drive(Disconnected(member.phase))
            return False
        except ApiError as error:
            if error.code not in COORDINATOR_MOVED:
                raise
            self._runner.forget_coordinator()
            return False
        done = {tp: commits[tp].offset for tp, code in codes.items() if code is ErrorCode.NONE}
        self._progress.note_committed(done)
        self.count += len(done) == len(codes)
        self.error_count += len(done) < len(codes)
        if done:
            self._on_committed({tp: commits[tp] for tp in done})
        for code in sorted(set(codes.values()) - {ErrorCode.NONE}):
            await self._runner.drive(CommitResultReceived(code, generation))
        for tp, code in codes.items():
            if code in GONE and not is_explicit:
                continue  # The topic was deleted, and its offsets with it.
            if code in _OF_PARTITIONS:
                raise ApiError(code, f"{tp}: cannot commit: {code.description}")
            if is_explicit and code in _REBALANCED:
                raise CommitFailed(member.settings.group_id, tp, code)
            if is_explicit and code is not ErrorCode.NONE and not _may_be_repeated(code):
                raise ApiError(code, f"{tp}: cannot commit: {code.description}")
        repeated = {code for code in codes.values() if _may_be_repeated(code)} - GONE
        return not repeated or (not is_explicit and any(code in _REBALANCED for code in codes.values()))
