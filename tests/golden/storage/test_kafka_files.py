"""Files that Apache Kafka 2.7.1 wrote: read, opened as logs, and written again with equal contents."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.storage.files import RealFiles
from kctl.storage.log_manager import LogManager
from kctl.storage.state.checkpoints import (
    epochs_text,
    offsets_text,
    parse_epochs,
    parse_meta_properties,
    parse_offsets,
    parse_snapshot,
    snapshot_bytes,
)
from kctl.testing.sim_clock import ManualClock
from tests.unit.storage.log_builder import read_records

KAFKA = Path(__file__).parent / "kafka-2.7.1"
OFFSETS = TopicPartition("__consumer_offsets", 17)
EMPTIED = TopicPartition("myTopic", 0)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A copy of Kafka's directory."""
    return Path(shutil.copytree(KAFKA, tmp_path / "logs"))


def manager_of(log_dir: Path) -> LogManager:
    manager = LogManager([str(log_dir)], files=RealFiles(), clock=ManualClock(), random=random.Random(1))
    manager.load()
    return manager


@pytest.mark.parametrize("path", sorted(KAFKA.glob("*-checkpoint")), ids=lambda path: path.name)
def test_offset_checkpoints_are_written_as_kafka_writes_them(path: Path) -> None:
    data = path.read_bytes()
    assert offsets_text(parse_offsets(data, str(path))) == data


@pytest.mark.parametrize("path", sorted(KAFKA.glob("*/leader-epoch-checkpoint")), ids=lambda path: path.parent.name)
def test_leader_epochs_are_written_as_kafka_writes_them(path: Path) -> None:
    data = path.read_bytes()
    assert epochs_text(parse_epochs(data, str(path))) == data


@pytest.mark.parametrize("path", sorted(KAFKA.glob("*/*.snapshot")), ids=lambda path: path.parent.name)
def test_snapshots_are_written_as_kafka_writes_them(path: Path) -> None:
    data = path.read_bytes()
    assert snapshot_bytes(parse_snapshot(data, str(path))) == data


def test_meta_properties_of_kafka_are_read() -> None:
    meta = parse_meta_properties((KAFKA / "meta.properties").read_bytes(), "meta.properties")
    assert (meta.broker_id, meta.cluster_id) == (0, "d0053poFTbGwSWThjV1DEg")


def test_a_log_directory_of_kafka_is_loaded(log_dir: Path) -> None:
    manager = manager_of(log_dir)
    assert (manager.broker_id, manager.cluster_id, manager.unreadable) == (0, "d0053poFTbGwSWThjV1DEg", {})
    offsets, emptied = manager.logs[OFFSETS], manager.logs[EMPTIED]
    assert (offsets.log_start_offset, offsets.log_end_offset) == (0, 3)
    records = read_records(offsets, 0)
    assert [(record.offset, record.timestamp) for record in records] == [
        (0, 1670071252901),
        (1, 1685794400557),
        (2, 1685794989998),
    ]
    assert [record.value is None for record in records] == [False, False, True]
    found = offsets.offset_for_timestamp(1670071252902, max_offset=3)
    assert found is not None
    assert (found.offset, found.leader_epoch) == (1, 0)
    assert (emptied.log_start_offset, emptied.log_end_offset) == (38, 38)
    assert emptied.producer_state.producers[4003].last_sequence == 13
    assert emptied.leader_epochs.entries == (), "an epoch without records is forgotten, as Kafka does"
    manager.release()


def test_producers_of_a_kafka_broker_continue_here(log_dir: Path) -> None:
    manager = manager_of(log_dir)
    log = manager.logs[EMPTIED]
    batch = build_batch([Record(0, 1, None, b"v")], producer_id=4003, producer_epoch=0, base_sequence=14)
    assert log.append_as_leader(batch, leader_epoch=1, now_ms=1).base_offset == 38
    again = log.append_as_leader(batch, leader_epoch=1, now_ms=1)
    assert (again.base_offset, again.duplicate) == (38, True)
    manager.clean_shutdown()
    assert (log_dir / "myTopic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n1 38\n"
    reopened = manager_of(log_dir)
    assert reopened.logs[EMPTIED].log_end_offset == 39
    reopened.release()


def test_rebuilt_indexes_equal_those_of_kafka(log_dir: Path) -> None:
    directory = log_dir / "__consumer_offsets-17"
    before = (directory / "00000000000000000000.timeindex").read_bytes()
    for path in directory.glob("*index"):
        path.unlink()
    manager = manager_of(log_dir)
    assert len(read_records(manager.logs[OFFSETS], 0)) == 3
    manager.clean_shutdown()
    assert (directory / "00000000000000000000.timeindex").read_bytes() == before
    assert (directory / "00000000000000000000.index").read_bytes() == b""
