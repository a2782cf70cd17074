"""Assigns replicas to brokers for new topics and new partitions.  Pure; the random source is an argument.

Without racks, the first replicas are assigned round-robin from a random broker. The other replicas follow the first at
a distance that grows by one after each round, so that the load of a failed broker is spread over all others.  With
racks, the brokers are first ordered so that neighbours are in different racks, and a broker is skipped if its rack
has a replica of the partition while other racks have none.

Kafka's AdminUtils.assignReplicasToBrokers; the same start and shift give the same assignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kctl.errors import ApiError, ErrorCode
from kctl.limits import PARTITIONS_PER_TOPIC_MAX
from kctl.system.environment import Random

Assignment = dict[int, tuple[int, ...]]
"""Partition to the brokers that replicate it, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class _Brokers:
    """Live brokers in the order of assignment."""

    arranged: Sequence[int]
    racks: Mapping[int, str] | None
    """None if no broker has a rack."""

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
    """Assign replicas for a new topic.  `brokers` maps the ids of live brokers to their racks.

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
    """Assign replicas for partitions added to a topic, starting at the first replica of partition 0.

    The replication factor is that of partition 0.  Raises ApiError as `assign_replicas` does.
    """
    first = existing[0]
    check_partition_count(len(existing) + added_count)
    _check(brokers, added_count, len(first))
    position = next((index for index, broker in enumerate(sorted(brokers)) if broker >= first[0]), 0)
    numbers = range(len(existing), len(existing) + added_count)
    return _assign(_Brokers.of(brokers), numbers, len(first), start=position, shift=position)


def partitions_sharing_racks(assignment: Mapping[int, Sequence[int]], racks: Mapping[int, str | None]) -> list[int]:
    """Return the partitions with several replicas in one rack.  Brokers without a rack share none."""
    found = []
    for partition, replicas in assignment.items():
        used = [rack for replica in replicas if (rack := racks.get(replica)) is not None]
        if len(set(used)) < len(used):
            found.append(partition)
    return found


def check_partition_count(count: int) -> None:
    """Raise ApiError(INVALID_PARTITIONS) for more partitions than a topic may have."""
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
    """Return all brokers, one of each rack in turn.  Kafka's AdminUtils.getRackAlternatedBrokerList."""
    waiting = {
        rack: sorted(broker for broker in racks if racks[broker] == rack) for rack in sorted(set(racks.values()))
    }
    arranged: list[int] = []
    while len(arranged) < len(racks):
        arranged += [brokers.pop(0) for brokers in waiting.values() if brokers]
    return arranged
