"""One partition on this broker: its role, its in-sync replicas and its high watermark.

The log end offset is the end of this replica.  The high watermark is the smallest log end offset of the in-sync
replicas: records below it are committed and visible to consumers.  A leader advances it when it appends or when a
follower's fetch shows the follower's log end offset; within a leader epoch it never decreases.

States: created (no role yet) -> leader or follower, as in the controller's LeaderAndIsr requests, each with a higher
leader epoch.  Only the leader accepts produce requests; its epoch is written into every batch and into the leader-epoch
cache, even before it appends, so that followers can find where their log diverges from the leader's (KIP-101).

Owner: event loop.  No IO of its own; the log is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kctl.errors import ApiError, ErrorCode
from kctl.model import NO_LEADER, TopicPartition
from kctl.server.replication.leader_lease import NOT_REGISTERED, LeaderLease, UnlimitedLease
from kctl.server.replication.throttles import TopicTraffic
from kctl.storage.log.watchers import Watchers

if TYPE_CHECKING:
    from kctl.storage.log.log import Log

NEVER_MS = -(1 << 62)
ANY_EPOCH = -1
"""The leader epoch of a request that does not carry one."""


class PartitionState(Protocol):
    """The state of one partition in a LeaderAndIsr request."""

    leader: int
    leader_epoch: int
    isr: list[int]
    partition_epoch: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    controller_epoch: int


class FetchTimes(Protocol):
    """The fetches of one follower's session."""

    @property
    def followed_ms(self) -> int:
        """The time of the last one."""
        ...


@dataclass(slots=True)
class FollowerState:
    """The state of one follower, from its fetches."""

    log_end_offset: int = -1
    log_start_offset: int = -1
    caught_up_ms: int = NEVER_MS
    last_fetch_ms: int = 0
    leader_end_offset_at_last_fetch: int = 0
    session: FetchTimes | None = None
    """The session whose fetches count for this follower without being recorded, as long as it is caught up."""

    @property
    def last_caught_up_ms(self) -> int:
        """When the follower last had all records of the leader."""
        return self.caught_up_ms if self.session is None else max(self.caught_up_ms, self.session.followed_ms)

    def begin_rest(self, session: FetchTimes) -> None:
        """From now on the fetches of the session count as fetches at the log end, without being recorded."""
        self.session = session

    def end_rest(self) -> None:
        """Record the last fetch of the session: from now on each fetch is recorded."""
        if self.session is not None:
            self.caught_up_ms = self.last_caught_up_ms
            self.last_fetch_ms = self.session.followed_ms
            self.leader_end_offset_at_last_fetch = self.log_end_offset
            self.session = None


