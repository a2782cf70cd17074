"""Executes reassignments: queries their state, starts, cancels and awaits them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kctl.admin.placement.documents import Assignment, LogDirTargets
from kctl.admin.placement.log_dirs import Replica, ReplicaSizes, move_replicas, replica_sizes
from kctl.admin.placement.plan import (
    Move,
    MoveState,
    bytes_moved,
    log_dir_state,
    move_state,
    partition_of,
    plan_moves,
    unknown_partition,
)
from kctl.admin.placement.reassignment import Ongoing, alter_reassignments, list_reassignments
from kctl.client.cluster import ClusterClient
from kctl.client.metadata import ClusterMetadata
from kctl.client.outcome import Outcome
from kctl.model import TopicPartition

# Estimates speed and remaining time of a reassignment. Pure; the time is an argument.


WINDOW_MS = 30_000
"""Window of the speed: long enough to smooth it, short enough to follow a changed throttle."""


VERDICT_AFTER_MS = 10_000
"""Least time of observation before a move is reported as endless: brokers need some seconds to start."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Copied and total bytes; speeds and remaining time are None while unknown."""

    moved_bytes: int
    total_bytes: int
    bytes_per_s: float | None = None
    remaining_ms: int | None = None
    growth_bytes_per_s: float | None = None
    """Speed at which the total grows: what producers append, once per new replica."""
    never_ends: bool = False
    """Whether the partitions have grown at least as fast as they were copied for VERDICT_AFTER_MS."""


