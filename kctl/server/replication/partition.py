"""One partition on this broker: its role, its in-sync replicas and its high watermark.

The log end offset is where this replica ends.  The high watermark is where all in-sync replicas end: below it records
are committed and consumers see them.  A leader moves it when it appends or when a follower's fetch shows how far the
follower has come; within a leader epoch it never goes back.

States: created (no role yet) -> leader or follower, as the controller's LeaderAndIsr requests say, each with a higher
leader epoch.  Only the leader takes produce requests; its epoch goes into every batch and into the leader-epoch cache,
even before it appends anything, so that followers can tell where they part from it (KIP-101).

Owner: event loop.  No IO of its own; the log is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kctl.errors import ApiError, ErrorCode
from kctl.model import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from kctl.storage.log import Log

NEVER_MS = -(1 << 62)
ANY_EPOCH = -1
"""A request that does not say which leader epoch it knows."""


class PartitionState(Protocol):
    """What a LeaderAndIsr request says of one partition."""

    leader: int
    leader_epoch: int
    isr: list[int]
    partition_epoch: int
    replicas: list[int]
    controller_epoch: int


@dataclass(slots=True)
class FollowerState:
    """What the leader knows of one follower from its fetches."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    last_caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = 0
    leader_end_offset_at_last_fetch: int = 0
    sent_high_watermark: int = -1


class Partition:
    """`apply` takes what the controller decides; the rest asks and moves the high watermark."""

    __slots__ = (
        "_lag_time_max_ms",
        "broker_id",
        "controller_epoch",
        "followers",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "log",
        "partition_epoch",
        "pending_isr",
        "replicas",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: int,
        log: Log,
        *,
        high_watermark: int = 0,
        lag_time_max_ms: int = 30_000,
    ) -> None:
        self._lag_time_max_ms = lag_time_max_ms
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.log = log
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.leader_epoch_start_offset = 0
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.pending_isr: tuple[int, ...] | None = None
        """The in-sync replicas that are being written to ZooKeeper; counts beside `isr` until the outcome is known."""
        self.replicas: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)

    @property
    def is_leader(self) -> bool:
        return self.leader == self.broker_id

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed readers see: the high watermark or the first open transaction below it."""
        return self.log.last_stable_offset(self.high_watermark)

    def apply(self, state: PartitionState, now_ms: int) -> None:
        """Take a role from the controller.

        The caller has checked the controller epoch.  Raises ApiError(STALE_CONTROLLER_EPOCH) for a leader epoch that is
        not newer than the present one.
        """
        if state.leader_epoch <= self.leader_epoch:
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.controller_epoch = state.controller_epoch
        self.isr = tuple(state.isr)
        self.pending_isr = None
        self.replicas = tuple(state.replicas)
        self.followers = {}
        if self.is_leader:
            self.leader_epoch_start_offset = self.log.log_end_offset
            self.log.assign_epoch(self.leader_epoch, self.log.log_end_offset)
            self.followers = {
                replica: FollowerState(last_caught_up_ms=now_ms if replica in self.isr else NEVER_MS)
                for replica in self.replicas
                if replica != self.broker_id
            }
            self.advance_high_watermark(now_ms)

    def resign(self) -> None:
        """The controller stopped this replica; it has no role until told otherwise."""
        self.leader = NO_LEADER
        self.followers = {}

    def check_leader(self, epoch: int = ANY_EPOCH) -> None:
        """Raises the ApiError that a client gets here, or returns.  KIP-320 for the epochs."""
        self.check_epoch(epoch)
        if self.leader != self.broker_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_epoch(self, epoch: int) -> None:
        """Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH when `epoch` is known and not ours."""
        if epoch in {ANY_EPOCH, self.leader_epoch}:
            return
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Moves it to the smallest end of the replicas that count; answers whether it moved.

        Those are the in-sync ones, the ones about to be, and followers that were at the end lately: otherwise they
        could never catch up with a high watermark that runs ahead of them.
        """
        end = self.log.settled_end_offset
        if self.followers:
            counting = {*self.isr, *(self.pending_isr or ())}
            for replica, follower in self.followers.items():
                if replica in counting or now_ms - follower.last_caught_up_ms <= self._lag_time_max_ms:
                    end = min(end, follower.log_end_offset)
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def follow_high_watermark(self, leader_high_watermark: int) -> bool:
        """A follower takes over its leader's, as far as its own log reaches; answers whether it changed."""
        high_watermark = min(max(leader_high_watermark, self.log.log_start_offset), self.log.log_end_offset)
        if high_watermark == self.high_watermark:
            return False
        self.high_watermark = high_watermark
        return True

    def lagging(self, now_ms: int) -> set[int]:
        """In-sync followers that have not been at the log's end for too long."""
        end = self.log.log_end_offset
        return {
            replica
            for replica in self.isr
            if (follower := self.followers.get(replica)) is not None
            and follower.log_end_offset != end
            and now_ms - follower.last_caught_up_ms > self._lag_time_max_ms
        }

    def may_join(self, replica_id: int) -> bool:
        """Whether a follower that is out of sync has all that is committed, also of this leader's own epoch."""
        follower = self.followers.get(replica_id)
        return (
            follower is not None
            and replica_id not in self.isr
            and follower.log_end_offset >= self.high_watermark
            and follower.log_end_offset >= self.leader_epoch_start_offset
        )

    def record_fetch(self, replica_id: int, offset: int, log_start_offset: int, now_ms: int) -> bool:
        """A follower asks for `offset`, so it has everything before it; answers whether somebody may wait for that.

        That is: whether the high watermark moved, or where the follower's log starts.
        Raises ApiError(UNKNOWN_LEADER_EPOCH) for a replica that is not assigned.
        """
        follower = self.followers.get(replica_id)
        if follower is None:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        end = self.log.log_end_offset
        if offset >= end:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        elif offset >= follower.leader_end_offset_at_last_fetch:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        follower.log_end_offset = offset
        has_moved_start = follower.log_start_offset != log_start_offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch_ms = now_ms
        follower.leader_end_offset_at_last_fetch = end
        return self.advance_high_watermark(now_ms) or has_moved_start

    def low_watermark(self, live_brokers: Sequence[int]) -> int:
        """The smallest start offset of the live replicas; DeleteRecords waits for it."""
        starts = [self.log.log_start_offset]
        starts += [f.log_start_offset for replica, f in self.followers.items() if replica in live_brokers]
        return min(starts)