class Partition:
    """`apply` sets the role that the controller decided; other methods check it and advance the high watermark."""

    __slots__ = (
        "_lag_time_max_ms",
        "adding_replicas",
        "broker_id",
        "controller_epoch",
        "followers",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "lease",
        "log",
        "partition_epoch",
        "pending_isr",
        "removing_replicas",
        "replicas",
        "role_broker_epoch",
        "topic_partition",
        "traffic",
        "watchers",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: int,
        log: Log,
        *,
        high_watermark: int = 0,
        lag_time_max_ms: int = 30_000,
        traffic: TopicTraffic | None = None,
        lease: LeaderLease | None = None,
    ) -> None:
        self._lag_time_max_ms = lag_time_max_ms
        self.topic_partition = topic_partition
        self.traffic = traffic or TopicTraffic()
        """The counters of the topic, for metrics."""
        self.broker_id = broker_id
        self.lease = lease or UnlimitedLease()
        self.role_broker_epoch = NOT_REGISTERED
        """The registration of this broker to which the controller has sent the role."""
        self.log = log
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.leader_epoch_start_offset = 0
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.pending_isr: tuple[int, ...] | None = None
        """The in-sync replicas that are being written to ZooKeeper; count like `isr` until the result is known."""
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        """The replicas that a reassignment adds; they are in `replicas` too."""
        self.removing_replicas: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.watchers = Watchers()
        log.watchers = self.watchers

    def replace_log(self, log: Log) -> None:
        """Replace the log by the one in another log directory."""
        self.log.watchers = Watchers()
        self.log = log
        log.watchers = self.watchers
        self.notify()

    def notify(self) -> None:
        """Notify the watchers of a change."""
        self.watchers.moved()

    @property
    def is_leader(self) -> bool:
        """True if the controller has made this broker the leader; see `may_lead`."""
        return self.leader == self.broker_id

    @property
    def may_lead(self) -> bool:
        """True if this broker is the leader and may act as such, which its registration in ZooKeeper allows."""
        return self.leader == self.broker_id and self.lease.covers(self.role_broker_epoch)

    @property
    def is_reassigning(self) -> bool:
        """True while a reassignment of the partition goes on."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed readers: the high watermark, or the first open transaction below it."""
        return self.log.last_stable_offset(self.high_watermark)

    def apply(self, state: PartitionState, now_ms: int) -> None:
        """Set the role that the controller decided.

        The caller has checked the controller epoch.  Raises ApiError(STALE_CONTROLLER_EPOCH) for a leader epoch that is
        not newer than the present one.
        """
        if state.leader_epoch <= self.leader_epoch:
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.notify()
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.controller_epoch = state.controller_epoch
        self.isr = tuple(state.isr)
        self.pending_isr = None
        self.replicas = tuple(state.replicas)
        self.adding_replicas = tuple(state.adding_replicas)
        self.removing_replicas = tuple(state.removing_replicas)
        self.followers = {}
        if self.is_leader:
            self.leader_epoch_start_offset = self.log.log_end_offset
            self.log.assign_epoch(self.leader_epoch, self.log.log_end_offset)
            self.followers = {
                replica: FollowerState(caught_up_ms=now_ms if replica in self.isr else NEVER_MS)
                for replica in self.replicas
                if replica != self.broker_id
            }
            self.advance_high_watermark(now_ms)

    def confirm(self, state: PartitionState, broker_epoch: int) -> None:
        """Note that the controller has sent the role to this registration of the broker, be it new or the present
        one.
        """
        if state.leader_epoch >= self.leader_epoch and (
            state.leader_epoch > self.leader_epoch or state.leader == self.leader
        ):
            self.role_broker_epoch = broker_epoch

    def resign(self) -> None:
        """Give up the role of a replica that the controller stopped; it has none until the next LeaderAndIsr."""
        self.notify()
        self.leader = NO_LEADER
        self.followers = {}

    def check_leader(self, epoch: int = ANY_EPOCH) -> None:
        """Raise the ApiError for a client if this broker may not act as the leader in that epoch.  KIP-320."""
        if epoch != ANY_EPOCH:
            self.check_epoch(epoch)
        if self.leader != self.broker_id or not self.lease.covers(self.role_broker_epoch):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_epoch(self, epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if `epoch` is given and not the current one."""
        if epoch == ANY_EPOCH or epoch == self.leader_epoch:  # noqa: PLR1714 - a set is made on each call
            return
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Advance the high watermark to the smallest end of the counted replicas; return True if it changed.

        Counted are in-sync replicas, replicas about to be in sync, and followers that were caught up lately: otherwise
        they could never reach a high watermark that advances ahead of them.
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
        if self.watchers.watching:
            self.watchers.high_watermark_moved()
        return True

    def follow_high_watermark(self, leader_high_watermark: int) -> bool:
        """Set a follower's high watermark to the leader's, limited by its own log end; return True if it changed."""
        high_watermark = min(max(leader_high_watermark, self.log.log_start_offset), self.log.log_end_offset)
        if high_watermark == self.high_watermark:
            return False
        self.high_watermark = high_watermark
        self.watchers.high_watermark_moved()
        return True

    def lagging(self, now_ms: int) -> set[int]:
        """In-sync followers that have not reached the log end for longer than replica.lag.time.max.ms."""
        end = self.log.log_end_offset
        return {
            replica
            for replica in self.isr
            if (follower := self.followers.get(replica)) is not None
            and follower.log_end_offset != end
            and now_ms - follower.last_caught_up_ms > self._lag_time_max_ms
        }

    def may_join(self, replica_id: int) -> bool:
        """Return whether an out-of-sync follower has all committed records, and those of this leader's epoch start."""
        follower = self.followers.get(replica_id)
        return (
            follower is not None
            and replica_id not in self.isr
            and follower.log_end_offset >= self.high_watermark
            and follower.log_end_offset >= self.leader_epoch_start_offset
        )

    def record_fetch(self, replica_id: int, offset: int, log_start_offset: int, now_ms: int) -> bool:
        """Record that a follower fetches at `offset`, so it has all records before it.

        Returns True if the high watermark or the follower's log start offset changed, so that requests may complete.
        Raises ApiError(UNKNOWN_LEADER_EPOCH) for a replica that is not assigned.
        """
        follower = self.followers.get(replica_id)
        if follower is None:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        follower.end_rest()
        end = self.log.log_end_offset
        if offset >= end:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end_offset_at_last_fetch:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.last_fetch_ms)
        follower.log_end_offset = offset
        has_moved_start = follower.log_start_offset != log_start_offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch_ms = now_ms
        follower.leader_end_offset_at_last_fetch = end
        return self.advance_high_watermark(now_ms) or has_moved_start

    def low_watermark(self, live_brokers: Sequence[int]) -> int:
        """Return the smallest log start offset of the live replicas; DeleteRecords waits for it."""
        starts = [self.log.log_start_offset]
        starts += [f.log_start_offset for replica, f in self.followers.items() if replica in live_brokers]
        return min(starts)
