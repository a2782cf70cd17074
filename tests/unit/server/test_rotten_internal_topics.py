"""Bits of an internal topic flip on the disk: the batch is skipped when a coordinator loads, and the rest is there."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from kctl.errors import LogDirFailure
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.records.build import build_batch
from kctl.server.coordinators.replay import PartitionReplay
from kctl.server.groups.config import GroupConfig
from kctl.server.groups.loading import GroupPlayback
from kctl.server.groups.offsets import OffsetAndMetadata
from kctl.server.groups.records import offset_records
from kctl.server.internal_topics import InternalLog
from kctl.server.transactions.loading import TransactionPlayback
from kctl.server.transactions.records import transaction_record
from kctl.server.transactions.snapshot import TransactionSnapshot
from kctl.server.transactions.states import TransactionState
from kctl.storage.config import LogConfig
from kctl.storage.log import Log
from kctl.storage.log_directory import DelayedRemovals, LogDirectory
from kctl.storage.recovery import open_log
from kctl.testing.sim_files import SimFiles
from kctl.testing.sim_loop import SimLoop, simulate

BATCHES = 3
LEADER_EPOCH = range(12, 16)
"""Under no checksum, and nothing that a coordinator asks for."""
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


class RottenLog:
    """The replica manager of one partition, a byte of which is wrong."""

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

    def partition(self, _topic: str, _index: int) -> RottenLog:
        return self

    def log_dir_failed(self, failure: LogDirFailure) -> None:
        self.failures.append(failure)


def take_in(log: RottenLog, replay: PartitionReplay, load_buffer_bytes: int) -> None:
    async def main(_loop: SimLoop) -> None:
        one = cast("Any", log)
        async for chunk in InternalLog(one, one, one, load_buffer_bytes=load_buffer_bytes).read_all(0):
            for _ in replay.batches(chunk):
                pass

    simulate(main, seed=1)


@pytest.mark.parametrize("load_buffer_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("rotten", range(BATCHES))
def test_whatever_byte_is_wrong_costs_the_batch_that_it_is_in(rotten: int, load_buffer_bytes: int) -> None:
    for position in rotten_positions(COMMITS[rotten]):
        playback = GroupPlayback()
        replay = PartitionReplay(playback)
        take_in(RottenLog(COMMITS, rotten, position), replay, load_buffer_bytes)
        assert [(each.offset, each.last_offset) for each in replay.skipped] == [(2 * rotten, 2 * rotten + 1)], position
        found = {tp.partition for group in playback.groups(GroupConfig()) for tp in group.offsets}
        assert found == set(range(BATCHES)) - {rotten}, position


@pytest.mark.parametrize("rotten", range(BATCHES))
def test_rotten_batch_of_transactions_costs_the_ids_in_it(rotten: int) -> None:
    for position in rotten_positions(TRANSACTIONS[rotten]):
        playback = TransactionPlayback()
        replay = PartitionReplay(playback)
        take_in(RottenLog(TRANSACTIONS, rotten, position), replay, 1 << 20)
        assert [(each.offset, each.last_offset) for each in replay.skipped] == [(rotten, rotten)], position
        found = {each.producer.producer_id for each in playback.transactions()}
        assert found == set(range(BATCHES)) - {rotten}, position


def rotten_positions(batch: bytes) -> list[int]:
    return [position for position in range(len(batch)) if position not in LEADER_EPOCH]


def test_disk_that_cannot_be_read_takes_its_directory_offline() -> None:
    log = RottenLog(COMMITS, 0, 0)
    log.files.fail_at(1)
    with pytest.raises(LogDirFailure):
        take_in(log, PartitionReplay(GroupPlayback()), 1 << 20)
    assert not log.log.log_directory.is_online
    assert len(log.failures) == 1
