"""The reader of whole Fetch requests agrees with the decoders, the writer with the encoder, compiled or not."""

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
from kctl.errors import MalformedRequest
from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kctl.protocol.headers import decode_request_fields, encode_response_header
from kctl.records.compiled import fetch_frame
from kctl.records.compiled.fetch_frame import PlainFetch, read_plain_fetch
from tests.property.examples import examples, share_of
from tests.property.fetch_frames import NAMES, WITH_IDS, unusual_fetches, usual_fetch
from tests.property.produce_frames import damaged, with_odd_numbers
from tests.property.topic_ids import names_by_id
from tests.property.walk_inputs import interpreted

SEEDS = st.integers(0, 1 << 32)
NAMES_BY_ID = names_by_id(NAMES)


def read_frame(frame: bytes) -> PlainFetch | None:
    return read_plain_fetch(frame, NAMES_BY_ID)


def read_with(module: ModuleType, frame: bytes) -> PlainFetch | None:
    values: PlainFetch | None = module.read_plain_fetch(frame, NAMES_BY_ID)
    return values


@pytest.fixture(scope="module")
def source() -> ModuleType:
    return interpreted(str(Path(kctl.records.compiled.__file__).with_name("fetch_frame.py")))


def topic_of(name: bytes, version: int) -> dict[str, Any]:
    """The name or the id of a topic in a response."""
    return {"topic_id": UUID(bytes=name)} if version >= WITH_IDS else {"topic": name.decode()}


def reference(frame: bytes) -> PlainFetch | None:
    """The values by the decoders; None if they refuse something."""
    try:
        _, version, correlation_id, client_id, offset = decode_request_fields(frame)
        request, end = codec.decode(FetchRequest, frame, version, offset)
    except MalformedRequest:
        return None
    if not 10 <= version <= 18 or request.replica_state is not None:
        return None
    if version >= WITH_IDS:
        for topic in request.topics:
            topic.topic = NAMES_BY_ID.get(topic.topic_id.bytes, "")
    has_session = request.session_id != 0
    is_usual = (
        (request.session_epoch > 0 if has_session else request.session_epoch == request.replica_id == -1)
        and request.replica_id >= -1
        and request.isolation_level in {0, 1}
        and (request.topics or has_session)
        and all(topic.topic and topic.partitions for topic in request.topics)
        and not request.forgotten_topics_data
        and not request.rack_id
        and request.cluster_id is None
        and not any(partition.replica_directory_id.int for topic in request.topics for partition in topic.partitions)
        and end == len(frame)
    )
    if not is_usual:
        return None
    topics = [
        (topic.topic_id.bytes if version >= WITH_IDS else topic.topic.encode(), len(topic.partitions))
        for topic in request.topics
    ]
    positions = [
        (
            topic.topic,
            each.partition,
            each.current_leader_epoch,
            each.fetch_offset,
            each.partition_max_bytes,
            each.last_fetched_epoch,
            each.log_start_offset,
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    return (
        version,
        correlation_id,
        client_id or "",
        request.replica_id,
        request.session_id,
        request.session_epoch,
        request.isolation_level == 1,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        topics,
        positions,
    )


@given(SEEDS)
@examples(200)
def test_usual_requests_are_read_as_the_decoders_read_them(source: ModuleType, seed: int) -> None:
    frame = usual_fetch(random.Random(seed))
    found = read_frame(frame)
    assert found is not None
    assert found == reference(frame) == read_with(source, frame)


@given(SEEDS)
@examples(30)
def test_unusual_requests_are_left_to_the_other_code(source: ModuleType, seed: int) -> None:
    for frame in unusual_fetches(random.Random(seed)):
        assert read_frame(frame) is read_with(source, frame) is None, frame


@given(SEEDS)
@examples(1_000)
def test_damaged_requests_are_read_alike_or_left(source: ModuleType, seed: int) -> None:
    """What is read although a byte has changed, such as one of an offset, is what the decoders read."""
    chance = random.Random(seed)
    frame = damaged(usual_fetch(chance), chance)
    found = read_frame(frame)
    assert found == read_with(source, frame)
    if found is not None:
        assert found == reference(frame)


@given(SEEDS)
@examples(3)
def test_odd_numbers_at_each_place_are_read_alike_or_left(source: ModuleType, seed: int) -> None:
    for changed in with_odd_numbers(usual_fetch(random.Random(seed), names=NAMES[:2])):
        found = read_frame(changed)
        assert found == read_with(source, changed)
        if found is not None:
            assert found == reference(changed)


@given(SEEDS)
@examples(20)
def test_a_request_that_is_cut_at_any_byte_is_left(source: ModuleType, seed: int) -> None:
    frame = usual_fetch(random.Random(seed))
    for size in range(len(frame)):
        assert read_frame(frame[:size]) is read_with(source, frame[:size]) is None
    assert read_frame(frame + b"\0") is read_with(source, frame + b"\0") is None


@given(SEEDS)
@examples(100)
def test_responses_are_what_the_encoder_writes(source: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    request = read_frame(usual_fetch(chance))
    assert request is not None
    version, correlation_id, _, _, session_id, _, is_committed, _, _, _, topics, positions = request
    read = [
        (partition, chance.choice((0, 1 << 40)), chance.choice((0, 1 << 40)), chance.choice((0, 5)), size)
        for (_, partition, *_), size in ((position, chance.choice((0, 1, 130, 20_000))) for position in positions)
    ]
    rest = iter(read)
    response = FetchResponse(
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                **topic_of(name, version),
                partitions=[
                    PartitionData(
                        partition_index=index,
                        error_code=0,
                        high_watermark=high_watermark,
                        last_stable_offset=last_stable,
                        log_start_offset=log_start,
                        aborted_transactions=[] if is_committed else None,
                        records=bytes(size),
                    )
                    for index, high_watermark, last_stable, log_start, size in (next(rest) for _ in range(count))
                ],
            )
            for name, count in topics
        ],
    )
    body = encode_response_header(1, version, correlation_id) + codec.encode_bytes(response, version)
    sizes = [size for *_, size in read if size]
    for module in (fetch_frame, source):
        pieces = module.write_fetch_response(version, correlation_id, session_id, is_committed, topics, read)
        assert len(pieces) in {len(sizes), len(sizes) + 1}
        whole = b"".join(piece + bytes(sizes[at] if at < len(sizes) else 0) for at, piece in enumerate(pieces))
        assert whole == len(body).to_bytes(4, "big") + body
        if read:
            with pytest.raises(IndexError):
                module.write_fetch_response(version, correlation_id, session_id, is_committed, topics, read[1:])


def test_arbitrary_bytes_are_left(source: ModuleType) -> None:
    chance = random.Random(3)
    for _ in range(share_of(3_000)):
        frame = bytes((0, 1, 0, chance.randrange(14))) + chance.randbytes(chance.randrange(200))
        assert read_frame(frame) is read_with(source, frame) is None
    assert read_frame(b"") is None
