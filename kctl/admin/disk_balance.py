"""Plans moves of replicas between the log directories of a broker (KIP-113).  Pure.

Each move brings the two directories nearer to the mean of the broker, and no replica moves twice, so the planner ends.
The same directories give the same plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kctl.admin.log_dirs import LogDir, Replica
from kctl.admin.placement_balance import TOLERANCE
from kctl.admin.reassignment_spec import LogDirTargets
from kctl.errors import ErrorCode, KctlError
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class DiskChange:
    """What a log directory holds before and after the moves."""

    broker_id: int
    path: str
    bytes_before: int
    bytes_after: int
    bytes_received: int
    replicas_before: int
    replicas_after: int
    free_bytes: int | None
    """Free space of the file system now; None if the broker does not report it (before Kafka 3.3, KIP-827)."""


class _Disk:
    """A log directory while its broker is planned."""

    def __init__(self, log_dir: LogDir) -> None:
        self.path = log_dir.path
        self.sizes = {one.tp: one.size_bytes for one in log_dir.replicas}
        self.load = sum(self.sizes.values())
        self._free = log_dir.usable_bytes

    def fits(self, size: int) -> bool:
        """Whether the directory has space for one more replica; true if its free space is unknown."""
        return self._free is None or size <= self._free

    def receive(self, size: int) -> None:
        """Accounts for a replica that moves here."""
        self.load += size
        self._free = None if self._free is None else self._free - size


def plan_disks(
    log_dirs: Iterable[LogDir], *, drained: Collection[tuple[int, str]] = (), movable: Collection[Replica]
) -> LogDirTargets:
    """The new directories of the replicas that move: the drained (broker, path) become empty, the others balanced.

    Only `movable` replicas move.  Offline directories neither give nor receive.  Raises KctlError if a drained
    directory cannot be emptied.
    """
    by_broker: dict[int, list[LogDir]] = {}
    for log_dir in sorted(log_dirs, key=lambda one: (one.broker_id, one.path)):
        if log_dir.error is ErrorCode.NONE:
            by_broker.setdefault(log_dir.broker_id, []).append(log_dir)
    targets: dict[tuple[int, TopicPartition], str] = {}
    for broker_id, own in by_broker.items():
        here = {tp for broker, tp in movable if broker == broker_id}
        emptied = [_Disk(one) for one in own if (broker_id, one.path) in drained]
        kept = [_Disk(one) for one in own if (broker_id, one.path) not in drained]
        moves = _drain(broker_id, emptied, kept, here)
        moves.update(_balance(kept, here))
        targets.update({(broker_id, tp): path for tp, path in sorted(moves.items())})
    return targets


def _drain(
    broker_id: int, emptied: Sequence[_Disk], kept: Sequence[_Disk], movable: Collection[TopicPartition]
) -> dict[TopicPartition, str]:
    """The largest replicas first, each to the directory with the smallest load."""
    moves: dict[TopicPartition, str] = {}
    for disk in emptied:
        for tp in _largest_first(disk, movable):
            size = disk.sizes[tp]
            receiver = min((one for one in kept if one.fits(size)), key=lambda one: (one.load, one.path), default=None)
            if receiver is None:
                reason = "has space for it" if kept else "is online"
                raise KctlError(f"{tp} cannot leave {disk.path} of broker {broker_id}: no other log directory {reason}")
            receiver.receive(size)
            moves[tp] = receiver.path
    return moves


def _balance(disks: Sequence[_Disk], movable: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    moves: dict[TopicPartition, str] = {}
    mean = sum(disk.load for disk in disks) / max(len(disks), 1)
    left = {disk.path: _largest_first(disk, movable) for disk in disks}
    while found := _next_move(disks, left, mean):
        tp, giver, receiver = found
        left[giver.path].remove(tp)
        giver.load -= giver.sizes[tp]
        receiver.receive(giver.sizes[tp])
        moves[tp] = receiver.path
    return moves


def _next_move(
    disks: Sequence[_Disk], left: dict[str, list[TopicPartition]], mean: float
) -> tuple[TopicPartition, _Disk, _Disk] | None:
    """The next replica, from the largest load to the smallest if possible; one that neither overfills nor reverses."""
    for giver in sorted(disks, key=lambda disk: (-disk.load, disk.path)):
        excess = giver.load - mean
        for receiver in sorted(disks, key=lambda disk: (disk.load, disk.path)):
            deficit = mean - receiver.load
            if excess <= 0 or deficit <= 0 or max(excess, deficit) <= mean * TOLERANCE:
                break
            fitting = [tp for tp in left[giver.path] if giver.sizes[tp] > 0 and receiver.fits(giver.sizes[tp])]
            # The largest that makes neither cross the mean; else the smallest that still reduces their difference.
            for tp in fitting:
                if giver.sizes[tp] <= min(excess, deficit):
                    return tp, giver, receiver
            for tp in reversed(fitting):
                if giver.sizes[tp] < max(excess, deficit):
                    return tp, giver, receiver
    return None


def _largest_first(disk: _Disk, movable: Collection[TopicPartition]) -> list[TopicPartition]:
    return sorted((tp for tp in disk.sizes if tp in movable), key=lambda tp: (-disk.sizes[tp], tp))


def disk_changes(log_dirs: Iterable[LogDir], targets: LogDirTargets) -> list[DiskChange]:
    """The change of each log directory, by broker and path."""
    found = sorted(log_dirs, key=lambda one: (one.broker_id, one.path))
    sizes = {(one.broker_id, replica.tp): replica.size_bytes for one in found for replica in one.replicas}
    received: dict[tuple[int, str], list[int]] = {}
    for (broker_id, tp), path in targets.items():
        received.setdefault((broker_id, path), []).append(sizes[broker_id, tp])
    changes = []
    for one in found:
        before = [replica.size_bytes for replica in one.replicas]
        gone = [replica.size_bytes for replica in one.replicas if (one.broker_id, replica.tp) in targets]
        new = received.get((one.broker_id, one.path), [])
        changes.append(
            DiskChange(
                broker_id=one.broker_id,
                path=one.path,
                bytes_before=sum(before),
                bytes_after=sum(before) - sum(gone) + sum(new),
                bytes_received=sum(new),
                replicas_before=len(before),
                replicas_after=len(before) - len(gone) + len(new),
                free_bytes=one.usable_bytes,
            )
        )
    return changes
