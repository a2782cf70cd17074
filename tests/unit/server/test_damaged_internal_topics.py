"""Bit flips in an internal topic: a loading coordinator skips the batch and loads the rest."""

from __future__ import annotations

import struct
from random import Random
from typing import Any, cast

import pytest

from kctl.errors import LogDirFailure
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.records.build import build_batch
from kctl.records.compression import Codec
from kctl.records.header import ATTRIBUTES_POSITION, HEADER_SIZE, LOG_OVERHEAD, Record, parse_header, seal
from kctl.records.salvage import cut_all
from kctl.server.cluster.topics.internal import InternalLog
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.groups.records import GroupPlayback, offset_records
from kctl.server.coordination.replay import RECORDS_PER_STEP, PartitionReplay, Playback
from kctl.server.coordination.transactions.events import TransactionSnapshot, TransactionState
from kctl.server.coordination.transactions.records import TransactionPlayback, transaction_record
from kctl.storage.config import LogConfig
from kctl.storage.directories.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.log.log import Log
from kctl.storage.recovery.recovery import open_log
from kctl.testing.sim_files import SimFiles
from kctl.testing.sim_loop import SimLoop, simulate
from tests.rows import for_rows

BATCHES = 3
LENGTH_POSITION = 8
LEADER_EPOCH = range(12, 16)
"""Not covered by a checksum, and not used by a coordinator."""
TP = TopicPartition("internal", 0)
COMMITS = [
    build_batch(
        offset_records(
            "g",
            {TopicPartition(topic, number): OffsetAndMetadata(number, commit_timestamp_ms=1) for topic in "tu"},
            1,
        )
    )
    for number in range(BATCHES)
]
TRANSACTIONS = [
    build_batch(
        [
            transaction_record(
                f"id-{number}",
                TransactionSnapshot(
                    producer=ProducerIdAndEpoch(number, 0),
                    timeout_ms=60_000,
                    state=TransactionState.COMPLETE_COMMIT,
                    last_update_ms=1,
                ),
                1,
            )
        ]
    )
    for number in range(BATCHES)
]


class DamagedLog:
    """The replica manager of one partition with one wrong byte."""

    def __init__(self, batches: list[bytes], number: int, position: int) -> None:
        self.failures: list[LogDirFailure] = []
        files = self.files = SimFiles()
        self.log: Log = open_log(
            TP,
            "/logs/internal-0",
            LogConfig(),
            files=files,
            log_directory=LogDirectory("/logs"),
            removals=DelayedRemovals(),
            random=Random(1),
            now_ms=1,
        )
        for batch in batches:
            self.log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=1, from_client=False)
        place = sum(map(len, batches[:number])) + position
        file = files.open("/logs/internal-0/00000000000000000000.log")
        file.write_at(place, bytes([file.read_at(place, 1)[0] ^ 0xFF]))

    def partition(self, _topic: str, _index: int) -> DamagedLog:
        return self

    def log_dir_failed(self, failure: LogDirFailure) -> None:
        self.failures.append(failure)


def take_in(log: DamagedLog, replay: PartitionReplay, load_buffer_bytes: int) -> None:
    async def main(_loop: SimLoop) -> None:
        one = cast("Any", log)
        async for chunk in InternalLog(one, one, one, load_buffer_bytes=load_buffer_bytes).read_all(0):
            for _ in replay.steps(chunk):
                pass

    simulate(main, seed=1)


@pytest.mark.long
@for_rows("load_buffer_bytes", [1, 200, 1 << 20])
@for_rows("damaged", range(BATCHES))
def test_any_corrupt_byte_loses_only_its_batch(damaged: int, load_buffer_bytes: int) -> None:
    for position in positions_to_damage(COMMITS[damaged]):
        playback = GroupPlayback()
        replay = PartitionReplay(playback)
        take_in(DamagedLog(COMMITS, damaged, position), replay, load_buffer_bytes)
        assert [(skip.offset, skip.last_offset) for skip in replay.skipped] == [(2 * damaged, 2 * damaged + 1)], (
            position
        )
        found = {tp.partition for group in filter(None, playback.groups(GroupConfig())) for tp in group.offsets}
        assert found == set(range(BATCHES)) - {damaged}, position


@pytest.mark.parametrize("damaged", range(BATCHES))
def test_corrupt_batch_of_transactions_loses_only_its_transactional_ids(damaged: int) -> None:
    for position in positions_to_damage(TRANSACTIONS[damaged]):
        playback = TransactionPlayback()
        replay = PartitionReplay(playback)
        take_in(DamagedLog(TRANSACTIONS, damaged, position), replay, 1 << 20)
        assert [(skip.offset, skip.last_offset) for skip in replay.skipped] == [(damaged, damaged)], position
        found = {transaction.producer.producer_id for transaction in playback.transactions()}
        assert found == set(range(BATCHES)) - {damaged}, position


