"""The codecs: round trips, output of other clients, and bounds on the output."""

from __future__ import annotations

import gzip
import struct

import cramjam
import lz4.frame
import pytest

from kctl.records.compression import XERIAL_MAGIC, Codec, DecompressionError, compress, decompress
from tests.rows import for_rows

DATA = b"".join(b"record %d " % number for number in range(20_000))
COMPRESSING = [codec for codec in Codec if codec]


@for_rows("codec", list(Codec))
@for_rows("size", [0, 1, 1000, 32 * 1024, 32 * 1024 + 1, len(DATA)])
def test_compression_round_trips(codec: Codec, size: int) -> None:
    assert decompress(codec, memoryview(compress(codec, memoryview(DATA)[:size]))) == DATA[:size]


@pytest.mark.parametrize("codec", COMPRESSING)
def test_growth_is_bounded(codec: Codec) -> None:
    bomb = compress(codec, bytes(10_000_000))
    assert len(decompress(codec, bomb, 10_000_000)) == 10_000_000
    with pytest.raises(DecompressionError, match="more than 9999999 bytes"):
        decompress(codec, bomb, 9_999_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_stream_that_is_cut_or_foreign_is_refused(codec: Codec) -> None:
    data = compress(codec, DATA)
    for cut in (1, len(data) // 2, len(data) - 1):
        with pytest.raises(DecompressionError):
            decompress(codec, data[:cut])
    with pytest.raises(DecompressionError):
        decompress(codec, b"\xff" * 40)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_empty_input_is_not_a_valid_stream(codec: Codec) -> None:
    with pytest.raises(DecompressionError):
        decompress(codec, b"")


def test_snappy_is_framed_as_java_does_and_read_bare_as_librdkafka_does() -> None:
    framed = compress(Codec.SNAPPY, DATA)
    assert framed.startswith(XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1")
    bare = bytes(cramjam.snappy.compress_raw(DATA))
    assert decompress(Codec.SNAPPY, bare) == DATA


@pytest.mark.parametrize("length", [-1, 1 << 30, (1 << 31) - 1])
def test_a_snappy_block_with_an_absurd_length_is_refused(length: int) -> None:
    """CVE-2023-34455: snappy-java allocated the declared length of a block."""
    with pytest.raises(DecompressionError, match="invalid block length"):
        decompress(Codec.SNAPPY, XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1" + struct.pack(">i", length) + b"xx")


@pytest.mark.parametrize("declared", [(1 << 32) - 1, 1 << 40, 1 << 62])
def test_a_stream_that_declares_an_absurd_size_is_refused(declared: int) -> None:
    """CVE-2023-34455: a size in the header of a stream is no reason to allocate memory."""
    size = struct.pack("<Q", declared)
    zstd = bytes.fromhex("28b52ffd e0") + size + bytes.fromhex("090000") + b"x"
    # One of these bytes is the checksum of the header.
    lz4_frames = [bytes.fromhex("04224d18 6840") + size + bytes([byte]) + bytes(4) for byte in range(256)]
    snappy = bytes.fromhex("ffffffff0f") + b"xx"
    for codec, stream in [(Codec.ZSTD, zstd), (Codec.SNAPPY, snappy), *((Codec.LZ4, frame) for frame in lz4_frames)]:
        with pytest.raises(DecompressionError):
            decompress(codec, stream)


def test_lz4_frames_have_the_header_that_kafka_reads() -> None:
    assert compress(Codec.LZ4, DATA)[:7] == bytes.fromhex("04224d18604082")


def test_lz4_frames_with_checksums_and_sizes_are_read() -> None:
    frame = lz4.frame.compress(DATA, content_checksum=True, block_checksum=True, store_size=True, block_linked=True)
    assert decompress(Codec.LZ4, frame) == DATA


def test_several_gzip_members_are_read_as_one() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("rest", [b"\0", b"\0" * 100, b"no gzip", b"\x1f\x8b"])
def test_what_follows_the_last_gzip_member_is_ignored_as_in_java(rest: bytes) -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + rest) == b"one"


def test_several_snappy_streams_are_read_as_one_as_in_java() -> None:
    streams = compress(Codec.SNAPPY, DATA) + compress(Codec.SNAPPY, b"") + compress(Codec.SNAPPY, b"rest")
    assert decompress(Codec.SNAPPY, streams) == DATA + b"rest"
    assert decompress(Codec.SNAPPY, streams + b"\0\0\0") == DATA + b"rest"


def test_codecs_have_the_names_of_compression_type() -> None:
    assert [Codec.named(name) for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd")] == list(Codec)
    with pytest.raises(KeyError):
        Codec.named("producer")
