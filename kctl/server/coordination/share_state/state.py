"""The state of one share-partition, and what each request does with it.

A snapshot has the whole state; updates have what has changed since.  After
share.coordinator.snapshot.update.records.per.snapshot updates the next record is a snapshot.

Two epochs fence old requests: that of the state increases when the group coordinator sets the start offset anew, and
that of the leader when another broker reads the state to lead the partition.

Pure.  Kafka: ShareCoordinatorShard, ShareGroupOffset.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kctl.errors import ApiError, ErrorCode
from kctl.limits import Subject, bound
from kctl.server.share_partitions.values import NO_OFFSET, StateBatch, StateChange, merge_batches

NO_EPOCH = -1
STATE_BATCHES_MAX = bound(
    Subject.COORDINATION,
    "batches of offsets in the state of one share-partition",
    20_000,
    "batches",
    on_excess="INVALID_REQUEST for the write",
)


@dataclass(frozen=True, slots=True)
class ShareState:
    """The state of a share-partition."""

    state_epoch: int
    start_offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = -1
    snapshot_epoch: int = 0
    created_ms: int = 0
    snapshot_ms: int = 0
    updates: int = field(default=0, compare=False)
    """The records since the snapshot."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A record of the whole state."""

    state: ShareState


@dataclass(frozen=True, slots=True)
class Update:
    """A record of a change since the snapshot."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """A tombstone."""


Change: TypeAlias = Snapshot | Update | Deletion


@dataclass(frozen=True, slots=True)
class Initialize:
    """The group coordinator begins or resets the state."""

    state_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class Read:
    """A leader reads the state, and fences earlier leaders."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Write:
    """A leader writes a change."""

    change: StateChange


@dataclass(frozen=True, slots=True)
class Delete:
    """The group coordinator deletes the state."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """The last snapshot is old: a new one lets the log be cut before it."""


Event: TypeAlias = Initialize | Read | Write | Delete | Refresh


def decide(state: ShareState | None, event: Event, now_ms: int, *, updates_max: int) -> Change | None:
    """Return the record that the event needs; None if it changes nothing.  Raises ApiError."""
    match event:
        case Initialize(state_epoch, start_offset):
            if state is not None and state.state_epoch > state_epoch:
                raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
            epoch = 0 if state is None else state.snapshot_epoch + 1
            return Snapshot(
                ShareState(
                    state_epoch,
                    start_offset,
                    leader_epoch=0,
                    delivery_complete_count=-1 if start_offset == NO_OFFSET else 0,
                    snapshot_epoch=epoch,
                    created_ms=now_ms,
                    snapshot_ms=now_ms,
                )
            )
        case Read(leader_epoch):
            current = _existing(state, leader_epoch, "Read")
            if leader_epoch <= current.leader_epoch:
                return None
            change = StateChange(current.state_epoch, leader_epoch, NO_OFFSET)
            return _changed(current, change, now_ms, updates_max)
        case Write(change):
            current = _existing(state, change.leader_epoch, "Write")
            if current.state_epoch != change.state_epoch:
                raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
            _check(change)
            return _changed(current, change, now_ms, updates_max)
        case Delete():
            return None if state is None else Deletion()
        case Refresh():
            return None if state is None else _snapshot_of(state, now_ms)


def applied(state: ShareState | None, change: Change) -> ShareState | None:
    """Return the state after a record; None if it is deleted, or was never begun."""
    match change:
        case Deletion():
            return None
        case Snapshot(whole):
            return whole
        case Update():
            if state is None or change.snapshot_epoch != state.snapshot_epoch:
                return state  # Of another snapshot.
            # A leader that does not know whether its last write was stored may send an earlier start, before which
            # there is no state any more.
            start = max(state.start_offset, change.start_offset)
            is_fence = change.start_offset == NO_OFFSET and not change.batches
            count = state.delivery_complete_count if is_fence else change.delivery_complete_count
            return replace(
                state,
                leader_epoch=max(state.leader_epoch, change.leader_epoch),
                start_offset=start,
                batches=merge_batches(state.batches, change.batches, start),
                delivery_complete_count=count,
                updates=state.updates + 1,
            )


def check_reader(state: ShareState | None, leader_epoch: int) -> None:
    """Raise ApiError(FENCED_LEADER_EPOCH) for a reader of the summary with an old leader epoch."""
    if state is not None and NO_EPOCH < leader_epoch < state.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)


def _existing(state: ShareState | None, leader_epoch: int, what: str) -> ShareState:
    if state is None:
        message = f"{what} operation on uninitialized share partition not allowed."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if NO_EPOCH < leader_epoch < state.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    return state


def _check(change: StateChange) -> None:
    end = -1
    for batch in sorted(change.batches):
        if not end < batch.first <= batch.last:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the batches of a share-partition overlap, or are empty")
        end = batch.last
    if len(change.batches) > STATE_BATCHES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a share-partition has at most {STATE_BATCHES_MAX} batches")


def _changed(state: ShareState, change: StateChange, now_ms: int, updates_max: int) -> Change:
    update = Update(
        state.snapshot_epoch,
        change.leader_epoch,
        change.start_offset,
        change.batches,
        change.delivery_complete_count,
    )
    if state.updates < updates_max:
        return update
    whole = applied(state, update)
    assert whole is not None
    return _snapshot_of(whole, now_ms)


def _snapshot_of(state: ShareState, now_ms: int) -> Snapshot:
    return Snapshot(replace(state, snapshot_epoch=state.snapshot_epoch + 1, snapshot_ms=now_ms, updates=0))
