"""Rebalances of large groups take several turns of the event loop; other events of the group wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kctl.errors import ErrorCode
from kctl.records.header import Record
from kctl.records.internal.topics import decode_group_metadata_value
from kctl.server.coordination.groups import records, runner
from kctl.server.coordination.groups.actions import Action, GroupState, JoinOutcome, LeaveOutcome, SyncOutcome
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.events import Event, Leaver, Now
from kctl.server.coordination.groups.group import Group
from kctl.server.coordination.groups.records import group_record, group_record_in_pieces
from kctl.server.coordination.groups.rules import rebalance
from kctl.server.coordination.groups.step import step
from kctl.testing.sim_loop import SimLoop, simulate
from tests.rows import for_rows
from tests.unit.groups.hosting import Host, settled
from tests.unit.groups.world import protocols

MEMBERS, PER_STEP = 20, 3


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rebalance, records, runner):
        monkeypatch.setattr(module, "GROUP_MEMBERS_PER_STEP_MAX", PER_STEP)


async def joined(host: Host) -> list[JoinOutcome]:
    """The members of a new group, the leader first."""
    joins = [host.join(protocols=protocols("range", "sticky")) for _ in range(MEMBERS)]
    members = [await settled(join) for join in joins]
    assert len(members[0].members) == MEMBERS
    return members


async def stable(host: Host) -> list[JoinOutcome]:
    """The members of a stable group."""
    members = await joined(host)
    assignments = {member.member_id: member.member_id.encode() for member in members}
    syncs = [host.sync("g", member.member_id, 1, assignments) for member in members]
    assert [(await settled(sync)).assignment for sync in syncs] == list(assignments.values())
    return members


def group_of(host: Host) -> Group:
    return host.coordinator.hosted["g"].group


def bytes_of(coordinator: GroupCoordinator) -> int:
    return coordinator._runner.metadata_bytes


def test_no_step_is_for_more_than_some_members(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(group: Group, event: Event, now: Now) -> list[Action]:
        before = group.joining_count + sum(member.sync_token is not None for member in group.members.values())
        actions = step(group, event, now)
        sizes.append(
            before - group.joining_count - sum(member.sync_token is not None for member in group.members.values())
        )
        return actions

    monkeypatch.setattr(runner, "step", counted)

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        members = await stable(host)
        host.join("g", members[0].member_id)
        for member in members[1:]:
            host.join("g", member.member_id)
        await asyncio.sleep(1)
        assert (group_of(host).generation, group_of(host).state) == (2, GroupState.COMPLETING_REBALANCE)
        host.coordinator.partitions.on_resign(0)
        await host.coordinator.stop()
        assert bytes_of(host.coordinator) == 0

    simulate(main, seed=1)
    assert max(sizes) == PER_STEP


def test_events_during_a_rebalance_wait_for_its_end() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        members = await stable(host)
        joins = [host.join("g", member.member_id, client_id="again") for member in members]
        hosted = host.coordinator.hosted["g"]
        assert hosted.is_busy
        beat = host.coordinator.heartbeat("g", member_id=members[1].member_id, group_instance_id=None, generation=2)
        left = host.coordinator.leave("g", [Leaver(members[2].member_id), Leaver("unknown")])
        assert isinstance(beat, asyncio.Future)
        assert isinstance(left, asyncio.Future)
        assert {(await settled(join)).generation for join in joins} == {2}
        assert await beat is ErrorCode.NONE
        assert await left == LeaveOutcome(ErrorCode.NONE, (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID))
        assert (len(group_of(host).members), group_of(host).state) == (MEMBERS - 1, GroupState.PREPARING_REBALANCE)
        assert await host.coordinator.delete("g") is ErrorCode.NON_EMPTY_GROUP
        await host.coordinator.stop()

    simulate(main, seed=1)


@for_rows("turns", range(0, 30, 3))
@pytest.mark.long
def test_a_stop_during_a_rebalance_completes_all_requests(turns: int) -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        members = await joined(host)
        syncs = [host.sync("g", member.member_id, 1) for member in reversed(members)]
        for _ in range(turns):
            await asyncio.sleep(0.001)
        beat = host.coordinator.heartbeat("g", member_id=members[0].member_id, group_instance_id=None, generation=1)
        await host.coordinator.stop()
        await asyncio.sleep(0)
        outcomes: list[SyncOutcome] = [await settled(sync) for sync in syncs]
        assert {outcome.error for outcome in outcomes} <= {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}
        await settled(beat)
        assert bytes_of(host.coordinator) == 0

    simulate(main, seed=1)


def test_the_record_of_a_large_generation_is_that_of_a_small_one() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        members = await stable(host)
        (value,) = [record.value for record in host.log.records()]
        assert value is not None
        stored = decode_group_metadata_value(value)
        assert [member.member_id for member in stored.members] == [member.member_id for member in members]
        group = group_of(host)
        assignments = {member.member_id: member.member_id.encode() for member in members}
        snapshot = group.snapshot(list(group.member_snapshots(assignments)))
        for version in range(4):
            made: list[Record] = []

            def making(version: int = version, made: list[Record] = made) -> Iterator[None]:
                made.append((yield from group_record_in_pieces("g", snapshot, 1, version)))

            assert sum(1 for _ in making()) == -(-MEMBERS // PER_STEP)
            assert made == [group_record("g", snapshot, 1, version)]
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_an_assignment_that_is_too_large_for_the_log_is_refused_in_steps() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        members = await joined(host)
        assignments = {member.member_id: bytes(1 << 16) for member in members}
        syncs = [host.sync("g", member.member_id, 1, assignments) for member in reversed(members)]
        assert {(await settled(sync)).error for sync in syncs} == {ErrorCode.UNKNOWN_SERVER_ERROR}
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_topics_of_subscriptions_are_read_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription may have thousands of topics."""
    read: list[int] = []

    def counted(group: Group, event: Event, now: Now) -> list[Action]:
        before = group.subscribed_topics
        actions = step(group, event, now)
        read.append(before is None and group.subscribed_topics is not None)
        return actions

    monkeypatch.setattr(runner, "step", counted)

    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        topics = tuple(f"topic {number}" for number in range(100))
        joins = [host.join(protocols=protocols("range", topics=(*topics, str(number)))) for number in range(MEMBERS)]
        for join in joins:
            await settled(join)
        await asyncio.sleep(1)
        assert group_of(host).subscribed_topics == frozenset((*topics, *map(str, range(MEMBERS))))
        assert len(read) > MEMBERS * 1_000 // 100 // PER_STEP
        await host.coordinator.stop()

    simulate(main, seed=1)
