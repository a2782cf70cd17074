"""Requests of few bytes that would take long to decode: counts of elements and of tagged fields."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator

import pytest

from kctl.errors import MalformedRequest
from kctl.limits import REQUEST_COST_MAX, TAGGED_FIELDS_MAX
from kctl.protocol import codec, registry
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kctl.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.protocol.codec import CONTROL_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX
from kctl.protocol.cost import COST_PER_BYTE_MAX, element_cost
from kctl.protocol.decoding import minimum_size
from kctl.protocol.definition import FIXED_FORMATS, Definition, Field, definition_of
from kctl.protocol.headers import RequestHeader, decode_request_header, encode_request_header
from kctl.protocol.varint import uvarint
from kctl.server.network.connections.channel import KeepsFrame
from kctl.server.requests.context import Peer, RequestContext
from tests.hostile.raw_client import Attacker
from tests.rows import for_rows
from tests.unit.protocol.reference_codec import decode_walk
from tests.unit.server.quota_free import quota_free_dispatcher

REQUESTS = [(api.request, version) for api in registry.all_apis().values() for version in api.versions]


def arrays_of(definition: Definition, version: int) -> Iterator[Field]:
    """The arrays that are fields of the message itself."""
    return (field for field in definition.fields if field.kind == "array" and version in field.versions)


def smallest(field: Field, version: int, *, is_flexible: bool) -> bytes:
    """The size in bytes of the smallest value of the field."""
    if field.struct is not None and version in field.nullable:
        return b"\xff"
    if field.struct is not None:
        inner = definition_of(field.struct).fields
        present = [declared for declared in inner if version in declared.versions and declared.tag is None]
        tags = b"\0" if is_flexible else b""
        return b"".join(smallest(declared, version, is_flexible=is_flexible) for declared in present) + tags
    if field.kind in FIXED_FORMATS or not is_flexible:
        return bytes(minimum_size(field, version, is_flexible))
    return b"\1"


def with_elements(cls: type, version: int, array: Field, count: int) -> bytes:
    """A request with one array of so many smallest elements, and otherwise empty."""
    definition = definition_of(cls)
    is_flexible = definition.is_flexible(version)
    assert array.element is not None
    body = b""
    for field in definition.fields:
        if version not in field.versions or field.tag is not None:
            continue
        if field is array:
            body += uvarint(count + 1) if is_flexible else struct.pack(">i", count)
            body += smallest(array.element, version, is_flexible=is_flexible) * count
        else:
            body += smallest(field, version, is_flexible=is_flexible)
    return body + (b"\0" if is_flexible else b"")


@for_rows("cls, version", REQUESTS)
def test_an_array_with_more_elements_than_the_bound_is_refused(cls: type, version: int) -> None:
    """CVE-2026-111108: elements of one byte became objects of a hundred bytes."""
    definition = definition_of(cls)
    assert definition.cost_max is not None
    for array in arrays_of(definition, version):
        assert array.element is not None
        allowed = definition.cost_max // element_cost(array.element, version)
        with pytest.raises(MalformedRequest, match="costs more"):
            codec.decode(cls, with_elements(cls, version, array, allowed + 1), version)


def test_the_interpreter_refuses_at_the_same_count_as_the_compiled_decoder() -> None:
    array = next(arrays_of(definition_of(MetadataRequest), 9))
    assert array.element is not None
    allowed = REQUEST_COST_MAX // element_cost(array.element, 9)
    within = with_elements(MetadataRequest, 9, array, allowed)
    assert len(codec.decode(MetadataRequest, within, 9)[0].topics or ()) == allowed
    assert decode_walk(MetadataRequest, within, 9) == codec.decode(MetadataRequest, within, 9)
    for decode in (codec.decode, decode_walk):
        with pytest.raises(MalformedRequest):
            decode(MetadataRequest, with_elements(MetadataRequest, 9, array, allowed + 1), 9)


@for_rows("cls, version", REQUESTS)
def test_small_requests_cannot_cost_more_than_the_bound(cls: type, version: int) -> None:
    """Small requests are decoded without counting their cost."""
    definition = definition_of(cls)
    assert definition.cost_max is not None
    assert definition.cost_max >= codec.SMALL_BYTES * COST_PER_BYTE_MAX
    pending = list(arrays_of(definition, version))
    while pending:
        element = pending.pop().element
        assert element is not None
        size = minimum_size(element, version, definition.is_flexible(version))
        assert element_cost(element, version) <= size * COST_PER_BYTE_MAX
        if element.struct is not None:
            pending += arrays_of(definition_of(element.struct), version)


def test_long_strings_count_by_their_bytes() -> None:
    topics = [MetadataRequestTopic(name="x" * 32_000)] * 1_000
    with pytest.raises(MalformedRequest, match="costs more"):
        codec.decode(MetadataRequest, codec.encode_bytes(MetadataRequest(topics=topics), 1), 1)


def test_a_response_has_no_bound() -> None:
    response = MetadataResponse(brokers=[], controller_id=0, topics=[])
    blob = bytearray(codec.encode_bytes(response, 1))
    blob[-4:] = struct.pack(">i", 100_000)
    blob += struct.pack(">hhbi", 3, 0, 0, 0) * 100_000
    assert len(codec.decode(MetadataResponse, bytes(blob), 1)[0].topics) == 100_000


def test_a_commit_of_ten_thousand_partitions_is_decoded() -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="m")
        for index in range(10_000)
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    assert codec.decode(OffsetCommitRequest, codec.encode_bytes(request, 8), 8)[0] == request


def test_metadata_of_fifty_thousand_partitions_is_taken_from_a_controller() -> None:
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=1, leader_epoch=0, isr=[1, 2, 3], zk_version=0, replicas=[1, 2, 3]
    )
    topics = [UpdateMetadataTopicState(topic_name="t", partition_states=[state] * 50) for _ in range(1_000)]
    request = UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=topics, live_brokers=[])
    assert codec.decode(UpdateMetadataRequest, codec.encode_bytes(request, 6), 6)[0] == request


def tags(count: int) -> bytes:
    return uvarint(count) + b"\x7f\0" * count


def test_a_header_with_a_million_tagged_fields_is_refused_before_they_are_read() -> None:
    """CVE-2026-111115: a header declared millions of unknown tagged fields."""
    header = struct.pack(">hhih", 3, 9, 1, -1)
    assert decode_request_header(header + tags(TAGGED_FIELDS_MAX))[1] == len(header + tags(TAGGED_FIELDS_MAX))
    with pytest.raises(MalformedRequest, match="tagged fields"):
        decode_request_header(header + uvarint(1_000_000))


def test_tagged_fields_are_counted_over_all_structs_of_a_request() -> None:
    topic = b"\2t"
    body = uvarint(TAGGED_FIELDS_MAX + 2) + (topic + tags(1)) * (TAGGED_FIELDS_MAX + 1) + b"\1\0\0\0"
    with pytest.raises(MalformedRequest, match="tagged fields"):
        codec.decode(MetadataRequest, body, 9)
    with pytest.raises(MalformedRequest, match="tagged fields"):
        decode_walk(MetadataRequest, body, 9)


def test_a_request_over_the_bound_closes_its_connection(attacker: Attacker) -> None:
    array = next(arrays_of(definition_of(MetadataRequest), 9))
    body = with_elements(MetadataRequest, 9, array, 1_000_000)
    assert attacker.exchange(struct.pack(">hhihb", 3, 9, 1, -1, 0) + body) == b""


def produce_frame(partitions: int, records: bytes) -> memoryview:
    """A Produce v7 request."""
    data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    topic = TopicProduceData(name="t", partition_data=data)
    request = ProduceRequest(acks=1, timeout_ms=0, topic_data=[topic])
    header = encode_request_header(RequestHeader(0, 7, 1, "h"))
    return memoryview(bytearray(header + codec.encode_bytes(request, 7)))


@pytest.mark.parametrize(
    ("partitions", "size", "is_long", "is_kept"),
    [
        (1, 2 << 20, False, False),
        (500, 1_000, False, False),
        (3_000, 8, True, False),
        (3_000, 800, True, True),
        (5, 1 << 20, True, True),
    ],
)
def test_a_produce_request_with_thousands_of_partitions_or_much_data_is_handled_in_slices(
    partitions: int, size: int, is_long: bool, is_kept: bool
) -> None:
    """12,000 partitions held the event loop for 37 ms, and 60 with 0.9 MB each for 60 ms: most of it was copied."""
    received: list[ProduceRequest] = []

    async def handled(request: ProduceRequest, _context: RequestContext) -> ProduceResponse:
        received.append(request)
        return ProduceResponse(responses=[])

    async def main() -> None:
        dispatcher = quota_free_dispatcher()
        dispatcher.register("produce", refused if is_long else handled, for_long=handled if is_long else refused)
        frame = produce_frame(partitions, b"r" * size)
        reply = dispatcher.handle(frame, Peer("/127.0.0.1", "PLAINTEXT"))
        assert isinstance(reply, KeepsFrame) is is_kept
        if is_long and not is_kept:
            frame[:] = bytes(len(frame))  # The connection receives into it.
        assert isinstance(reply, asyncio.Future)
        await reply
        (topic,) = received[0].topic_data
        views = [data.records for data in topic.partition_data if isinstance(data.records, memoryview)]
        assert len(views) == partitions
        assert {bytes(view) for view in views} == {b"r" * size}
        assert not any(view.readonly for view in views)
        assert all((view.obj is frame.obj) is (is_kept or not is_long) for view in views)

    def refused(_request: ProduceRequest, _context: RequestContext) -> ProduceResponse:
        raise AssertionError("it is not decoded on the event loop")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("cls", "size_max"), [(MetadataRequest, REQUEST_BYTES_MAX), (UpdateMetadataRequest, CONTROL_REQUEST_BYTES_MAX)]
)
def test_a_request_that_takes_long_to_copy_is_refused(cls: type, size_max: int) -> None:
    """It is decoded in a thread: copying 99 MB for that held the event loop for 50 ms."""
    assert codec.is_long_to_decode(cls, size_max)
    with pytest.raises(MalformedRequest, match="the limit is"):
        codec.is_long_to_decode(cls, size_max + 1)
