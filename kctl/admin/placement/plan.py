"""Plans reassignments: changes, bytes to copy, progress.  Pure.

A move is compared with the replicas before any reassignment: replicas being added do not count, so the plan of an
ongoing move is the same as before its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from kctl.admin.placement.documents import Assignment, LogDirTargets
from kctl.admin.placement.log_dirs import ReplicaSizes
from kctl.admin.placement.reassignment import Ongoing
from kctl.client.metadata import ClusterMetadata, Partition
from kctl.client.outcome import Outcome
from kctl.errors import ErrorCode
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one partition, impossible with a problem.  `size_bytes` is that of one replica, None if unknown."""

    tp: TopicPartition
    target: tuple[int, ...]
    current: tuple[int, ...] = ()
    leader: int = -1
    size_bytes: int | None = None
    ongoing: Ongoing | None = None
    problem: Outcome | None = None
    log_dirs: tuple[tuple[int, str], ...] = ()
    """(broker, requested log directory)."""
    relocating: tuple[tuple[int, str], ...] = ()
    """(broker, current log directory) of existing replicas in another directory than requested."""

    @property
    def adding(self) -> tuple[int, ...]:
        """Brokers that get a replica."""
        return tuple(replica for replica in self.target if replica not in self.current)

    @property
    def removing(self) -> tuple[int, ...]:
        """Brokers that lose their replica."""
        return tuple(replica for replica in self.current if replica not in self.target)

    @property
    def is_change(self) -> bool:
        """Whether anything changes, including the order of replicas."""
        return self.problem is None and (self.changes_replicas or bool(self.relocating))

    @property
    def changes_replicas(self) -> bool:
        """Whether the controller is involved; brokers perform moves between log directories alone."""
        return self.current != self.target or self.ongoing is not None

    @property
    def is_under_way(self) -> bool:
        """Whether this move has been started."""
        return self.ongoing is not None and self.ongoing.target == self.target

    @property
    def bytes_to_move(self) -> int | None:
        """Bytes to copy in total; None if the size is unknown."""
        count = len(self.adding) + len(self.relocating)
        if not count:
            return 0
        return None if self.size_bytes is None else count * self.size_bytes

    @property
    def leader_after(self) -> int:
        """The leader after the move: the current one if it stays a replica, else the first of the target."""
        return self.leader if self.leader in self.target else self.target[0]


class MoveState(Enum):
    """States of a move."""

    IN_PROGRESS = "in progress"
    COMPLETE = "complete"
    DIFFERENT = "different"
    """Not moving, and the replicas are not those of the target."""
    UNKNOWN = "unknown"
    """The partition does not exist."""


def plan_moves(
    targets: Assignment,
    metadata: ClusterMetadata,
    ongoing: Mapping[TopicPartition, Ongoing],
    sizes: ReplicaSizes,
    log_dirs: LogDirTargets | None = None,
) -> list[Move]:
    """Return the move of each partition; impossible ones have a problem."""
    requested = log_dirs or {}
    return [_move(tp, target, metadata, ongoing.get(tp), sizes, requested) for tp, target in sorted(targets.items())]


