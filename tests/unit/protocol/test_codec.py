from __future__ import annotations

import traceback
import tracemalloc

import pytest

from kctl.errors import ErrorCode, MalformedRequest
from kctl.protocol.apis.api_versions import ApiVersionsRequest
from kctl.protocol.apis.create_topics import CreateTopicsResponse
from kctl.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kctl.protocol.apis.heartbeat import HeartbeatResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.apis.offset_commit import OffsetCommitRequest
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.protocol.codec import codec_source, decode, encode, encode_bytes
from kctl.protocol.message import data, int8, int16, nested, string, struct
from tests.rows import for_rows
from tests.unit.protocol.reference_codec import decode_walk, encode_walk


class FileSlice:
    """Represents records that the network sends from a file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def produce(records: object) -> ProduceRequest:
    partitions = [PartitionProduceData(index=0, records=records)]  # type: ignore[arg-type]
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=partitions)])


def fetched(*records: object) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, error_code=0, high_watermark=0, records=slice_)  # type: ignore[arg-type]
        for index, slice_ in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [7, 9])
def test_decoded_records_are_a_writable_view_into_the_buffer(version: int) -> None:
    """The broker changes offsets in place, in its receive buffer."""
    buffer = bytearray(encode_bytes(produce(b"abcdef"), version))
    message, _ = decode(ProduceRequest, memoryview(buffer), version)
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0:1] = b"X"
    assert b"Xbcdef" in buffer


@pytest.mark.parametrize("version", [11, 12])
def test_records_are_passed_on_as_chunks_of_their_own(version: int) -> None:
    first, second = FileSlice(5), b"bytes"
    chunks = encode(fetched(first, second), version)
    assert chunks[1] is first
    assert chunks[3] is second
    at_rest = b"".join(chunk if chunk is not first else b"12345" for chunk in chunks)
    message, end = decode(FetchResponse, at_rest, version)
    assert end == sum(map(len, chunks))
    assert [partition.records for partition in message.responses[0].partitions] == [b"12345", b"bytes"]


@pytest.mark.parametrize("records", [None, b"", FileSlice(0)])
def test_records_without_bytes_need_no_chunk(records: object) -> None:
    assert len(encode(fetched(records), 11)) == 1


def test_value_in_a_field_that_the_version_lacks_is_refused() -> None:
    response = HeartbeatResponse(error_code=0, throttle_time_ms=3)
    assert encode_bytes(response, 0) == b"\0\0", "throttle_time_ms may be dropped"
    commit = OffsetCommitRequest(group_id="g", group_instance_id="i", topics=[])
    with pytest.raises(ValueError, match=r"OffsetCommitRequest.group_instance_id does not exist in version 6"):
        encode(commit, 6)


def test_none_is_refused_where_the_version_has_no_null() -> None:
    with pytest.raises(ValueError, match=r"MetadataRequest.topics is None in version 0"):
        encode(MetadataRequest(topics=None), 0)


@struct
class Point:
    x: int = int8()
    name: str = string()


@data(versions="0-1", flexible="1+")
class Line:
    start: Point = nested(Point)
    width: int = int16()
    end: Point = nested(Point)


@pytest.mark.parametrize(
    ("version", "octets"),
    [(0, "01 0001 61   0007   02 0002 6263"), (1, "01 02 61 00   0007   02 03 6263 00   00")],
)
def test_struct_outside_of_arrays_stands_where_it_is_declared(version: int, octets: str) -> None:
    """Including tagged fields if the message is flexible."""
    blob = bytes.fromhex(octets)
    line = Line(start=Point(x=1, name="a"), width=7, end=Point(x=2, name="bc"))
    assert encode_bytes(line, version) == encode_walk(line, version) == blob
    assert decode(Line, blob, version) == decode_walk(Line, blob, version) == (line, len(blob))


def test_struct_that_is_not_tagged_has_to_be_there() -> None:
    line = Line(start=Point(x=1, name="a"), width=7, end=None)  # type: ignore[arg-type]  # that it is refused is the point
    for encoder in (encode_bytes, encode_walk):
        with pytest.raises(ValueError, match="end is None in version 1"):
            encoder(line, 1)
    with pytest.raises(TypeError, match="end"):
        Line(start=Point(x=1, name="a"), width=7)  # type: ignore[call-arg]  # same


@data(versions="0-1", flexible="1+")
class Path:
    start: Point | None = nested(Point, nullable="0+")
    end: Point | None = nested(Point, "1+", nullable="1+", default=Point(x=0, name=""), tag=0)


@pytest.mark.parametrize(
    ("version", "start", "end", "octets"),
    [
        (0, None, Point(x=0, name=""), "ff"),
        (0, Point(x=3, name="a"), Point(x=0, name=""), "01 03 0001 61"),
        (1, None, Point(x=0, name=""), "ff 00"),
        (1, None, None, "ff   01 00 01 00"),
        (1, Point(x=3, name="a"), Point(x=4, name=""), "01 03 02 61 00   01 00 04 01 04 01 00"),
    ],
)
def test_nullable_struct_is_preceded_by_whether_it_is_null(
    version: int, start: Point | None, end: Point | None, octets: str
) -> None:
    """A byte, 1 or -1 (KIP-893); in tagged fields Kafka writes 1 or 0, and an absent one is not null."""
    path, blob = Path(start=start, end=end), bytes.fromhex(octets)
    assert encode_bytes(path, version) == encode_walk(path, version) == blob
    assert decode(Path, blob, version) == decode_walk(Path, blob, version) == (path, len(blob))


def test_defaults_that_are_structs_are_not_shared_between_messages() -> None:
    first, second = (decode(Path, b"\xff\0", 1)[0] for _ in range(2))
    assert first.end is not None
    first.end.name = "changed"
    assert second.end == Path(start=None).end == Point(x=0, name="")


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(MalformedRequest, match=r"MetadataRequest.topics is null"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


@pytest.mark.parametrize("acks", [1 << 15, None, "all"])
def test_values_that_do_not_fit_are_refused(acks: object) -> None:
    message = produce(b"")
    message.acks = acks  # type: ignore[assignment]  # that it is refused is the point
    with pytest.raises(ValueError, match="ProduceRequest v7"):
        encode(message, 7)


@pytest.mark.parametrize("version", [1, 9])
def test_strings_of_more_than_32767_bytes_are_refused(version: int) -> None:
    encode(produce_to("ü" * 16383), version)
    with pytest.raises(ValueError, match="longer than 32767 bytes"):
        encode(produce_to("ü" * 16384), version)


def produce_to(topic: str) -> ProduceRequest:
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name=topic, partition_data=[])])


def test_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match="ProduceRequest has no version 14"):
        decode(ProduceRequest, b"", 14)
    with pytest.raises(ValueError, match="ProduceRequest has no version 14"):
        encode(produce(b""), 14)


def test_error_codes_can_be_given_by_name() -> None:
    assert encode_bytes(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 0) == b"\0\x1b"


def test_absent_fields_take_their_defaults() -> None:
    message, _ = decode(FetchRequest, bytes(16), 0)
    assert (message.max_bytes, message.session_epoch, message.forgotten_topics_data) == (0x7FFFFFFF, -1, [])
    other, _ = decode(FetchRequest, bytes(16), 0)
    assert other.forgotten_topics_data is not message.forgotten_topics_data


def test_bytes_after_the_message_are_left_to_the_caller() -> None:
    assert decode(HeartbeatResponse, b"\0\0rest", 0) == (HeartbeatResponse(error_code=0), 2)


ABSURD = [
    ("count", MetadataRequest, 1, b"\x7f\xff\xff\xff"),
    ("compact count", MetadataRequest, 9, b"\xff\xff\xff\xff\x0f"),
    ("endless varint", MetadataRequest, 9, b"\xff\xff\xff\xff\xff\xff\x01"),
    ("varint of more than 32 bits", MetadataRequest, 9, b"\x80\x80\x80\x80\x7f"),
    ("number of tagged fields", MetadataRequest, 9, b"\x01\x00\x00\x00\xff\xff\xff\xff\x0f"),
    ("size of a tagged field", MetadataRequest, 9, b"\x01\x00\x00\x00\x01\x05\xff\xff\xff\xff\x0f"),
    ("length of a string", MetadataRequest, 0, b"\x00\x00\x00\x01\x7f\xffab"),
    ("not UTF-8", MetadataRequest, 0, b"\x00\x00\x00\x01\x00\x02\xff\xfe"),
    ("compact string too long", ApiVersionsRequest, 3, b"\x81\x80\x02" + b"x" * 32768 + b"\x01\x00"),
    ("size of records", ProduceRequest, 0, bytes(6) + b"\0\0\0\1\0\0\0\0\0\1\0\0\0\0\x7f\xff\xff\xff"),
    ("later count", CreateTopicsResponse, 5, b"\0\0\0\0\x02\x02t" + bytes(3) + b"\xff\xff\xff\xff\x0f"),
    ("part of a struct", MetadataResponse, 0, b"\x00\x00\x00\x01" + b"\xff" * 8),
]


@for_rows("size, cls, version, blob", ABSURD)
def test_impossible_sizes_are_refused_before_memory_is_allocated(
    size: str, cls: type, version: int, blob: bytes
) -> None:
    with pytest.raises(MalformedRequest):
        decode(cls, blob, version)  # compiled outside of the measurement
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest):
            decode(cls, blob, version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_tracebacks_show_generated_source() -> None:
    try:
        decode(MetadataRequest, b"\0", 0)
    except MalformedRequest as error:
        shown = "".join(traceback.format_exception(error))
    assert "<decode MetadataRequest v0>" in shown
    assert "unpack_from_i(b, p)" in shown


def test_source_can_be_shown() -> None:
    source = codec_source(MetadataRequest, 1)
    assert "def decode(b, p):" in source
    assert "def encode(o):" in source
    with pytest.raises(ValueError, match="no version 99"):
        codec_source(MetadataRequest, 99)
