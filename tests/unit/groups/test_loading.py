"""Loading of a coordinator partition: skipped records, piecewise reading, and the start of sessions."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from kctl.errors import ErrorCode
from kctl.model import TopicPartition, partition_for_key
from kctl.protocol.codec import encode_versioned
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import OffsetCommitKey, encode_group_metadata_key, encode_offset_commit_key
from kctl.server.cluster.topics.internal import InternalLog
from kctl.server.coordination.groups.actions import GroupSnapshot, MemberSnapshot
from kctl.server.coordination.groups.events import GroupLoaded, Now
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.records import group_record, offset_records
from kctl.server.coordination.groups.runner import GROUPS_PER_TURN
from kctl.server.coordination.groups.step import step
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.files import RealFiles
from kctl.storage.log.log import Log
from kctl.storage.recovery.recovery import open_log
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.groups.hosting import Host, MemoryOffsetsLog
from tests.unit.groups.world import GroupWorld

PARTITIONS = 4
T0 = TopicPartition("t", 0)
KEY = encode_offset_commit_key("g", "t", 0)
(_COMMIT,) = offset_records("g", {T0: OffsetAndMetadata(5, commit_timestamp_ms=1)}, 1)
SOUND = _COMMIT.value or b""


def group_of(*members: tuple[str, str | None]) -> bytes:
    """The record of a group with these member and instance ids."""
    snapshots = [
        MemberSnapshot(
            member_id=member_id,
            group_instance_id=instance_id,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=1_000,
            session_timeout_ms=6_000,
            subscription=b"",
            assignment=b"",
        )
        for member_id, instance_id in members
    ]
    snapshot = GroupSnapshot(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m",
        state_timestamp_ms=1,
        members=tuple(snapshots),
    )
    return group_record("g", snapshot, 1).value or b""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, SOUND),
        (b"", SOUND),
        (b"\x00", SOUND),
        (b"\xff\xff" + KEY[2:], SOUND),
        (KEY[:-1], SOUND),
        (KEY.replace(b"\x00\x01g", b"\x00\x01\xff"), SOUND),
        (KEY, b""),
        (KEY, SOUND[:-1]),
        (KEY, b"\x00\x63" + SOUND[2:]),
        (KEY, b"\xff" * len(SOUND)),
        (encode_group_metadata_key("g"), b"\x00\x03\x00\x08consumer"),
        (encode_group_metadata_key("g"), b"\x00\x63"),
        (encode_group_metadata_key("g"), group_of(("m", None), ("m", None))),
        (encode_group_metadata_key("g"), group_of(("m", "i"), ("n", "i"))),
    ],
    ids=[
        *("no key", "empty key", "half a version", "version below 0", "cut key", "group that is not text"),
        *("empty value", "cut value", "unknown value version", "garbage", "cut group", "unknown group version"),
        *("members with the same id", "members with the same instance id"),
    ],
)
def test_unreadable_record_is_skipped_with_one_log_line_and_the_rest_loads(
    key: bytes | None, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = Record(0, 1, KEY, SOUND), Record(0, 1, encode_offset_commit_key("g", "t", 1), SOUND)

    async def main(loop: SimLoop) -> None:
        log = log_with([before, Record(0, 1, key, value), after])
        host = await Host(loop, log).start()
        assert set(host.coordinator.committed("g", None)[1]) == {T0, TopicPartition("t", 1)}
        assert host.coordinator.committed("g", [T0])[1][T0][1].offset == 5
        await host.coordinator.stop()

    with caplog.at_level(logging.WARNING):
        simulate(main, seed=1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert (
        f"topic=__consumer_offsets partition={partition_for_key('g', PARTITIONS)} offset=1 last_offset=1 keys={key!r} "
        in line
    )


def test_commit_keys_of_both_versions_mean_the_same_partition() -> None:
    async def main(loop: SimLoop) -> None:
        old = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=0), 0)
        host = await Host(loop, log_with([Record(0, 1, KEY, SOUND), Record(0, 1, old, None)])).start()
        assert host.coordinator.committed("g", [T0])[1][T0][1].offset == -1
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_loading_many_groups_is_split_over_loop_turns_and_published_at_once() -> None:
    """Requests of other partitions are served between the slices."""

    async def main(loop: SimLoop) -> None:
        count = 3 * GROUPS_PER_TURN
        log = MemoryOffsetsLog(1)
        for number in range(count):
            records = offset_records(f"g{number}", {T0: OffsetAndMetadata(1, commit_timestamp_ms=1)}, 1)
            log.append(0, build_batch(records), required_acks=-1, timeout_ms=0)
        host = Host(loop, log)
        host.coordinator.start()
        host.coordinator.partitions.on_leader(0, 0)
        seen = []
        for _ in range(100):
            seen.append(len((await host.coordinator.groups())[1]))
            if seen[-1]:
                break
            await asyncio.sleep(0)
        assert len(seen) > 3
        assert set(seen) == {0, count}
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_sessions_of_loaded_members_start_in_turns_and_expire_without_heartbeats() -> None:
    async def main(loop: SimLoop) -> None:
        count = 2 * GROUPS_PER_TURN + 1
        old = await Host(loop, MemoryOffsetsLog(1), group_initial_rebalance_delay_ms=0).start()
        joined = [await old.stable(f"g{number}") for number in range(count)]
        new = await Host(loop, old.log).start(epoch=1)
        assert new.heartbeat(f"g{count - 1}", joined[-1]) is ErrorCode.NONE
        await asyncio.sleep(9)
        assert {group.state for group in (await new.coordinator.groups())[1]} == {"Stable"}
        assert new.heartbeat("g0", joined[0]) is ErrorCode.NONE
        await asyncio.sleep(2)
        states = {group.group_id: group.state for group in (await new.coordinator.groups())[1]}
        assert [group for group, state in states.items() if state == "Stable"] == ["g0"]
        await old.coordinator.stop()
        await new.coordinator.stop()

    simulate(main, seed=1)


def test_member_with_an_early_heartbeat_keeps_its_session_timer() -> None:
    """Loaded groups are served at once; the event that starts the sessions may follow a member's request."""
    world = GroupWorld()
    member_id, *_ = world.stable_group("m")
    due_ms = world.group.members[member_id].timer_due_ms
    assert step(world.group, GroupLoaded(), Now(5_000, 5_000)) == []
    assert world.group.members[member_id].timer_due_ms == due_ms


