"""Moves the leaders of a broker away and back, by the order of replicas and preferred elections."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kctl.admin.election import Election, ElectionType, elect_leaders
from kctl.admin.outcome import Outcome
from kctl.admin.reassigning import SETTLE_AFTER_MOVE_MS, Situation, look, look_settled, start_moves
from kctl.admin.reassignment_plan import Move, MoveState, partition_of
from kctl.admin.reassignment_spec import Assignment, format_reassignment, parse_reassignment
from kctl.admin.rollback_files import write_new
from kctl.client.cluster import ClusterClient
from kctl.client.metadata import ClusterMetadata
from kctl.errors import ErrorCode, KctlError, UsageError
from kctl.model import NO_LEADER, TopicPartition


class MaintenanceRecord:
    """The order of replicas before the maintenance of one broker: Kafka's JSON of reassignments, in a file."""

    def __init__(self, folder: Path, broker: int) -> None:
        self.path = folder / f"maintenance-{broker}.json"

    def load(self) -> Assignment:
        """The saved order; empty without a file.  Raises KctlError for an invalid file."""
        try:
            return parse_reassignment(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise KctlError(f"{self.path}: {error.strerror}") from None
        except (UsageError, UnicodeDecodeError) as error:
            raise KctlError(f"{self.path} is not a valid record of a maintenance: {error}") from None

    def save(self, replicas: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Replaces the file atomically; without partitions, deletes it.  Raises OSError."""
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
    """Changes the order of replicas, and waits until that is done; returns the outcome of each partition."""
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
    """Waits until the order of all has changed, or the time is over since the last one did: a controller with ZooKeeper
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
    """Elects the preferred leaders; a partition that has it already is not an error."""
    if not partitions:
        return []
    elections = await elect_leaders(client, ElectionType.PREFERRED, partitions, before)
    return [one if one.is_needed else replace(one, outcome=Outcome(str(one.tp))) for one in elections]


async def leaders_of(client: ClusterClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The present leaders; NO_LEADER for partitions without one."""
    if not partitions:
        return {}
    metadata = await client.metadata({tp.topic for tp in partitions})
    found = {tp: partition_of(metadata, tp) for tp in partitions}
    return {tp: NO_LEADER if one is None else one.leader for tp, one in found.items()}
