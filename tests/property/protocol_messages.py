"""Arbitrary messages, drawn from their definitions."""

from __future__ import annotations

import functools
import struct
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from kctl.protocol import consumer_protocol
from kctl.protocol.definition import Field, definition_of
from kctl.protocol.registry import all_apis
from kctl.records.internal import metadata_records, newer_group_records, topics

KAFKA_4_RECORDS: list[type] = [
    *dict.fromkeys(
        cls
        for kinds in (
            newer_group_records.CONSUMER_GROUP_KINDS,
            newer_group_records.SHARE_GROUP_KINDS,
            newer_group_records.STREAMS_GROUP_KINDS,
            newer_group_records.SHARE_GROUP_STATE_KINDS,
        )
        for kind in kinds.values()
        for cls in kind
    ),
    *metadata_records.CLUSTER_METADATA_TYPES.values(),
    *metadata_records.REMOTE_LOG_METADATA_TYPES.values(),
    *(cls for _, cls in metadata_records.TYPES.values()),
]
"""Records that only newer brokers than kctl's write."""

CLASSES: list[type] = [
    *(cls for api in all_apis().values() for cls in (api.request, api.response)),
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
    consumer_protocol.StickyUserData,
    consumer_protocol.CooperativeStickyUserData,
    topics.OffsetCommitKey,
    topics.OffsetCommitValue,
    topics.GroupMetadataKey,
    topics.GroupMetadataValue,
    topics.TransactionLogKey,
    topics.TransactionLogValue,
    *KAFKA_4_RECORDS,
]
"""Every message."""

MESSAGES = [(cls, version) for cls in CLASSES for version in definition_of(cls).versions]
"""Every version of every message."""


@st.composite
def versions_and_messages(draw: st.DrawFn, cls: type) -> tuple[int, Any]:
    """A version, and a message that it can carry."""
    version = draw(st.sampled_from(definition_of(cls).versions))
    return version, draw(messages(cls, version))


NULL_PROBABILITY = 0.3

_INTEGERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}


def _integers(code: str) -> st.SearchStrategy[int]:
    bits = struct.calcsize(">" + code) * 8
    if code.isupper():
        return st.integers(0, (1 << bits) - 1)
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    **{kind: _integers(code) for kind, code in _INTEGERS.items()},
    "boolean": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "string": st.text(max_size=8) | st.sampled_from(["x" * 126, "x" * 127, "ü" * 200]),
    "bytes": st.binary(max_size=8) | st.just(b"y" * 300),
    "records": st.binary(max_size=8) | st.just(b"z" * 300),
}


@functools.cache
def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Instances of `cls` that this version can carry."""
    values = {field.name: _values(field, version) for field in definition_of(cls).fields if version in field.versions}
    return st.builds(cls, **values)


def random_message(cls: type, version: int, random: Random) -> Any:
    """One such instance, without Hypothesis, for peers that process many messages at once."""
    values = {
        field.name: _random_value(field, version, random)
        for field in definition_of(cls).fields
        if version in field.versions
    }
    return cls(**values)


def _random_value(field: Field, version: int, random: Random) -> Any:
    may_be_null = version in field.nullable or (field.struct is not None and field.tag is not None)
    if may_be_null and random.random() < NULL_PROBABILITY:
        return None
    if field.struct is not None:
        return random_message(field.struct, version, random)
    if field.element is not None:
        return [_random_value(field.element, version, random) for _ in range(random.randrange(3))]
    if field.kind in _INTEGERS:
        bits = struct.calcsize(">" + _INTEGERS[field.kind]) * 8
        return random.getrandbits(bits) - (0 if field.kind.startswith("u") else 1 << bits - 1)
    size = random.choice((0, 1, 5, 200))
    match field.kind:
        case "boolean":
            return random.random() < 0.5
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "uuid":
            return UUID(int=random.getrandbits(128))
        case "string":
            return "".join(random.choice("abc-ü€") for _ in range(size))
        case _:
            return random.randbytes(size)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        strategy = messages(field.struct, version)
    elif field.element is not None:
        strategy = st.lists(_values(field.element, version), max_size=3)
    else:
        strategy = _SCALARS[field.kind]
    if version in field.nullable or (field.struct is not None and field.tag is not None):
        return st.none() | strategy
    return strategy
