"""Keys are partitioned as by the Java producer."""

from __future__ import annotations

import pytest

from kctl.client.partitioner import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_agrees_with_java(data: bytes, signed: int) -> None:
    """Vectors of Kafka's own UtilsTest."""
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_partition_masks_the_sign_bit() -> None:
    assert partition_of_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
