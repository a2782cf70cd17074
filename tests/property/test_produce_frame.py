"""The reader of whole Produce requests agrees with the decoders and with the checks of batches, compiled or not."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kctl.records.compiled
from kctl.errors import ApiError, MalformedRequest
from kctl.protocol import codec
from kctl.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kctl.protocol.headers import decode_request_fields, encode_response_header
from kctl.records.batch import iterate_records
from kctl.records.compiled import produce_frame
from kctl.records.compiled.produce_frame import UNREAD, PlainProduce, read_plain_produce
from kctl.records.header import CODEC_MASK, TRANSACTIONAL_BIT, CorruptBatch, Record, parse_header
from kctl.records.validate import AppendRules, validate_produced
from tests.property.examples import examples, share_of
from tests.property.produce_frames import (
    NAMES,
    WITH_IDS,
    damaged,
    sealed,
    unusual_frames,
    usual_frame,
    with_odd_numbers,
)
from tests.property.topic_ids import names_by_id
from tests.property.walk_inputs import interpreted

RULES = AppendRules(max_message_bytes=1 << 20, segment_bytes=1 << 20)
SEEDS = st.integers(0, 1 << 32)
NAMES_BY_ID = names_by_id(NAMES)


def read_frame(frame: bytes) -> PlainProduce | None:
    return read_plain_produce(frame, NAMES_BY_ID)


def read_with(module: ModuleType, frame: bytes) -> PlainProduce | None:
    values: PlainProduce | None = module.read_plain_produce(frame, NAMES_BY_ID)
    return values


@pytest.fixture(scope="module")
def source() -> ModuleType:
    return interpreted(str(Path(kctl.records.compiled.__file__).with_name("produce_frame.py")))


def topic_of(name: bytes, version: int) -> dict[str, Any]:
    """The name or the id of a topic in a response."""
    return {"topic_id": UUID(bytes=name)} if version >= WITH_IDS else {"name": name.decode()}


def reference(frame: bytes) -> PlainProduce | None:
    """The values by the decoders and checks; None if they refuse something."""
    try:
        api_key, version, correlation_id, client_id, offset = decode_request_fields(frame)
        if api_key != 0 or version not in range(3, 14):
            return None
        request, end = codec.decode(ProduceRequest, frame, version, offset)
        if end != len(frame) or request.transactional_id == "" or request.acks not in {0, 1, -1}:
            return None
        topics, batches, begin = [], [], 0
        for topic in request.topic_data:
            name = NAMES_BY_ID.get(topic.topic_id.bytes) if version >= WITH_IDS else topic.name
            if name is None:
                raise Unusual
            identity = topic.topic_id.bytes if version >= WITH_IDS else name.encode()
            topics.append((identity, len(topic.partition_data)))
            for data in topic.partition_data:
                assert isinstance(data.records, (memoryview, type(None)))
                records = bytes(data.records or b"")
                begin = frame.index(records, begin)
                batches.append((name, data.index, begin, len(records), *_checked(records, version)))
                begin += len(records)
    except (MalformedRequest, ApiError, CorruptBatch, Unusual):
        return None
    return (
        version,
        correlation_id,
        client_id or "",
        -1,
        request.acks,
        request.timeout_ms,
        request.transactional_id,
        topics,
        batches,
    )


class Unusual(Exception):
    """The reader leaves the batch to the other code."""


def _checked(records: bytes, version: int) -> tuple[int, int, int, int, int]:
    """What the reader says of a batch after its place; the records of a compressed one are not looked at."""
    header = parse_header(records)
    if header.attributes & CODEC_MASK:
        if header.base_offset or header.size != len(records) or header.attributes & ~(CODEC_MASK | TRANSACTIONAL_BIT):
            raise Unusual
        return UNREAD, header.max_timestamp, header.producer_id, 0, header.attributes
    valid = validate_produced(records, RULES, now_ms=0, request_version=version)
    (header,) = valid.headers
    if header.attributes & ~TRANSACTIONAL_BIT or bytes(valid.buffer) != records:
        raise Unusual
    keyless = sum(record.key is None for record in _records_of(records))
    return header.record_count, header.max_timestamp, header.producer_id, keyless, header.attributes


def _records_of(batch: bytes) -> list[Record]:
    return list(iterate_records(batch))


@given(SEEDS)
@examples(300)
def test_usual_requests_are_read_as_the_decoders_and_checks_read_them(source: ModuleType, seed: int) -> None:
    frame = usual_frame(random.Random(seed)).content
    found = read_frame(frame)
    assert found is not None
    assert found == reference(frame) == read_with(source, frame)


@given(SEEDS)
@examples(30)
def test_unusual_requests_are_left_to_the_other_code(source: ModuleType, seed: int) -> None:
    for frame in unusual_frames(random.Random(seed)):
        assert read_frame(frame.content) is read_with(source, frame.content) is None, frame.request


@given(SEEDS)
@examples(1_000)
def test_damaged_requests_are_read_alike_or_left(source: ModuleType, seed: int) -> None:
    """What is read although a byte has changed, such as one of the client id, is what the decoders and checks read."""
    chance = random.Random(seed)
    frame = damaged(usual_frame(chance).content, chance)
    found = read_frame(frame)
    assert found == read_with(source, frame)
    if found is not None:
        assert found == reference(frame)


@pytest.mark.long
@given(SEEDS)
@examples(2)
def test_odd_numbers_at_each_place_are_read_alike_or_left(source: ModuleType, seed: int) -> None:
    """Also within batches whose checksum is that of the changed bytes, so that what it covers is read."""
    frame = usual_frame(random.Random(seed), is_short=True).content
    usual = read_frame(frame)
    assert usual is not None
    _, _, position, size, *_ = usual[8][0]
    changed = list(with_odd_numbers(frame))
    changed += [
        sealed(each, position, size) for each in with_odd_numbers(frame, places=range(position, position + size))
    ]
    for each in changed:
        found = read_frame(each)
        assert found == read_with(source, each)
        if found is not None:
            assert found == reference(each)


@given(SEEDS)
@examples(10)
@pytest.mark.long
def test_a_request_that_is_cut_at_any_byte_is_left(source: ModuleType, seed: int) -> None:
    frame = usual_frame(random.Random(seed)).content
    for size in range(len(frame)):
        assert read_frame(frame[:size]) is None
    for size in range(0, len(frame), 1 + len(frame) // 50):
        assert read_with(source, frame[:size]) is None
    assert read_frame(frame + b"\0") is read_with(source, frame + b"\0") is None


@given(SEEDS)
@examples(100)
def test_responses_are_what_the_encoder_writes(source: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    frame = usual_frame(chance)
    request = read_frame(frame.content)
    assert request is not None
    version, correlation_id, *_, topics, batches = request
    appended = [
        (partition, chance.choice((0, 1 << 40)), chance.choice((-1, 1_700_000_000_000)), chance.choice((0, 5)))
        for _, partition, *_ in batches
    ]
    rest = iter(appended)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                **topic_of(name, version),
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        error_code=0,
                        base_offset=base_offset,
                        log_append_time_ms=append_time,
                        log_start_offset=log_start,
                    )
                    for index, base_offset, append_time, log_start in (next(rest) for _ in range(count))
                ],
            )
            for name, count in topics
        ]
    )
    body = encode_response_header(0, version, correlation_id) + codec.encode_bytes(response, version)
    expected = len(body).to_bytes(4, "big") + body
    for module in (produce_frame, source):
        assert module.write_produce_response(version, correlation_id, topics, appended) == expected
        with pytest.raises(IndexError):
            module.write_produce_response(version, correlation_id, topics, appended[1:])


def test_arbitrary_bytes_are_left(source: ModuleType) -> None:
    chance = random.Random(3)
    for _ in range(share_of(3_000)):
        frame = bytes((0, 0, 0, chance.randrange(12))) + chance.randbytes(chance.randrange(200))
        assert read_frame(frame) is read_with(source, frame) is None
    assert read_frame(b"") is None
