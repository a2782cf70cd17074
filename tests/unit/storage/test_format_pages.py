"""The worked examples in docs/formats are what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import (
    OffsetCommitValue,
    PartitionsSchema,
    TransactionLogValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
    encode_transaction_key,
    encode_transaction_value,
)
from kctl.storage.config import LogConfig
from kctl.storage.state.checkpoints import parse_snapshot
from tests.unit.storage.log_builder import LogOnDisk

PAGES = Path(__file__).parents[3] / "docs" / "formats"
_HEX = re.compile(r"^ {4,}(?:\.\w+ +)?((?:[0-9a-f]{2} {1,2})*[0-9a-f]{2})(?: {2,}|$)", re.MULTILINE)


def example_of(page: str, *, after: str = "## Example\n") -> bytes:
    """The bytes in the example of a page."""
    text = (PAGES / page).read_text().partition(after)[2].partition("\n## ")[0]
    return b"".join(bytes.fromhex(found) for found in _HEX.findall(text))


def test_example_of_a_batch_is_what_is_written() -> None:
    records = [Record(0, 1600000000000, b"k", b"hi"), Record(0, 1600000000005, None, b"", (("h", b"x"),))]
    assert example_of("segment.md") == build_batch(records, base_offset=100, leader_epoch=3)


def test_examples_of_indexes_are_what_is_written() -> None:
    machine = LogOnDisk(LogConfig())
    machine.log.truncate_fully_and_start_at(100)
    for timestamp in (7000, 6000, 9000):
        values = [b"x" * 484] * 9
        batch = build_batch([Record(0, timestamp, None, value) for value in [*values, b""]])
        padding = 5000 - len(batch)
        batch = build_batch([Record(0, timestamp, None, value) for value in [*values, b"x" * (padding - 2)]])
        assert len(batch) == 5000
        machine.log.append_as_leader(batch, leader_epoch=0, now_ms=9000)
    segment = machine.log.active_segment
    machine.close()
    written = machine.files.read(segment.path(".index")) + machine.files.read(segment.path(".timeindex"))
    assert example_of("index.md") == written


def test_example_of_a_snapshot_is_kafkas() -> None:
    kafka = next((PAGES.parents[1] / "tests/golden/storage/kafka-2.7.1/myTopic-0").glob("*.snapshot")).read_bytes()
    shown = example_of("producer-snapshot.md")
    assert kafka.startswith(shown)
    assert len(shown) == 10 + 46
    assert len(parse_snapshot(kafka, "snapshot")) == 3


def test_example_of_a_committed_offset_is_what_is_written() -> None:
    value = OffsetCommitValue(offset=42, leader_epoch=3, metadata="", commit_timestamp=1600000000000)
    written = encode_offset_commit_key("g", "orders", 2) + encode_offset_commit_value(value)
    assert example_of("internal-topics.md") == written


def test_example_of_an_open_transaction_is_what_is_written() -> None:
    value = TransactionLogValue(
        producer_id=1000,
        producer_epoch=5,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=1600000000005,
        transaction_start_timestamp_ms=1600000000000,
    )
    written = encode_transaction_key("load") + encode_transaction_value(value)
    assert example_of("internal-topics.md", after="## Example of a transaction\n") == written
