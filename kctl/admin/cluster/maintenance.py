"""Moves the leaders of a broker away and back, by the order of replicas and preferred elections."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kctl.admin.groups.undo_files import write_new
from kctl.admin.placement.documents import Assignment, format_reassignment, parse_reassignment
from kctl.admin.placement.election import Election, ElectionType, elect_leaders
from kctl.admin.placement.execution import SETTLE_AFTER_MOVE_MS, Situation, look, look_settled, start_moves
from kctl.admin.placement.plan import Move, MoveState, partition_of
from kctl.client.cluster import ClusterClient
from kctl.client.metadata import ClusterMetadata, Partition
from kctl.client.outcome import Outcome, absent_broker
from kctl.errors import ApiError, ErrorCode, KctlError, UsageError
from kctl.model import NO_LEADER, TopicPartition


class MaintenanceRecord:
    """The order of replicas before the maintenance of one broker: Kafka's JSON of reassignments, in a file."""

    def __init__(self, folder: Path, broker: int) -> None:
        self.path = folder / f"maintenance-{broker}.json"

    def load(self) -> Assignment:
        """Return the saved order; empty without a file.  Raises KctlError for an invalid file."""
        try:
            return parse_reassignment(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise KctlError(f"{self.path}: {error.strerror}") from None
        except (UsageError, UnicodeDecodeError) as error:
            raise KctlError(f"{self.path} is not a valid record of a maintenance: {error}") from None

    def save(self, replicas: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Replace the file atomically; without partitions, delete it.  Raises OSError."""
        if not replicas:
            self.path.unlink(missing_ok=True)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()  # Left by a command that was killed.
        write_new(temporary, format_reassignment(replicas) + "\n")
        temporary.replace(self.path)


async def reorder_replicas(client: ClusterClient, targets: Assignment) -> dict[TopicPartition, Outcome]:
    """Change the order of replicas, and wait until that is done; return the outcome of each partition."""
    if not targets:
        return {}
    situation = await look(client, targets)
    outcomes = await start_moves(client, situation.moves)
    started = [move for move in situation.moves if outcomes[move.tp].is_done]
    if not started:
        return outcomes
    after = await _wait(client, started)
    for move in started:
        state = after.state_of(move)
        if state is MoveState.IN_PROGRESS:
            text = (
                f"the order of its replicas has not changed within {client.settings.timeout_ms} ms: repeat the command"
            )
            outcomes[move.tp] = Outcome(str(move.tp), ErrorCode.REQUEST_TIMED_OUT, text)
        elif state is not MoveState.COMPLETE:
            text = "the order of its replicas was changed by another reassignment"
            outcomes[move.tp] = Outcome(str(move.tp), ErrorCode.REASSIGNMENT_IN_PROGRESS, text)
    return outcomes


async def _wait(client: ClusterClient, moves: Sequence[Move]) -> Situation:
    """Wait until the order of all has changed, or the time is over since the last one did: a controller with ZooKeeper
    waits for replicas that are not in sync.
    """
    targets = {move.tp: move.target for move in moves}
    left, deadline = len(moves), client.deadline()
    while True:
        now = await look(client, targets)
        moving = sum(now.state_of(move) is MoveState.IN_PROGRESS for move in moves)
        if not moving:
            return await look_settled(client, targets, {}, SETTLE_AFTER_MOVE_MS)
        if moving < left:
            left, deadline = moving, client.deadline()
        if not await deadline.pause():
            return now


async def elect_preferred(
    client: ClusterClient, partitions: Sequence[TopicPartition], before: ClusterMetadata
) -> list[Election]:
    """Elect the preferred leaders; a partition that has it already is not an error."""
    if not partitions:
        return []
    elections = await elect_leaders(client, ElectionType.PREFERRED, partitions, before)
    return [
        election if election.is_needed else replace(election, outcome=Outcome(str(election.tp)))
        for election in elections
    ]


async def leaders_of(client: ClusterClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the present leaders; NO_LEADER for partitions without one."""
    if not partitions:
        return {}
    metadata = await client.metadata({tp.topic for tp in partitions})
    found = {tp: partition_of(metadata, tp) for tp in partitions}
    return {tp: NO_LEADER if partition is None else partition.leader for tp, partition in found.items()}


# Plans the maintenance of a broker: which partitions it must not lead meanwhile, and how they get their leaders back.
#
# Pure. Only the order of replicas changes: the broker becomes the last, so that no election prefers it.


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition that the broker leads or would lead after a preferred election."""

    tp: TopicPartition
    leader: int
    current: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """The changes of `on`, and the partitions that prevent them."""

    handovers: list[Handover]
    unavailable: list[TopicPartition]
    """Partitions whose only in-sync replica is on the broker."""

    @property
    def targets(self) -> Assignment:
        """The new order of replicas, of the partitions where it changes."""
        return {handover.tp: handover.target for handover in self.handovers if handover.target != handover.current}

    @property
    def origins(self) -> Assignment:
        """The present order of the same partitions."""
        return {handover.tp: handover.current for handover in self.handovers if handover.target != handover.current}


def plan_maintenance(metadata: ClusterMetadata, broker: int) -> MaintenancePlan:
    """Plan to move leadership from a live broker to the next in-sync replica.  Raises ApiError if it is dead."""
    if broker not in metadata.brokers:
        raise absent_broker(broker, metadata.brokers)
    handovers, unavailable = [], []
    for topic in metadata.topics.values():
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition)
            if broker not in partition.replicas:
                continue
            if not [other for other in partition.isr if other != broker and other in metadata.brokers]:
                unavailable.append(tp)
            elif partition.leader == broker or partition.replicas[0] == broker:
                handovers.append(
                    Handover(tp, partition.leader, partition.replicas, _order_without(partition, broker, metadata))
                )
    return MaintenancePlan(handovers, unavailable)


def _order_without(partition: Partition, broker: int, metadata: ClusterMetadata) -> tuple[int, ...]:
    """Return the broker last, and a live in-sync replica first; the order of the others stays."""
    others = [replica for replica in partition.replicas if replica != broker]
    first = next(other for other in others if other in partition.isr and other in metadata.brokers)
    return (first, *(other for other in others if other != first), broker)


@dataclass(frozen=True, slots=True)
class ReturnPlan:
    """The changes of `off`."""

    targets: Assignment
    """The previous order of replicas, of the partitions that still have the same replicas."""
    waiting: list[TopicPartition]
    """Partitions for which the broker is not in sync yet."""
    changed: list[TopicPartition]
    """Partitions that have other replicas than before, or were deleted; their order stays."""


def plan_return(metadata: ClusterMetadata, broker: int, saved: Mapping[TopicPartition, tuple[int, ...]]) -> ReturnPlan:
    """Plan to restore the saved order of replicas.  Raises ApiError if the broker is not alive."""
    if broker not in metadata.brokers:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not alive: start it first")
    plan = ReturnPlan({}, [], [])
    for tp, replicas in sorted(saved.items()):
        now = partition_of(metadata, tp)
        if now is None or sorted(now.replicas) != sorted(replicas):
            plan.changed.append(tp)
        elif broker not in now.isr:
            plan.waiting.append(tp)
        else:
            plan.targets[tp] = tuple(replicas)
    return plan
