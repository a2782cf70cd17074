"""Which brokers replicate which partition of a new or growing topic.

Without racks: the first replicas of the partitions go round the brokers from a random start; the other replicas follow
the first at a distance that grows by one each time round, so that a failed broker's load is spread over all others.
With racks: the brokers are arranged so that neighbours stand in different racks, and a replica skips brokers whose rack
is taken while there are racks without a replica.

Kafka's AdminUtils.assignReplicasToBrokers; the same start and shift give the same assignment.

Pure: chance is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kctl.environment import Random
from kctl.errors import ApiError, ErrorCode
from kctl.limits import PARTITIONS_PER_TOPIC_MAX

Assignment = dict[int, tuple[int, ...]]
"""Partition to the brokers that replicate it, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class _Brokers:
    """Live brokers in the order in which replicas go round them."""

    arranged: Sequence[int]
    racks: Mapping[int, str] | None
    """None: racks do not matter."""

    @classmethod
    def of(cls, racks: Mapping[int, str | None]) -> _Brokers:
        known = {broker: rack for broker, rack in sorted(racks.items()) if rack is not None}
        if not known:
            return cls(sorted(racks), None)
        if len(known) < len(racks):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Some brokers have a rack and some have none")
        return cls(_rack_alternated(known), known)


def assign_replicas(
    brokers: Mapping[int, str | None], partition_count: int, replication_factor: int, random: Random
) -> Assignment:
    """Replicas for the partitions of a new topic; `brokers` are the live ones with their racks.

    Raises ApiError: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR (below 1 or above the number of brokers), or
    UNKNOWN_SERVER_ERROR when only some brokers have a rack, as Kafka does.
    """
    _check(brokers, partition_count, replication_factor)
    arranged = _Brokers.of(brokers)
    count = len(arranged.arranged)
    start, shift = random.randrange(0, count), random.randrange(0, count)
    return _assign(arranged, range(partition_count), replication_factor, start=start, shift=shift)


def assign_added_partitions(
    brokers: Mapping[int, str | None], existing: Mapping[int, Sequence[int]], added_count: int
) -> Assignment:
    """Replicas for partitions added to a topic, going on from where its partition 0 started.

    The replication factor is that of partition 0.  Raises ApiError as `assign_replicas` does.
    """
    first = existing[0]
    check_partition_count(len(existing) + added_count)
    _check(brokers, added_count, len(first))
    position = next((index for index, broker in enumerate(sorted(brokers)) if broker >= first[0]), 0)
    numbers = range(len(existing), len(existing) + added_count)
    return _assign(_Brokers.of(brokers), numbers, len(first), start=position, shift=position)


def check_partition_count(count: int) -> None:
    """Raises ApiError(INVALID_PARTITIONS) for more partitions than a topic may have."""
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must not be larger than {PARTITIONS_PER_TOPIC_MAX}, but it is {count}.",
        )


def _check(brokers: Mapping[int, str | None], partition_count: int, replication_factor: int) -> None:
    if partition_count <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    check_partition_count(partition_count)
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )


def _assign(brokers: _Brokers, partitions: range, replication_factor: int, *, start: int, shift: int) -> Assignment:
    assignment: Assignment = {}
    count = len(brokers.arranged)
    for partition in partitions:
        if partition > 0 and partition % count == 0:
            shift += 1
        leader_index = (partition + start) % count
        if brokers.racks is None:
            assignment[partition] = _followers_anywhere(brokers.arranged, leader_index, shift, replication_factor)
        else:
            assignment[partition] = _followers_by_rack(
                brokers.arranged, brokers.racks, leader_index, shift, replication_factor
            )
    return assignment


def _followers_anywhere(
    arranged: Sequence[int], leader_index: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    others = (_replica_index(leader_index, shift, step, len(arranged)) for step in range(replication_factor - 1))
    return (arranged[leader_index], *(arranged[index] for index in others))


def _followers_by_rack(
    arranged: Sequence[int], racks: Mapping[int, str], leader_index: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    replicas = [arranged[leader_index]]
    used_racks = {racks[replicas[0]]}
    step = 0
    while len(replicas) < replication_factor:
        broker = arranged[_replica_index(leader_index, shift * rack_count, step, len(arranged))]
        step += 1
        is_rack_taken = racks[broker] in used_racks and len(used_racks) < rack_count
        if not is_rack_taken and broker not in replicas:
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)


def _replica_index(leader_index: int, shift: int, step: int, count: int) -> int:
    return (leader_index + 1 + (shift + step) % (count - 1)) % count


def _rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """One broker of each rack in turn, racks and brokers in order, until all have had their turn."""
    waiting = {
        rack: sorted(broker for broker in racks if racks[broker] == rack) for rack in sorted(set(racks.values()))
    }
    arranged: list[int] = []
    while len(arranged) < len(racks):
        arranged += [brokers.pop(0) for brokers in waiting.values() if brokers]
    return arranged