def positions_to_damage(batch: bytes) -> list[int]:
    return [position for position in range(len(batch)) if position not in LEADER_EPOCH]


def test_unreadable_disk_takes_its_log_directory_offline() -> None:
    log = DamagedLog(COMMITS, 0, 0)
    log.files.fail_at(1)
    with pytest.raises(LogDirFailure):
        take_in(log, PartitionReplay(GroupPlayback()), 1 << 20)
    assert not log.log.log_directory.is_online
    assert len(log.failures) == 1


def resealed(batch: bytes, records: bytes, codec: Codec = Codec.NONE) -> bytes:
    """The batch with other bytes as its records, and a matching checksum."""
    data = bytearray(batch[:HEADER_SIZE] + records)
    struct.pack_into(">i", data, LENGTH_POSITION, len(data) - LOG_OVERHEAD)
    struct.pack_into(">h", data, ATTRIBUTES_POSITION, codec)
    seal(data, parse_header(data))
    return bytes(data)


ONE = COMMITS[0][HEADER_SIZE:]
CLAIMS_GIGABYTES = b"\xff\xff\xff\xff\x07" + bytes(40)
"""A block of snappy starts with its uncompressed size."""


@for_rows(
    "batch, first, reason",
    [
        (resealed(COMMITS[0], CLAIMS_GIGABYTES, Codec.SNAPPY), 2, "snappy: a block of 45 bytes cannot contain"),
        (resealed(COMMITS[0], ONE[: len(ONE) // 2 + 10]), 3, "invalid record length "),
        (resealed(COMMITS[0], ONE[: len(ONE) // 2] + b"\xff" * 12), 3, "malformed record: a number has too many bytes"),
        (resealed(COMMITS[0], ONE + b"more"), 4, "4 bytes after the last record"),
        (resealed(COMMITS[0], b""), 2, "malformed record"),
        (resealed(COMMITS[0], ONE, Codec.GZIP), 2, "gzip: "),
    ],
)
def test_rest_of_a_valid_batch_with_malformed_records_is_skipped(batch: bytes, first: int, reason: str) -> None:
    playback = GroupPlayback()
    replay = PartitionReplay(playback)
    batches = [COMMITS[1], batch, COMMITS[2]]
    data = b"".join(number.to_bytes(8, "big") + batch[8:] for number, batch in zip((0, 2, 4), batches, strict=True))
    for _ in replay.steps(cut_all(data, end_offset=6)):
        pass
    (skipped,) = replay.skipped
    assert (skipped.offset, skipped.last_offset) == (first, 3)
    assert skipped.reason.startswith(reason)
    found = {tp.partition for group in filter(None, playback.groups(GroupConfig())) for tp in group.offsets}
    assert found >= {1, 2}


MARKER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, "is_control": True}


@for_rows(
    "key, value",
    [
        (struct.pack(">hh", 0, 0), None),
        (struct.pack(">hh", 0, 1), b""),
        (struct.pack(">hh", 0, 7), b"?"),
        (struct.pack(">hh", -1, 1), b"?"),
        (b"\x00", b"?"),
        (None, None),
    ],
)
@for_rows("playback", [GroupPlayback, TransactionPlayback])
def test_marker_without_transaction_or_of_unknown_type_changes_nothing(
    playback: type[Playback], key: bytes | None, value: bytes | None
) -> None:
    batches = COMMITS if playback is GroupPlayback else TRANSACTIONS
    replay = PartitionReplay(playback())
    marker = build_batch([Record(0, 1, key, value)], base_offset=100, **MARKER)
    counts = list(replay.steps(cut_all(batches[0] + marker)))
    assert len(counts) == 2
    assert replay.skipped == []


def test_a_batch_with_thousands_of_commits_is_replayed_in_steps() -> None:
    commits = {TopicPartition("t", number): OffsetAndMetadata(number) for number in range(2_000)}
    playback = GroupPlayback()
    replay = PartitionReplay(playback)
    counts = list(replay.steps(cut_all(build_batch(offset_records("g", commits, 1)))))
    assert sum(counts) == len(commits)
    assert max(counts) <= RECORDS_PER_STEP
    assert {
        tp: offset.offset
        for group in filter(None, playback.groups(GroupConfig()))
        for tp, offset in group.offsets.all().items()
    } == {tp: commit.offset for tp, commit in commits.items()}


def test_a_long_record_counts_as_many() -> None:
    partitions = tuple(TopicPartition("topic", number) for number in range(10_000))
    snapshot = TransactionSnapshot(
        producer=ProducerIdAndEpoch(1, 0),
        timeout_ms=1,
        state=TransactionState.ONGOING,
        partitions=partitions,
        last_update_ms=1,
        start_ms=1,
    )
    replay = PartitionReplay(TransactionPlayback())
    batch = build_batch([transaction_record("id", snapshot, 1)])
    (count,) = replay.steps(cut_all(batch))
    assert count > RECORDS_PER_STEP / 2
    assert replay.skipped == []
