from __future__ import annotations

from dataclasses import replace

import pytest

from kctl.errors import MalformedRequest
from kctl.records.internal.topics import (
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    UnknownKey,
    decode_group_metadata_value,
    decode_offset_commit_value,
    decode_offsets_key,
    decode_transaction_key,
    decode_transaction_value,
    encode_offset_commit_value,
    encode_transaction_key,
    encode_transaction_value,
)

VALUE = OffsetCommitValue(offset=7, leader_epoch=3, metadata="m", commit_timestamp=100)


def test_unknown_key_types_are_recognised_and_not_refused() -> None:
    """KIP-915: a newer broker may have written them."""
    assert decode_offsets_key(b"\0\x03whatever") == UnknownKey(3)
    assert decode_transaction_key(b"\0\x01whatever") == UnknownKey(1)


def test_offset_key_of_version_0_is_read() -> None:
    assert decode_offsets_key(b"\0\0\0\x01g\0\x01t\0\0\0\x05") == OffsetCommitKey(group="g", topic="t", partition=5)


def test_offset_with_an_expiry_is_written_in_the_version_with_room_for_it() -> None:
    """This version has no leader epoch."""
    value = replace(VALUE, expire_timestamp=200)
    blob = encode_offset_commit_value(value)
    assert blob[:2] == b"\0\x01"
    assert decode_offset_commit_value(blob) == replace(value, leader_epoch=-1)
    assert encode_offset_commit_value(VALUE)[:2] == b"\0\x03"


@pytest.mark.parametrize(
    ("blob", "expected"),
    [
        ("0000 0000000000000007 0001 6d 0000000000000064", replace(VALUE, leader_epoch=-1)),
        (
            "0001 0000000000000007 0001 6d 0000000000000064 00000000000000c8",
            replace(VALUE, leader_epoch=-1, expire_timestamp=200),
        ),
        ("0002 0000000000000007 0001 6d 0000000000000064", replace(VALUE, leader_epoch=-1)),
        ("0003 0000000000000007 00000003 0001 6d 0000000000000064", VALUE),
    ],
)
def test_offsets_of_all_versions_are_read(blob: str, expected: OffsetCommitValue) -> None:
    assert decode_offset_commit_value(bytes.fromhex(blob)) == expected


@pytest.mark.parametrize("partitions", [None, [], [PartitionsSchema(topic="t", partition_ids=[0, 3])]])
def test_transaction_round_trips(partitions: list[PartitionsSchema] | None) -> None:
    value = TransactionLogValue(
        producer_id=1000,
        producer_epoch=2,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=-1,
    )
    assert decode_transaction_key(encode_transaction_key("tx")) == TransactionLogKey(transactional_id="tx")
    assert decode_transaction_value(encode_transaction_value(value)) == value


@pytest.mark.parametrize("blob", [b"", b"\0\x04" + bytes(40), b"\xff\xff" + bytes(40), b"\0\x03\0"])
def test_values_of_unknown_versions_or_cut_short_are_refused(blob: bytes) -> None:
    for read in (decode_offset_commit_value, decode_group_metadata_value, decode_transaction_value):
        with pytest.raises(MalformedRequest):
            read(blob)