def _move(
    tp: TopicPartition,
    target: tuple[int, ...],
    metadata: ClusterMetadata,
    ongoing: Ongoing | None,
    sizes: ReplicaSizes,
    requested: LogDirTargets,
) -> Move:
    partition = partition_of(metadata, tp)
    if partition is None:
        return Move(tp, target, problem=unknown_partition(metadata, tp))
    current = partition.replicas if ongoing is None else ongoing.origin
    dead = [replica for replica in target if replica not in metadata.brokers and replica not in current]
    problem = None
    if dead:
        text = f"broker {', '.join(map(str, dead))} is not alive"
        problem = Outcome(str(tp), ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    log_dirs = tuple((broker, requested[broker, tp]) for broker in target if (broker, tp) in requested)
    problem = problem or _log_dir_problem(tp, log_dirs, sizes)
    relocating = tuple(
        (broker, place)
        for broker, path in log_dirs
        if (place := sizes.places.get((broker, tp))) is not None
        and broker in current
        and (place != path or sizes.copies.get((broker, tp), (path, 0))[0] != path)
    )
    known = [size for replica in (partition.leader, *current) if (size := sizes.of(replica, tp)) is not None]
    size = known[0] if known else None
    return Move(tp, target, current, partition.leader, size, ongoing, problem, log_dirs, relocating)


def _log_dir_problem(tp: TopicPartition, log_dirs: Iterable[tuple[int, str]], sizes: ReplicaSizes) -> Outcome | None:
    for broker, path in log_dirs:
        has_result = any(known == broker for known, _ in sizes.directories)
        error = sizes.directories.get((broker, path), ErrorCode.LOG_DIR_NOT_FOUND)
        if has_result and error is not ErrorCode.NONE:
            what = "has no log directory" if error is ErrorCode.LOG_DIR_NOT_FOUND else "cannot use its log directory"
            return Outcome(str(tp), error, f"broker {broker} {what} {path}")
    return None


def move_state(tp: TopicPartition, target: tuple[int, ...], metadata: ClusterMetadata, ongoing: bool) -> MoveState:
    """Return the state of one move."""
    if ongoing:
        return MoveState.IN_PROGRESS
    partition = partition_of(metadata, tp)
    if partition is None:
        return MoveState.UNKNOWN
    return MoveState.COMPLETE if partition.replicas == target else MoveState.DIFFERENT


def log_dir_state(move: Move, sizes: ReplicaSizes) -> MoveState:
    """Return the state of the moves of a partition's replicas to their requested log directories."""
    states = {replica_state(move.tp, broker, path, sizes) for broker, path in move.log_dirs}
    worst = (MoveState.DIFFERENT, MoveState.IN_PROGRESS)
    return next((state for state in worst if state in states), MoveState.COMPLETE)


def replica_state(tp: TopicPartition, broker: int, path: str, sizes: ReplicaSizes) -> MoveState:
    """Return the state of the move of one replica to its requested log directory."""
    copy = sizes.copies.get((broker, tp))
    if copy is not None:
        return MoveState.IN_PROGRESS if copy[0] == path else MoveState.DIFFERENT
    return MoveState.COMPLETE if sizes.places.get((broker, tp)) == path else MoveState.DIFFERENT


def bytes_moved(move: Move, sizes: ReplicaSizes) -> int:
    """Return the bytes in the added replicas; a replica larger than the leader's last known size counts as complete."""
    whole = move.size_bytes or 0
    added = sum(min(whole, sizes.of(replica, move.tp) or 0) for replica in move.adding)
    return added + sum(_bytes_relocated(move.tp, broker, place, whole, sizes) for broker, place in move.relocating)


def _bytes_relocated(tp: TopicPartition, broker: int, origin: str, whole: int, sizes: ReplicaSizes) -> int:
    copy = sizes.copies.get((broker, tp))
    if copy is not None:
        return min(whole, copy[1])
    return 0 if sizes.places.get((broker, tp)) == origin else whole


def bytes_by_broker(moves: Iterable[Move]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes that each broker receives and, as leader, sends, for partitions of known size."""
    incoming: dict[int, int] = {}
    outgoing: dict[int, int] = {}
    for move in moves:
        if move.problem or not move.size_bytes:
            continue
        for replica in move.adding:
            incoming[replica] = incoming.get(replica, 0) + move.size_bytes
            outgoing[move.leader] = outgoing.get(move.leader, 0) + move.size_bytes
    return incoming, outgoing


def rollback(moves: Iterable[Move]) -> Assignment:
    """Return the reassignment that restores the previous replicas."""
    return {move.tp: move.current for move in moves if move.current}


def requested_log_dirs(moves: Iterable[Move]) -> LogDirTargets:
    """Return the requested log directories of the replicas that have one."""
    return {(broker, move.tp): path for move in moves for broker, path in move.log_dirs}


def rollback_log_dirs(moves: Iterable[Move]) -> LogDirTargets:
    """Return the previous log directories of the replicas that change theirs."""
    return {(broker, move.tp): place for move in moves for broker, place in move.relocating}


def partition_of(metadata: ClusterMetadata, tp: TopicPartition) -> Partition | None:
    """Return the partition, or None."""
    topic = metadata.topics.get(tp.topic)
    return None if topic is None else topic.partition(tp.partition)


def unknown_partition(metadata: ClusterMetadata, tp: TopicPartition) -> Outcome:
    """Return the outcome of a partition that `partition_of` does not find."""
    return Outcome(str(tp), _topic_error(metadata, tp), f"there is no partition {tp}")


def _topic_error(metadata: ClusterMetadata, tp: TopicPartition) -> ErrorCode:
    topic = metadata.topics.get(tp.topic)
    has_error = topic is not None and topic.error not in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE}
    return topic.error if topic is not None and has_error else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
