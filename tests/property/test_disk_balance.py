"""Planned moves between log directories: within a broker, once per replica, balanced, with the space that is free."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.placement.balance import TOLERANCE, disk_changes, plan_disks
from kctl.admin.placement.documents import LogDirTargets
from kctl.admin.placement.log_dirs import LogDir, LogDirReplica, Replica
from kctl.errors import ErrorCode, KctlError
from kctl.model import TopicPartition
from tests.property.examples import examples
from tests.rows import for_rows


@st.composite
def disks(draw: st.DrawFn, *, with_space: bool = False) -> list[LogDir]:
    """Two brokers with one to five directories each, some offline or nearly full."""
    found = []
    for broker_id in range(2):
        number = 0
        for index in range(draw(st.integers(1, 5))):
            sizes = draw(st.lists(st.integers(0, 20) | st.integers(10**6, 10**9), max_size=8))
            replicas = tuple(
                LogDirReplica(TopicPartition("orders", number + index), size, 0) for index, size in enumerate(sizes)
            )
            number += len(sizes)
            is_online = with_space or draw(st.integers(0, 9)) > 0
            free = None if with_space else draw(st.none() | st.integers(0, 10**9))
            error = ErrorCode.NONE if is_online else ErrorCode.KAFKA_STORAGE_ERROR
            found.append(LogDir(broker_id, f"/disk{index}", error, replicas if is_online else (), free))
    return found


def everything(log_dirs: list[LogDir]) -> set[Replica]:
    return {(log_dir.broker_id, replica.tp) for log_dir in log_dirs for replica in log_dir.replicas}


def after(log_dirs: list[LogDir], targets: LogDirTargets) -> list[LogDir]:
    """The directories when all replicas have moved."""
    everywhere = {(log_dir.broker_id, replica.tp): replica for log_dir in log_dirs for replica in log_dir.replicas}
    return [
        replace(
            log_dir,
            replicas=tuple(replica for replica in log_dir.replicas if (log_dir.broker_id, replica.tp) not in targets)
            + tuple(
                everywhere[key] for key, path in targets.items() if (key[0], path) == (log_dir.broker_id, log_dir.path)
            ),
        )
        for log_dir in log_dirs
    ]


def loads(log_dirs: list[LogDir], broker_id: int) -> list[int]:
    return [
        sum(replica.size_bytes for replica in log_dir.replicas)
        for log_dir in log_dirs
        if log_dir.broker_id == broker_id and log_dir.error is ErrorCode.NONE
    ]


@examples(200)
@given(log_dirs=disks())
@pytest.mark.long
def test_plan_is_valid_and_needs_no_more_space_than_is_free(log_dirs: list[LogDir]) -> None:
    targets = plan_disks(log_dirs, movable=everything(log_dirs))
    online = {(log_dir.broker_id, log_dir.path) for log_dir in log_dirs if log_dir.error is ErrorCode.NONE}
    places = {(log_dir.broker_id, replica.tp): log_dir.path for log_dir in log_dirs for replica in log_dir.replicas}
    for key, path in targets.items():
        assert (key[0], path) in online
        assert places[key] != path
    for change in disk_changes(log_dirs, targets):
        assert change.free_bytes is None or change.bytes_received <= change.free_bytes
    assert plan_disks(list(reversed(log_dirs)), movable=everything(log_dirs)) == targets


@examples(200)
@given(log_dirs=disks(with_space=True))
def test_loads_are_nearer_to_the_mean_and_a_second_plan_is_not_worse(log_dirs: list[LogDir]) -> None:
    targets = plan_disks(log_dirs, movable=everything(log_dirs))
    moved = after(log_dirs, targets)
    for broker_id in range(2):
        before, now = loads(log_dirs, broker_id), loads(moved, broker_id)
        assert sum(now) == sum(before)
        assert max(now) <= max(before)
        assert min(now) >= min(before)
        if any(broker == broker_id for broker, _ in targets):
            assert sum(load**2 for load in now) < sum(load**2 for load in before)


@for_rows("others", range(1, 11))
def test_small_replicas_are_balanced_within_the_tolerance(others: int) -> None:
    small = tuple(LogDirReplica(TopicPartition("small", number), 10_000_000, 0) for number in range(500))
    full = LogDir(7, "/full", ErrorCode.NONE, small)
    empty = [LogDir(7, f"/empty{number}", ErrorCode.NONE) for number in range(others)]
    moved = after([full, *empty], plan_disks([full, *empty], movable=everything([full])))
    mean = sum(directory.size_bytes for directory in small) / len(moved)
    assert all(abs(load - mean) <= max(mean * TOLERANCE, 10_000_000) for load in loads(moved, 7))


def plan_or_reason(log_dirs: list[LogDir], drained: tuple[int, str]) -> tuple[LogDirTargets | None, str]:
    try:
        return plan_disks(log_dirs, drained={drained}, movable=everything(log_dirs)), ""
    except KctlError as error:
        return None, str(error)


@pytest.mark.long
@examples(200)
@given(log_dirs=disks())
def test_drained_directory_becomes_empty_or_the_reason_is_said(log_dirs: list[LogDir]) -> None:
    drained = next((log_dir for log_dir in log_dirs if log_dir.error is ErrorCode.NONE and log_dir.replicas), None)
    if drained is None:
        return
    key = (drained.broker_id, drained.path)
    targets, reason = plan_or_reason(log_dirs, key)
    if targets is None:
        assert f"cannot leave {drained.path} of broker {drained.broker_id}: no other log directory" in reason
        return
    moved = after(log_dirs, targets)
    place = next(directory for directory in moved if (directory.broker_id, directory.path) == key)
    assert place.replicas == ()
    for change in disk_changes(log_dirs, targets):
        assert change.free_bytes is None or change.bytes_received <= change.free_bytes


def test_replicas_that_may_not_move_stay() -> None:
    large = LogDirReplica(TopicPartition("orders", 0), 100, 0)
    other = LogDirReplica(TopicPartition("payments", 0), 90, 0)
    log_dirs = [LogDir(1, "/a", ErrorCode.NONE, (large, other)), LogDir(1, "/b", ErrorCode.NONE)]
    assert plan_disks(log_dirs, movable={(1, other.tp)}) == {(1, other.tp): "/b"}
    assert plan_disks(log_dirs, movable=set()) == {}


@pytest.mark.parametrize("sizes", [(), (100,), (100, 100)])
def test_nothing_is_planned_without_gain(sizes: tuple[int, ...]) -> None:
    log_dirs = [
        LogDir(1, f"/{number}", ErrorCode.NONE, (LogDirReplica(TopicPartition("orders", number), size, 0),))
        for number, size in enumerate(sizes)
    ]
    assert plan_disks(log_dirs, movable=everything(log_dirs)) == {}
