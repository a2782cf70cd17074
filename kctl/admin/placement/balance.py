"""Moves replicas from brokers and log directories with much load, and leaders, by pure plans."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from kctl.admin.placement.documents import LogDirTargets
from kctl.admin.placement.log_dirs import LogDir, Replica, file_systems_of
from kctl.admin.placement.state import Placement
from kctl.errors import ErrorCode, KctlError
from kctl.model import TopicPartition

# Moves replicas from brokers with much load to brokers with little. Pure.
#
# Each move brings the two brokers nearer to the mean: both end between their previous loads, so the difference
# between the largest and the smallest load never grows, and the sum of the squared loads falls, so the planner ends.


TOLERANCE = 0.05
"""Loads that differ from the mean by less than this share are balanced: smaller differences justify no copying."""

_Held = dict[int, list[tuple[int, TopicPartition]]]
"""The movable replicas on each broker as (negative weight, partition), the largest first."""


def balance_load(
    placement: Placement,
    *,
    givers: Collection[int],
    receivers: Collection[int],
    brokers: Collection[int],
    movable: Collection[TopicPartition],
) -> None:
    """Move replicas of `movable` from givers to receivers towards the mean load of `brokers`."""
    if not brokers:
        return
    mean = sum(placement.load[broker] for broker in brokers) / len(brokers)
    held: _Held = {broker: [] for broker in {*givers, *receivers}}
    for tp in movable:
        for broker in placement.replicas[tp]:
            if broker in held and placement.weights[tp] > 0:
                held[broker].append((-placement.weights[tp], tp))
    for replicas in held.values():
        replicas.sort()
    failed: set[tuple[int, int]] = set()
    while True:
        move = _next_move(placement, held, givers, receivers, mean, failed)
        if move is None:
            # Other moves may have made moves possible between pairs that had none: the end is a search of all pairs.
            failed.clear()
            move = _next_move(placement, held, givers, receivers, mean, failed)
        if move is None:
            return
        tp, giver, receiver = move
        placement.replace(tp, giver, receiver)
        entry = (-placement.weights[tp], tp)
        del held[giver][bisect_left(held[giver], entry)]
        insort(held[receiver], entry)


def _next_move(
    placement: Placement,
    held: _Held,
    givers: Collection[int],
    receivers: Collection[int],
    mean: float,
    failed: set[tuple[int, int]],
) -> tuple[TopicPartition, int, int] | None:
    """Return the next (partition, giver, receiver), from the largest load to the smallest if possible.

    Pairs of giver and receiver without a move are added to `failed`, and those that are there already are not searched.
    """
    load = placement.load
    empty_first = sorted(receivers, key=lambda broker: (load[broker], broker))
    for giver in sorted(givers, key=lambda broker: (-load[broker], broker)):
        excess = load[giver] - mean
        if excess <= 0:
            break
        for receiver in empty_first:
            deficit = mean - load[receiver]
            if deficit <= 0:
                break
            if max(excess, deficit) <= mean * TOLERANCE:
                break
            if (giver, receiver) in failed:
                continue
            tp = _choose(placement, held[giver], giver, receiver, excess, deficit)
            if tp is not None:
                return tp, giver, receiver
            failed.add((giver, receiver))
    return None


def _choose(
    placement: Placement,
    replicas: list[tuple[int, TopicPartition]],
    giver: int,
    receiver: int,
    excess: float,
    deficit: float,
) -> TopicPartition | None:
    """Return the largest replica with which neither broker crosses the mean, else the smallest that is worth its
    copy.
    """
    wanted = min(excess, deficit)
    middle = bisect_left(replicas, -int(wanted), key=lambda entry: entry[0])
    for _, tp in islice(replicas, middle, None):
        if _is_allowed(placement, tp, giver, receiver):
            return tp
    for index in range(middle - 1, -1, -1):
        negative, tp = replicas[index]
        weight = -negative
        if weight > excess + deficit:
            break
        nearer = excess + deficit - abs(excess - weight) - abs(deficit - weight)
        # A move that crosses no mean brings the loads nearer by twice its weight; half of that is the least.
        if nearer >= weight and _is_allowed(placement, tp, giver, receiver):
            return tp
    return None


def _is_allowed(placement: Placement, tp: TopicPartition, giver: int, receiver: int) -> bool:
    """Return whether the receiver has no replica of the partition, has space, and the replicas stay in as many
    racks.
    """
    now = placement.replicas[tp]
    if receiver in now or not placement.fits(tp, receiver):
        return False
    after = [receiver if broker == giver else broker for broker in now]
    return placement.state.rack_count(after) >= placement.state.rack_count(now)


# Balances preferred leaders by changing the order of replicas, without copying. Pure.


_Led = dict[int, dict[int, set[TopicPartition]]]
"""By preferred leader, and by another replica on an eligible broker: partitions that could prefer the other."""


def balance_leaders(placement: Placement, movable: Collection[TopicPartition], brokers: Collection[int]) -> None:
    """Make the numbers of preferred leaders on `brokers` as equal as the replicas of `movable` permit.

    Leadership is passed along the shortest chain of brokers from one with many to one with at least two fewer, until
    there is none, which is an optimal semi-matching (Harvey, Ladner, Lovasz, Tamir, 2006).
    """
    eligible = set(brokers)
    counts = Counter(dict.fromkeys(eligible, 0))
    counts.update(replicas[0] for replicas in placement.replicas.values() if replicas[:1] and replicas[0] in eligible)
    led: _Led = {broker: {} for broker in eligible}
    for tp in movable:
        _enter(led, tp, placement.replicas[tp])
    while (chain := _chain(led, counts)) is not None:
        for old, new in pairwise(chain):
            tp = min(led[old][new])
            _leave(led, tp, placement.replicas[tp])
            placement.place(tp, _swapped(placement.replicas[tp], new))
            _enter(led, tp, placement.replicas[tp])
        counts[chain[0]] -= 1
        counts[chain[-1]] += 1


def _chain(led: _Led, counts: Counter[int]) -> list[int] | None:
    """Return the shortest chain from a broker with the most leaders to one with at least two fewer."""
    for start in sorted(counts, key=lambda broker: (-counts[broker], broker)):
        previous = {start: start}
        queue = deque([start])
        while queue:
            broker = queue.popleft()
            if counts[broker] <= counts[start] - 2:
                chain = [broker]
                while chain[-1] != start:
                    chain.append(previous[chain[-1]])
                return chain[::-1]
            for other in sorted(led[broker], key=lambda broker_id: (counts[broker_id], broker_id)):
                if other not in previous and led[broker][other]:
                    previous[other] = broker
                    queue.append(other)
    return None


def _enter(led: _Led, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    for other in _others(led, replicas):
        led[replicas[0]].setdefault(other, set()).add(tp)


def _leave(led: _Led, tp: TopicPartition, replicas: tuple[int, ...]) -> None:
    for other in _others(led, replicas):
        led[replicas[0]][other].remove(tp)


def _others(led: _Led, replicas: tuple[int, ...]) -> Iterable[int]:
    return [replica for replica in replicas[1:] if replica in led] if replicas[0] in led else []


def _swapped(replicas: tuple[int, ...], first: int) -> tuple[int, ...]:
    """`first` and the preferred leader change places."""
    return tuple({replicas[0]: first, first: replicas[0]}.get(broker, broker) for broker in replicas)


# Plans moves of replicas between the log directories of a broker (KIP-113). Pure.
#
# Each move brings the two directories nearer to the mean of the broker, and no replica moves twice, so the planner
# ends. The same directories give the same plan.


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


class _Volume:
    """The free space of a file system, which its log directories share."""

    def __init__(self, free_bytes: int | None) -> None:
        self.free_bytes = free_bytes


class _Disk:
    """A log directory while its broker is planned."""

    def __init__(self, log_dir: LogDir, volume: _Volume) -> None:
        self.path = log_dir.path
        self.sizes = {replica.tp: replica.size_bytes for replica in log_dir.replicas}
        self.load = sum(self.sizes.values())
        self._volume = volume

    def fits(self, size: int) -> bool:
        """Whether the directory has space for one more replica; true if its free space is unknown."""
        free_bytes = self._volume.free_bytes
        return free_bytes is None or size <= free_bytes

    def receive(self, size: int) -> None:
        """Account for a replica that moves here."""
        self.load += size
        if self._volume.free_bytes is not None:
            self._volume.free_bytes -= size


def plan_disks(
    log_dirs: Iterable[LogDir], *, drained: Collection[tuple[int, str]] = (), movable: Collection[Replica]
) -> LogDirTargets:
    """Return the new directories of the replicas that move: the drained (broker, path) become empty, the others
    balanced.

    Only `movable` replicas move.  Offline directories neither give nor receive.  Raises KctlError if a drained
    directory cannot be emptied.
    """
    by_broker: dict[int, list[LogDir]] = {}
    for log_dir in sorted(log_dirs, key=lambda directory: (directory.broker_id, directory.path)):
        if log_dir.error is ErrorCode.NONE:
            by_broker.setdefault(log_dir.broker_id, []).append(log_dir)
    targets: dict[tuple[int, TopicPartition], str] = {}
    for broker_id, own in by_broker.items():
        here = {tp for broker, tp in movable if broker == broker_id}
        volumes = {
            path: volume
            for file_system in file_systems_of(own)
            for volume in [_Volume(file_system.usable_bytes)]
            for path in file_system.paths
        }
        disks = [_Disk(log_dir, volumes.get(log_dir.path) or _Volume(None)) for log_dir in own]
        emptied = [disk for disk in disks if (broker_id, disk.path) in drained]
        kept = [disk for disk in disks if (broker_id, disk.path) not in drained]
        moves = _drain(broker_id, emptied, kept, here)
        moves.update(_balance(kept, here))
        targets.update({(broker_id, tp): path for tp, path in sorted(moves.items())})
    return targets


def _drain(
    broker_id: int, emptied: Sequence[_Disk], kept: Sequence[_Disk], movable: Collection[TopicPartition]
) -> dict[TopicPartition, str]:
    """Return the largest replicas first, each to the directory with the smallest load."""
    moves: dict[TopicPartition, str] = {}
    for disk in emptied:
        for tp in _largest_first(disk, movable):
            size = disk.sizes[tp]
            receiver = min(
                (disk for disk in kept if disk.fits(size)), key=lambda disk: (disk.load, disk.path), default=None
            )
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
    while found := _next_disk_move(disks, left, mean):
        tp, giver, receiver = found
        left[giver.path].remove(tp)
        giver.load -= giver.sizes[tp]
        receiver.receive(giver.sizes[tp])
        moves[tp] = receiver.path
    return moves


def _next_disk_move(
    disks: Sequence[_Disk], left: dict[str, list[TopicPartition]], mean: float
) -> tuple[TopicPartition, _Disk, _Disk] | None:
    """Return the next replica, from the largest load to the smallest if possible; one that neither overfills nor
    reverses.
    """
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
    """Return the change of each log directory, by broker and path."""
    found = sorted(log_dirs, key=lambda log_dir: (log_dir.broker_id, log_dir.path))
    sizes = {(log_dir.broker_id, replica.tp): replica.size_bytes for log_dir in found for replica in log_dir.replicas}
    received: dict[tuple[int, str], list[int]] = {}
    for (broker_id, tp), path in targets.items():
        received.setdefault((broker_id, path), []).append(sizes[broker_id, tp])
    changes = []
    for log_dir in found:
        before = [replica.size_bytes for replica in log_dir.replicas]
        gone = [replica.size_bytes for replica in log_dir.replicas if (log_dir.broker_id, replica.tp) in targets]
        new = received.get((log_dir.broker_id, log_dir.path), [])
        changes.append(
            DiskChange(
                broker_id=log_dir.broker_id,
                path=log_dir.path,
                bytes_before=sum(before),
                bytes_after=sum(before) - sum(gone) + sum(new),
                bytes_received=sum(new),
                replicas_before=len(before),
                replicas_after=len(before) - len(gone) + len(new),
                free_bytes=log_dir.usable_bytes,
            )
        )
    return changes
