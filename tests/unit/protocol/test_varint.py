from __future__ import annotations

import pytest

from kctl.errors import MalformedRequest
from kctl.protocol.varint import read_uvarint, skip_tagged_fields, uvarint
from tests.rows import for_rows


@for_rows(
    "value, blob",
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (0xFFFFFFFF, "ffffffff0f")],
)
def test_seven_bits_a_byte_lowest_first(value: int, blob: str) -> None:
    assert uvarint(value) == bytes.fromhex(blob)
    assert read_uvarint(memoryview(bytes.fromhex("aa" + blob + "bb")), 1) == (value, 1 + len(blob) // 2)


@pytest.mark.parametrize("blob", ["ffffffff10", "ffffffffff01", "808080808000"])
def test_more_than_32_bits_are_refused(blob: str) -> None:
    with pytest.raises(MalformedRequest):
        read_uvarint(memoryview(bytes.fromhex(blob)), 0)


def test_tagged_fields_are_skipped() -> None:
    section = bytes.fromhex("02 00 03 aabbcc 8101 00")
    assert skip_tagged_fields(memoryview(section), 1, section[0], 2**32) == (len(section), 2**32 - 2)
