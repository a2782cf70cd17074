"""The group coordinator: refusals, loading, unloading and expiry."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from kctl.errors import CorruptLog, ErrorCode
from kctl.model import TopicPartition, partition_for_key
from kctl.records.build import build_batch
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record
from kctl.server.coordination.groups.actions import CommitOutcome, GroupCounts, GroupState, LeaveOutcome
from kctl.server.coordination.groups.events import CommitRequest, Leaver
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.records import offset_records
from kctl.server.coordination.groups.runner import GROUPS_PER_TURN, REPLIES_PER_TURN
from kctl.server.coordination.replies import Reply
from kctl.testing.sim_loop import SimLoop, simulate
from tests.rows import for_rows
from tests.unit.groups.hosting import Host, MemoryOffsetsLog, settled

T0 = TopicPartition("t", 0)


def commit(host: Host, group_id: str = "g", offset: int = 5, **options: Any) -> Reply[CommitOutcome]:
    offsets = {T0: OffsetAndMetadata(offset, commit_timestamp_ms=host.clock.now_ms())}
    return host.coordinator.commit(group_id, CommitRequest(offsets=offsets, **options))


def offset_of(host: Host, group_id: str = "g") -> int:
    error, found = host.coordinator.committed(group_id, [T0])
    assert error is ErrorCode.NONE
    return found[T0][1].offset


async def every_error(host: Host, group_id: str) -> dict[str, ErrorCode]:
    """The error of each call for this group."""
    coordinator = host.coordinator
    join, sync, commits = host.join(group_id, "m"), host.sync(group_id, "m", 1), commit(host, group_id)
    assert not isinstance(join, asyncio.Future)
    assert not isinstance(sync, asyncio.Future)
    assert not isinstance(commits, asyncio.Future)
    return {
        "join": join.error,
        "sync": sync.error,
        "heartbeat": await settled(
            coordinator.heartbeat(group_id, member_id="m", group_instance_id=None, generation=1)
        ),
        "leave": (await settled(coordinator.leave(group_id, [Leaver("m")]))).error,
        "commit": commits[T0],
        "fetch": coordinator.committed(group_id, [T0])[0],
        "describe": coordinator.describe(group_id)[0],
        "delete": await coordinator.delete(group_id),
        "delete offsets": (await coordinator.delete_offsets(group_id, [T0])).error,
    }


def test_coordinator_that_was_not_started_is_not_available() -> None:
    async def main(loop: SimLoop) -> None:
        errors = await every_error(Host(loop), "g")
        assert set(errors.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}

    simulate(main, seed=1)


def test_group_of_a_partition_led_elsewhere_is_refused() -> None:
    async def main(loop: SimLoop) -> None:
        host = Host(loop)
        host.coordinator.start()
        assert set((await every_error(host, "g")).values()) == {ErrorCode.NOT_COORDINATOR}
        host.log.partitions = None
        assert set((await every_error(host, "g")).values()) == {ErrorCode.NOT_COORDINATOR}
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_loading_partition_responds_load_in_progress_except_to_heartbeats_and_syncs() -> None:
    """Old clients do not support COORDINATOR_LOAD_IN_PROGRESS there."""

    async def main(loop: SimLoop) -> None:
        log = MemoryOffsetsLog()
        log.gate = asyncio.Event()
        host = await Host(loop, log).start()
        errors = await every_error(host, "g")
        assert errors.pop("heartbeat") is ErrorCode.NONE
        assert errors.pop("sync") is ErrorCode.REBALANCE_IN_PROGRESS
        assert set(errors.values()) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert (await host.coordinator.groups())[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.gate.set()
        await host.coordinator.partitions.loaded()
        assert (await host.coordinator.groups())[0] is ErrorCode.NONE
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_loading_partition_does_not_block_others() -> None:
    async def main(loop: SimLoop) -> None:
        log = MemoryOffsetsLog()
        host = await Host(loop, log).start()
        log.gate = asyncio.Event()
        loading = partition_for_key("g", 4)
        other = next(name for name in "abcdef" if partition_for_key(name, 4) != loading)
        host.coordinator.partitions.on_resign(loading)
        host.coordinator.partitions.on_leader(loading, 5)
        assert await settled(commit(host, other)) == {T0: ErrorCode.NONE}
        assert (await settled(commit(host)))[T0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.gate.set()
        await host.coordinator.stop()

    simulate(main, seed=1)


@for_rows(
    "call, error",
    [
        ("join", ErrorCode.INVALID_GROUP_ID),
        ("sync", ErrorCode.INVALID_GROUP_ID),
        ("heartbeat", ErrorCode.INVALID_GROUP_ID),
        ("leave", ErrorCode.INVALID_GROUP_ID),
        ("delete offsets", ErrorCode.INVALID_GROUP_ID),
        ("commit", ErrorCode.NONE),
        ("fetch", ErrorCode.NONE),
        ("describe", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
    ],
)
def test_empty_group_id_is_allowed_only_for_offset_requests(call: str, error: ErrorCode) -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        assert (await every_error(host, ""))[call] is error
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_unknown_group_is_dead_and_refuses_requests() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert (await settled(host.join("g", "m"))).error is unknown
        assert (await settled(host.sync("g", "m", 1))).error is unknown
        assert host.coordinator.leave("g", [Leaver("m")]) == LeaveOutcome(ErrorCode.NONE, (unknown,))
        assert (await settled(commit(host, generation=1)))[T0] is ErrorCode.ILLEGAL_GENERATION
        assert offset_of(host) == -1
        error, described = host.coordinator.describe("g")
        assert (error, described.state) == (ErrorCode.NONE, GroupState.DEAD)
        assert await host.coordinator.delete("g") is ErrorCode.GROUP_ID_NOT_FOUND
        assert (await host.coordinator.delete_offsets("g", [T0])).error is ErrorCode.GROUP_ID_NOT_FOUND
        assert (await host.coordinator.groups()) == (ErrorCode.NONE, [])
        await host.coordinator.stop()

    simulate(main, seed=1)


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        outcome = await settled(host.join(session_timeout_ms=timeout_ms))
        assert outcome.error is ErrorCode.INVALID_SESSION_TIMEOUT
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_member_ids_are_the_client_id_and_a_random_uuid() -> None:
    async def main(loop: SimLoop) -> str:
        host = await Host(loop).start()
        outcome = await settled(host.join(requires_known_member_id=True))
        await host.coordinator.stop()
        assert outcome.error is ErrorCode.MEMBER_ID_REQUIRED
        return outcome.member_id

    member_id = simulate(main, seed=1)
    prefix, _, uuid = member_id.partition("-")
    assert prefix == "c"
    assert [len(part) for part in uuid.split("-")] == [8, 4, 4, 4, 12]
    assert uuid[14] == "4"
    assert simulate(main, seed=2) != member_id == simulate(main, seed=1)


def test_group_becomes_stable_and_empties_after_the_session_timeout() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        joined = await host.stable()
        assert loop.time() == pytest.approx(3.0, abs=0.1)
        assert host.heartbeat("g", joined) is ErrorCode.NONE
        assert host.coordinator.describe("g")[1].members[0].assignment == b"p0"
        assert host.coordinator.counts == GroupCounts(completed_rebalances=1)
        await asyncio.sleep(11)
        assert host.heartbeat("g", joined) is ErrorCode.UNKNOWN_MEMBER_ID
        assert host.coordinator.describe("g")[1].state is GroupState.EMPTY
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_groups_are_listed_by_state() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        await host.stable("g")
        await settled(commit(host, "simple"))
        found = {state: await host.coordinator.groups([state]) for state in ("Stable", "Empty")}
        names = {state: [group.group_id for group in groups] for state, (_, groups) in found.items()}
        assert names == {"Stable": ["g"], "Empty": ["simple"]}
        assert len((await host.coordinator.groups())[1]) == 2
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_commit_gets_a_response_after_the_high_watermark_passes_it() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        host.log.holds = True
        reply = commit(host)
        assert isinstance(reply, asyncio.Future)
        assert offset_of(host) == -1
        found = host.coordinator.committed("g", [T0], require_stable=True)[1]
        assert found[T0][0] is ErrorCode.UNSTABLE_OFFSET_COMMIT
        host.log.release()
        assert await reply == {T0: ErrorCode.NONE}
        assert offset_of(host) == 5
        assert host.log.acks == [-1]
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_cancelled_caller_does_not_disturb_the_group() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        reply = host.join()
        assert isinstance(reply, asyncio.Future)
        reply.cancel()
        await asyncio.sleep(4)
        assert host.coordinator.describe("g")[1].state is GroupState.COMPLETING_REBALANCE
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_resigning_completes_parked_requests_and_unloads_the_groups() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        reply = host.join()
        host.coordinator.partitions.on_resign(partition_for_key("g", 4))
        assert (await settled(reply)).error is ErrorCode.NOT_COORDINATOR
        assert len(host.timer) == 1, "only the look for expired offsets is left"
        assert (await settled(commit(host)))[T0] is ErrorCode.NOT_COORDINATOR
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_leadership_changes_of_older_epochs_are_ignored() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start(epoch=5)
        await host.stable()
        partition = partition_for_key("g", 4)
        host.coordinator.partitions.on_leader(partition, 4)
        host.coordinator.partitions.on_resign(partition, 4)
        assert host.coordinator.describe("g")[1].state is GroupState.STABLE
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_next_epoch_of_the_same_leader_keeps_the_groups_and_a_later_one_reloads_them() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start(epoch=5)
        joined = await host.stable()
        partition = partition_for_key("g", 4)
        reply = host.join("g", joined.member_id)
        await settled(reply)
        host.coordinator.partitions.on_leader(partition, 6)
        assert host.coordinator.describe("g")[1].state is GroupState.COMPLETING_REBALANCE
        host.coordinator.partitions.on_leader(partition, 8)
        await host.coordinator.partitions.loaded()
        assert host.coordinator.describe("g")[1].state is GroupState.STABLE
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_restarted_coordinator_restores_acknowledged_state() -> None:
    async def main(loop: SimLoop) -> None:
        old = await Host(loop).start()
        joined = await old.stable()
        await settled(commit(old, member_id=joined.member_id, generation=1))
        await settled(commit(old, "simple", 7))
        await settled(commit(old, "deleted", 8))
        await old.coordinator.delete("deleted")
        new = await Host(loop, old.log).start(epoch=1)
        assert new.coordinator.describe("g") == old.coordinator.describe("g")
        (_, loaded), (_, known) = await new.coordinator.groups(), await old.coordinator.groups()
        assert sorted(loaded, key=str) == sorted(known, key=str)
        assert (offset_of(new), offset_of(new, "simple"), offset_of(new, "deleted")) == (5, 7, -1)
        assert new.heartbeat("g", joined) is ErrorCode.NONE
        assert (await settled(new.sync("g", joined.member_id, 1))).assignment == b"p0"
        await asyncio.sleep(10.1)
        assert new.coordinator.describe("g")[1].state is GroupState.EMPTY
        await old.coordinator.stop()
        await new.coordinator.stop()

    simulate(main, seed=1)


def test_restored_group_above_the_maximum_size_rebalances() -> None:
    async def main(loop: SimLoop) -> None:
        old = await Host(loop).start()
        first, second = old.join(), old.join()
        leader = await settled(first)
        await settled(second)
        await settled(old.sync("g", leader.member_id, 1))
        new = await Host(loop, old.log, group_max_size=1).start(epoch=1)
        assert new.heartbeat("g", leader) is ErrorCode.REBALANCE_IN_PROGRESS
        await old.coordinator.stop()
        await new.coordinator.stop()

    simulate(main, seed=1)


@pytest.mark.parametrize("failure", [CorruptLog("x.log", 5, "bad"), ValueError("a mistake, x.log")])
def test_unreadable_partition_stays_unavailable(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        log = MemoryOffsetsLog()
        log.load_failure = failure
        host = await Host(loop, log).start()
        assert (await settled(commit(host)))[T0] is ErrorCode.NOT_COORDINATOR
        log.load_failure = None
        for partition in range(4):
            host.coordinator.partitions.on_leader(partition, 0)
        await host.coordinator.partitions.loaded()
        assert (await settled(commit(host)))[T0] is ErrorCode.NONE
        await host.coordinator.stop()

    with caplog.at_level(logging.ERROR):
        simulate(main, seed=1)
    assert len(caplog.records) == 4
    assert "x.log" in caplog.text


def test_unreadable_record_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: SimLoop) -> None:
        old = await Host(loop).start()
        await settled(commit(old))
        partition = partition_for_key("g", 4)
        bad_key = b"\x00\x01\x00\x09bad"
        unknown_kind = b"\x00\x09whatever"
        batch = build_batch([Record(0, 1, bad_key, b"v"), Record(0, 1, unknown_kind, b"v")])
        old.log.append(partition, batch, required_acks=-1, timeout_ms=0)
        await settled(commit(old, "g", 9))
        new = await Host(loop, old.log).start(epoch=1)
        assert offset_of(new) == 9
        await old.coordinator.stop()
        await new.coordinator.stop()

    with caplog.at_level(logging.WARNING):
        simulate(main, seed=1)
    assert len(caplog.records) == 1
    assert "offset=1" in caplog.text
    assert "bad" in caplog.text


@pytest.mark.parametrize(
    ("kind", "offset", "unstable"),
    [(ControlType.COMMIT, 6, False), (ControlType.ABORT, 5, False), (None, 5, True)],
    ids=["committed", "aborted", "open"],
)
def test_transactional_commits_are_visible_after_their_marker(
    kind: ControlType | None, offset: int, unstable: bool
) -> None:
    async def main(loop: SimLoop) -> None:
        old = await Host(loop).start()
        await settled(commit(old))
        partition = partition_for_key("g", 4)
        records = offset_records("g", {T0: OffsetAndMetadata(6, commit_timestamp_ms=1)}, 1)
        batch = build_batch(records, producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True)
        old.log.append(partition, batch, required_acks=-1, timeout_ms=0)
        if kind is not None:
            marker = EndTransactionMarker(kind, coordinator_epoch=0)
            batch = build_end_transaction_marker(marker, producer_id=77, producer_epoch=0, timestamp=1)
            old.log.append(partition, batch, required_acks=-1, timeout_ms=0)
        new = await Host(loop, old.log).start(epoch=1)
        assert offset_of(new) == offset
        found = new.coordinator.committed("g", [T0], require_stable=True)[1]
        assert (found[T0][0] is ErrorCode.UNSTABLE_OFFSET_COMMIT) is unstable
        await old.coordinator.stop()
        await new.coordinator.stop()

    simulate(main, seed=1)


def test_expired_offsets_and_groups_are_removed_periodically() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, offsets_retention_ms=1_000_000).start()
        await settled(commit(host))
        await asyncio.sleep(1_500)
        assert (await host.coordinator.groups())[1] == []
        assert host.log.acks[-1] == 0
        assert host.coordinator.counts == GroupCounts(offset_commits=1, offset_expirations=1)
        new = await Host(loop, host.log).start(epoch=1)
        assert (await new.coordinator.groups())[1] == []
        await host.coordinator.stop()
        await new.coordinator.stop()

    simulate(main, seed=1)


def test_expiry_of_many_groups_is_split_over_loop_turns_and_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, offsets_retention_ms=1).start()
        for number in range(2 * GROUPS_PER_TURN):
            await settled(commit(host, f"g{number}"))
        await asyncio.sleep(1)
        caplog.clear()
        host.coordinator.expire()
        assert GROUPS_PER_TURN < len((await host.coordinator.groups())[1]) < 2 * GROUPS_PER_TURN
        await asyncio.sleep(0.1)
        assert (await host.coordinator.groups())[1] == []
        (line,) = caplog.messages
        assert line.endswith(f"reason=expiration offsets={2 * GROUPS_PER_TURN} groups={2 * GROUPS_PER_TURN}")
        await host.coordinator.stop()

    with caplog.at_level(logging.INFO, "kctl.server.coordination.groups"):
        simulate(main, seed=1)


def test_the_members_of_a_large_group_get_their_responses_in_several_loop_turns() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        joins = [host.join() for _ in range(3 * REPLIES_PER_TURN)]
        finished: list[object] = []
        per_iteration = [0]

        def count() -> None:
            per_iteration.append(len(finished))
            if len(finished) < len(joins):
                loop.call_soon(count)

        def end(join: object) -> None:
            if not finished:
                loop.call_soon(count)
            finished.append(join)

        for join in joins:
            assert isinstance(join, asyncio.Future)
            join.add_done_callback(end)
        assert {(await settled(join)).generation for join in joins} == {1}
        assert max(after - before for before, after in pairwise(per_iteration)) <= REPLIES_PER_TURN
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_offsets_of_deleted_topics_are_removed_and_stay_removed() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        await settled(commit(host))
        host.coordinator.topics_deleted(["t"])
        assert offset_of(host) == -1
        assert host.coordinator.counts == GroupCounts(offset_commits=1, offset_deletions=1)
        new = await Host(loop, host.log).start(epoch=1)
        assert offset_of(new) == -1
        await host.coordinator.stop()
        await new.coordinator.stop()

    simulate(main, seed=1)


def test_refused_requests_create_no_group() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop, offset_metadata_max_bytes=0).start()
        for number in range(100):
            await settled(host.join(f"g{number}", protocol_type=""))
        offsets = {T0: OffsetAndMetadata(1, metadata="too long")}
        await settled(host.coordinator.commit("h", CommitRequest(offsets=offsets)))
        assert (await host.coordinator.groups())[1] == []
        await host.coordinator.stop()

    simulate(main, seed=1)