class MoveProgress:
    """Estimates the end of a move from the observations of the last WINDOW_MS."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, int]] = deque()

    def observe(self, now_ms: int, *, moved_bytes: int, total_bytes: int) -> Estimate:
        """Add an observation.  The total may grow, because the leader continues to append.

        The estimate is based on the decrease of the remaining bytes; without a decrease there is none.
        """
        remaining = total_bytes - moved_bytes
        self._seen.append((now_ms, moved_bytes, remaining))
        while len(self._seen) > 2 and now_ms - self._seen[1][0] >= WINDOW_MS:
            self._seen.popleft()
        then_ms, moved_then, remaining_then = self._seen[0]
        passed_ms = now_ms - then_ms
        if passed_ms <= 0:
            return Estimate(moved_bytes, total_bytes)
        speed = (moved_bytes - moved_then) * 1000 / passed_ms
        closer = (remaining_then - remaining) * 1000 / passed_ms
        remaining_ms = 0 if remaining <= 0 else round(remaining * 1000 / closer) if closer > 0 else None
        growth = speed - closer
        never_ends = passed_ms >= VERDICT_AFTER_MS and closer <= 0 and 0 < growth < remaining
        return Estimate(moved_bytes, total_bytes, speed, remaining_ms, growth, never_ends)


def move_duration_ms(bytes_to_move: int, throttle_bytes_per_s: int) -> int:
    """Return the minimum duration if one broker sends or receives everything at the throttled rate."""
    return round(bytes_to_move * 1000 / throttle_bytes_per_s)


POLL_MS_MIN = 200
POLL_MS_MAX = 2_000
SETTLE_MS = 1_000
"""How long brokers may take to receive the metadata of a completed move."""
SETTLE_AFTER_MOVE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Situation:
    """State of partitions that are, or will be, reassigned."""

    metadata: ClusterMetadata
    ongoing: Mapping[TopicPartition, Ongoing]
    """All ongoing reassignments, including other partitions."""
    moves: list[Move]
    sizes: ReplicaSizes

    def state_of(self, move: Move) -> MoveState:
        """Return the state of a partition, including the log directories of its replicas."""
        state = self.partition_state_of(move)
        return log_dir_state(move, self.sizes) if state is MoveState.COMPLETE else state

    def partition_state_of(self, move: Move) -> MoveState:
        """Return the state of a partition without its log directories."""
        return move_state(move.tp, move.target, self.metadata, move.tp in self.ongoing)

    def replicas_of(self, move: Move) -> tuple[int, ...]:
        """Return the current replicas; empty if the partition does not exist."""
        partition = partition_of(self.metadata, move.tp)
        return partition.replicas if partition else ()


async def look(client: ClusterClient, targets: Assignment | None, log_dirs: LogDirTargets | None = None) -> Situation:
    """Query the state of these targets, or of all ongoing reassignments for None."""
    ongoing = await list_reassignments(client)
    requested = {tp: reassignment.target for tp, reassignment in ongoing.items()} if targets is None else targets
    metadata = await client.metadata({tp.topic for tp in requested})
    found = {tp: partition for tp in requested if (partition := partition_of(metadata, tp)) is not None}
    brokers = {broker for tp, partition in found.items() for broker in (*partition.replicas, *requested[tp])}
    sizes = await replica_sizes(client, brokers & metadata.brokers.keys(), found) if found else ReplicaSizes({})
    return Situation(metadata, ongoing, plan_moves(requested, metadata, ongoing, sizes, log_dirs), sizes)


async def look_settled(
    client: ClusterClient,
    targets: Assignment | None,
    log_dirs: LogDirTargets | None = None,
    settle_ms: int = SETTLE_MS,
) -> Situation:
    """As `look`, but retries briefly while partitions are neither moving nor at their target."""
    end_ms = client.transport.monotonic_ms() + settle_ms
    while True:
        now = await look(client, targets, log_dirs)
        differs = any(now.state_of(move) is MoveState.DIFFERENT for move in now.moves)
        if not differs or client.transport.monotonic_ms() >= end_ms:
            return now
        await client.transport.sleep(POLL_MS_MIN // 2)


async def start_moves(client: ClusterClient, moves: Sequence[Move]) -> dict[TopicPartition, Outcome]:
    """Start all moves that change something.

    Log directories are set first, so that new replicas are created in the right one.
    """
    outcomes = {move.tp: Outcome(str(move.tp)) for move in moves}
    sends = {(broker, move.tp): path for move in moves if move.is_change for broker, path in move.log_dirs}
    sent = await move_replicas(client, sends) if sends else {}
    refused = {tp: outcome for (_, tp), outcome in sent.items() if not outcome.is_done}
    changes: dict[TopicPartition, tuple[int, ...] | None] = {
        move.tp: move.target
        for move in moves
        if move.problem is None and move.changes_replicas and move.tp not in refused
    }
    return outcomes | (await alter_reassignments(client, changes) if changes else {}) | refused


async def cancel_moves(
    client: ClusterClient, origins: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[TopicPartition, Outcome]:
    """Cancel reassignments, and restore the given order of replicas.

    For an unknown order (None) the controller puts the kept replicas first.  A reassignment to the original replicas
    adds and removes none, so it completes as fast as a cancellation (KIP-455).
    """
    return await alter_reassignments(client, origins) if origins else {}


@dataclass(frozen=True, slots=True)
class Copies:
    """Replicas that are being moved to another log directory."""

    places: dict[Replica, str]
    """The present log directory of each."""
    unknown: dict[TopicPartition, Outcome]
    """The requested partitions that do not exist, or that may not be described."""


async def find_copies(client: ClusterClient, partitions: Collection[TopicPartition] | None) -> Copies:
    """Return the replicas being moved to another log directory, of these partitions or all."""
    metadata = await client.metadata(None if partitions is None else {tp.topic for tp in partitions})
    if partitions is None:
        partitions = [
            TopicPartition(name, partition.partition)
            for name, topic in metadata.topics.items()
            for partition in topic.partitions
        ]
    found = [tp for tp in partitions if partition_of(metadata, tp) is not None]
    sizes = await replica_sizes(client, metadata.brokers, found) if found else ReplicaSizes({})
    return Copies(
        {replica: sizes.places[replica] for replica in sizes.copies if replica in sizes.places},
        {tp: unknown_partition(metadata, tp) for tp in partitions if partition_of(metadata, tp) is None},
    )


async def wait_for_moves(
    client: ClusterClient, moves: Sequence[Move], on_progress: Callable[[Estimate], None]
) -> Situation:
    """Wait until none of the partitions is moving."""
    targets = {move.tp: move.target for move in moves}
    log_dirs = {(broker, move.tp): path for move in moves for broker, path in move.log_dirs}
    before = {move.tp: move for move in moves}
    progress = MoveProgress()
    pause_ms = POLL_MS_MIN
    while True:
        now = await look(client, targets, log_dirs)
        if not any(now.state_of(move) is MoveState.IN_PROGRESS for move in now.moves):
            return await look_settled(client, targets, log_dirs, SETTLE_AFTER_MOVE_MS)
        # The added replicas are known from the start; only the sizes change.
        watched = [replace(before[move.tp], size_bytes=move.size_bytes) for move in now.moves]
        moved = sum(bytes_moved(move, now.sizes) for move in watched)
        total = sum(move.bytes_to_move or 0 for move in watched)
        on_progress(progress.observe(client.transport.monotonic_ms(), moved_bytes=moved, total_bytes=total))
        await client.transport.sleep(pause_ms)
        pause_ms = min(pause_ms * 2, POLL_MS_MAX)
