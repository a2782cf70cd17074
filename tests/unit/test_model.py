"""Hashes that select the partition of a group or transactional id, and ids as text, agree with Apache Kafka's."""

from __future__ import annotations

from uuid import UUID

import pytest

from kctl.model import java_hash, parse_uuid, partition_for_key, uuid_text


@pytest.mark.parametrize("text", ["", "a", "group-1", "\u20ac\U0001f600"])
def test_hashes_the_code_units_of_utf_16(text: str) -> None:
    utf16 = text.encode("utf-16-be")
    units = [int.from_bytes(utf16[at : at + 2], "big") for at in range(0, len(utf16), 2)]
    by_definition = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))
    assert java_hash(text) == (by_definition + (1 << 31)) % (1 << 32) - (1 << 31)


# Where Apache Kafka 2.8.2 and 3.9.1 stored the offsets of these groups, with offsets.topic.num.partitions=5.
@pytest.mark.parametrize(
    ("group", "partition"),
    [("g0-negative-0", 3), ("g1-negative-7919", 1), ("g2-negative-15838", 1), ("g7-negative-55433", 0)],
)
def test_a_negative_hash_is_negated_not_masked(group: str, partition: int) -> None:
    assert java_hash(group) < 0
    assert partition_for_key(group, 5) == partition


def test_the_least_hash_goes_to_partition_0() -> None:
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert partition_for_key("polygenelubricants", 7) == 0


def test_ids_are_22_characters_of_url_safe_base64() -> None:
    topic_id = UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")
    assert uuid_text(topic_id) == "9HrBC1jMQ3KlZw4CssPUeQ"
    assert parse_uuid("9HrBC1jMQ3KlZw4CssPUeQ") == topic_id
    with pytest.raises(ValueError, match="16-char string"):
        parse_uuid("AAAA")