def test_loading_reads_pieces_that_cut_batches(tmp_path: Path) -> None:
    log = open_log(
        TopicPartition("__consumer_offsets", 0),
        str(tmp_path / "__consumer_offsets-0"),
        LogConfig(segment_bytes=4_000),
        files=RealFiles(),
        log_directory=LogDirectory(str(tmp_path)),
        removals=DelayedRemovals(),
        random=Random(1),
        now_ms=1,
    )
    for number in range(100):
        records = offset_records("g" * (number % 7), {T0: OffsetAndMetadata(number)}, 1) * (1 + number % 3)
        log.append_as_leader(bytearray(build_batch(records)), leader_epoch=0, now_ms=1, from_client=False)

    async def read() -> list[int]:
        one = cast("Any", OneReplica(log))
        reader = InternalLog(one, one, one, load_buffer_bytes=1_000)
        return [header.base_offset async for piece in reader.read_all(0) for header in piece.batches]

    offsets = asyncio.run(read())
    assert len(offsets) == 100
    assert offsets == sorted(set(offsets))
    log.release()


class OneReplica:
    """The replica manager of one partition."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def partition(self, _topic: str, _index: int) -> OneReplica:
        return self


def test_batch_with_a_wrong_checksum_is_skipped_with_one_log_line_and_the_rest_loads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = partition_for_key("g", PARTITIONS)

    async def main(loop: SimLoop) -> None:
        log = log_with([Record(0, 1, KEY, SOUND)])
        for number in (1, 2):
            batch = build_batch([Record(0, 1, encode_offset_commit_key("g", "t", number), SOUND)])
            log.append(partition, batch, required_acks=-1, timeout_ms=0)
        corrupt = log.batches[partition][1]
        log.batches[partition][1] = corrupt[:-1] + bytes([corrupt[-1] ^ 2])
        host = await Host(loop, log).start()
        assert {tp.partition for tp in host.coordinator.committed("g", None)[1]} == {0, 2}
        await host.coordinator.stop()

    with caplog.at_level(logging.WARNING):
        simulate(main, seed=1)
    (line,) = [record.getMessage() for record in caplog.records]
    where = f"skipping records that cannot be read topic=__consumer_offsets partition={partition} offset=1"
    key = encode_offset_commit_key("g", "t", 1)
    assert line == f"{where} last_offset=1 keys={key!r} error=wrong checksum, skipped 104 bytes"


def test_key_types_of_newer_brokers_are_skipped_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """KIP-915: a newer broker wrote them."""

    async def main(loop: SimLoop) -> None:
        host = await Host(loop, log_with([Record(0, 1, b"\x00\x63" + KEY[2:], b"?"), Record(0, 1, KEY, SOUND)])).start()
        assert set(host.coordinator.committed("g", None)[1]) == {T0}
        await host.coordinator.stop()

    with caplog.at_level(logging.WARNING):
        simulate(main, seed=1)
    assert caplog.records == []


def log_with(records: list[Record]) -> MemoryOffsetsLog:
    log = MemoryOffsetsLog(PARTITIONS)
    log.append(partition_for_key("g", PARTITIONS), build_batch(records), required_acks=-1, timeout_ms=0)
    return log
