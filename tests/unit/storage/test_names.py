"""File and directory names of a log, both ways."""

from __future__ import annotations

import pytest

from kctl.model import TopicPartition
from kctl.storage.config import LogConfig
from kctl.storage.names import (
    delete_directory_name,
    future_directory_name,
    offset_file_name,
    parse_log_directory_name,
    parse_offset_file_name,
)
from tests.rows import for_rows

HEX = "0123456789abcdef" * 2


def test_offsets_fill_twenty_digits() -> None:
    assert offset_file_name(38, ".log") == "00000000000000000038.log"
    assert parse_offset_file_name("00000000000000000038.timeindex") == (38, ".timeindex", "")
    assert parse_offset_file_name("00000000000000000038.log.deleted") == (38, ".log", ".deleted")


@pytest.mark.parametrize("name", ["38.log", "leader-epoch-checkpoint", "0000000000000000003x.log", "", "0" * 20])
def test_other_files_belong_to_no_offset(name: str) -> None:
    assert parse_offset_file_name(name) is None


@for_rows(
    "name, expected",
    [
        ("orders-0", (TopicPartition("orders", 0), "")),
        ("a-b-c-12", (TopicPartition("a-b-c", 12), "")),
        (f"a-b-1.{HEX}-delete", (TopicPartition("a-b", 1), "-delete")),
        (f"a-b-1.{HEX}-future", (TopicPartition("a-b", 1), "-future")),
        (f"x.y-1.{HEX}-stray", (TopicPartition("x.y", 1), "-stray")),
        ("orders", None),
        ("orders-", None),
        ("-0", None),
        ("orders-x", None),
        (f"orders-0.{HEX}-other", None),
        ("orders-1.short-delete", None),
    ],
)
def test_directory_names_give_topic_and_partition(name: str, expected: tuple[TopicPartition, str] | None) -> None:
    assert parse_log_directory_name(name) == expected


def test_the_name_of_a_deleted_log_fits_the_file_system() -> None:
    tp = TopicPartition("t" * 249, 123)
    name = delete_directory_name(tp, HEX)
    assert len(name) == 255
    parsed = parse_log_directory_name(name)
    assert parsed is not None
    assert (parsed[0].partition, parsed[1]) == (123, "-delete")
    assert parse_log_directory_name(future_directory_name(TopicPartition("a", 1), HEX)) == (
        TopicPartition("a", 1),
        "-future",
    )


def test_a_log_config_is_taken_from_anything_with_the_attributes() -> None:
    class TopicConfig:
        segment_bytes = 4711
        cleanup_policy = "compact, delete"
        compression_type = "zstd"

    config = LogConfig.of(TopicConfig())
    assert (config.segment_bytes, config.cleanup_policy) == (4711, frozenset({"compact", "delete"}))
    assert (config.is_compacted, config.deletes_old_segments, config.retention_ms) == (True, True, 604_800_000)
    assert config.append_rules.codec is not None
    assert LogConfig().append_rules.codec is None
