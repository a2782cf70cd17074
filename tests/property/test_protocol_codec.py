"""Compiled codecs round-trip and agree with the interpreting codec, for every message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kctl.errors import MalformedRequest
from kctl.protocol.codec import decode, encode_bytes
from kctl.protocol.definition import definition_of
from tests.property.examples import share_of
from tests.property.protocol_messages import CLASSES, MESSAGES, messages, versions_and_messages
from tests.rows import for_rows
from tests.unit.protocol.reference_codec import decode_walk, encode_walk

few = settings(max_examples=max(2, share_of(6)), deadline=None, suppress_health_check=list(HealthCheck))
more = settings(few, max_examples=share_of(12))
every_version = for_rows("cls, version", MESSAGES)
every_class = for_rows("cls", CLASSES)


def meaning(codec: Callable[..., tuple[object, int]], cls: type, blob: bytes, version: int) -> tuple[bytes, int] | None:
    """What the bytes mean, None when they are refused; as canonical bytes, since a NaN equals nothing."""
    try:
        message, offset = codec(cls, blob, version)
    except MalformedRequest:
        return None
    return encode_bytes(message, version), offset


@pytest.mark.long
@every_version
@few
@given(data=st.data())
def test_interpreted_and_compiled_codecs_agree_and_round_trip(cls: type, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    blob = encode_bytes(message, version)
    assert encode_walk(message, version) == blob
    assert decode(cls, blob, version) == (message, len(blob))
    assert decode_walk(cls, blob, version) == (message, len(blob))


@pytest.mark.long
@every_class
@more
@given(data=st.data())
def test_message_is_decoded_at_an_offset_and_refused_or_decoded_alike_when_it_is_damaged(
    cls: type, data: st.DataObject
) -> None:
    """One drawn message for all of it: drawing costs more than decoding."""
    version, message = data.draw(versions_and_messages(cls))
    blob = encode_bytes(message, version)
    assert decode(cls, b"\xffab" + blob + b"\xff" * 9, version, 3) == (message, 3 + len(blob)), "others are ignored"
    for size in range(max(0, len(blob) - 40), len(blob)):
        with pytest.raises(MalformedRequest):
            decode(cls, blob[:size], version)
    damaged = bytearray(blob)
    for _ in range(data.draw(st.integers(1, 3)) if blob else 0):
        position = data.draw(st.integers(0, len(blob) - 1))
        damaged[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    assert meaning(decode, cls, bytes(damaged), version) == meaning(decode_walk, cls, bytes(damaged), version)


@pytest.mark.long
@every_class
@more
@given(data=st.data(), blob=st.binary(max_size=60))
def test_random_bytes_are_refused_or_decoded_alike_by_both_codecs(cls: type, data: st.DataObject, blob: bytes) -> None:
    version = data.draw(st.sampled_from(definition_of(cls).versions))
    assert meaning(decode, cls, blob, version) == meaning(decode_walk, cls, blob, version)
