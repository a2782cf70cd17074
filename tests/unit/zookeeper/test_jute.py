"""Decoding any bytes returns a value or raises MalformedRequest, and allocates no more than was received."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import MalformedRequest
from kctl.zookeeper.embedded.messages import codes, requests
from kctl.zookeeper.embedded.messages.codes import OpCode, Reader
from tests.rows import for_rows


@given(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings_round_trip(text: str | None) -> None:
    reader = Reader(codes.string(text))
    assert reader.string() == text
    assert reader.remaining == 0


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_vectors_round_trip(texts: list[str]) -> None:
    assert Reader(codes.strings(texts)).paths() == texts


@for_rows(
    "frame",
    [
        b"",
        b"\0\0\0",
        codes.int32(5) + b"abcd",
        codes.int32(-2),
        codes.int32(1 << 30),
        codes.int32(2) + b"\xff\xff",
    ],
)
def test_an_invalid_string_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedRequest):
        Reader(frame).string()


@pytest.mark.parametrize("count", [-2, 3, 1 << 30])
def test_a_vector_longer_than_its_frame_is_malformed(count: int) -> None:
    with pytest.raises(MalformedRequest):
        Reader(codes.int32(count) + codes.string("") * 2).paths()


@given(st.sampled_from([*OpCode, 0, 99]), st.binary(max_size=60))
def test_any_bytes_are_decoded_or_malformed(op_code: int, body: bytes) -> None:
    try:
        requests.decode(op_code, Reader(body))
    except MalformedRequest:
        return


@given(st.binary(max_size=60))
def test_any_bytes_of_a_connect_request_are_decoded_or_malformed(frame: bytes) -> None:
    try:
        requests.decode_connect(frame)
    except MalformedRequest:
        return


def test_a_connect_request_before_3_4_has_no_read_only_flag() -> None:
    old = codes.int32(0) + codes.int64(5) + codes.int32(4000) + codes.int64(0) + codes.buffer(bytes(16))
    assert not requests.decode_connect(old).knows_read_only
    assert requests.decode_connect(old + b"\0").knows_read_only
