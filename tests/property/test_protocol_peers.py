"""Our codecs against kafka-python's, an independent transcription of the protocol, for every version that both support.

What we encode, it decodes to the same values in the same order, and encodes to the same bytes again.  Versions that its
current codecs no longer support are compared with its old ones.  It has none of the requests between controller and
brokers; those have golden bytes instead.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import kafka.protocol
import kafka.protocol.old
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage

from kctl.protocol.codec import encode_bytes
from kctl.protocol.definition import definition_of, parse_versions
from kctl.protocol.registry import all_apis
from tests.property.protocol_messages import messages
from tests.rows import for_rows

THEIR_MISTAKES = {("DescribeLogDirsRequest", 0)}
"""kafka-python's old schema has one partition where Kafka has an array of them."""

few = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


def _subclasses(cls: Any) -> list[Any]:
    return [found for child in type.__subclasses__(cls) for found in (child, *_subclasses(child))]


def _import_all(package: Any) -> list[Any]:
    found = pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    return [importlib.import_module(module.name) for module in found if "generate" not in module.name]


def _current_peers() -> list[tuple[type, int, Any]]:
    for module in _import_all(kafka.protocol):
        if hasattr(module, "__path__") and not module.__name__.endswith(("old", "schemas")):
            _import_all(module)
    theirs = {cls.__name__: cls for cls in _subclasses(ApiMessage) if cls._class_version is None}
    return [
        (cls, version, theirs[cls.__name__])
        for api in all_apis().values()
        for cls in (api.request, api.response)
        if cls.__name__ in theirs
        for version in definition_of(cls).versions
        if version in parse_versions(theirs[cls.__name__]._json["validVersions"])
    ]


def _old_peers() -> list[tuple[type, int, Any]]:
    theirs = {name: cls for module in _import_all(kafka.protocol.old) for name, cls in vars(module).items()}
    return [
        (cls, version, theirs[f"{cls.__name__}_v{version}"])
        for api in all_apis().values()
        for cls in (api.request, api.response)
        for version in definition_of(cls).versions
        if f"{cls.__name__}_v{version}" in theirs
        and (cls, version) not in {(cls, version) for cls, version, _ in CURRENT}
        and (cls.__name__, version) not in THEIR_MISTAKES
    ]


def _ids(peers: list[tuple[type, int, Any]]) -> list[str]:
    return [f"{cls.__name__}-{version}" for cls, version, _ in peers]


CURRENT = _current_peers()
OLD = _old_peers()


def our_values(message: Any, version: int) -> list[Any]:
    """The values of all fields in wire order, except tagged ones."""
    return [
        _our_value(getattr(message, field.name), version)
        for field in definition_of(type(message)).fields
        if version in field.versions and field.tag is None
    ]


def _our_value(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_our_value(item, version) for item in value]
    return our_values(value, version) if hasattr(type(value), "__definition__") else value


def their_values(message: Any, version: int) -> list[Any]:
    """The values of the fields of one of kafka-python's messages."""
    return [
        _operations(getattr(message, field.name))
        if field.name.endswith("authorized_operations") and not field.name.startswith("include")
        else _their_value(getattr(message, field.name), version)
        for field in message._struct.untagged_fields(version)
    ]


def _operations(numbers: set[int] | int | None) -> int:
    """The bits of a field that most classes of kafka-python make a set of numbers, or None if it was not requested."""
    if isinstance(numbers, int):
        return numbers
    bits = 1 << 31 if numbers is None else sum(1 << number for number in numbers)
    return bits - (1 << 32) if bits >> 31 else bits


def _their_value(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_their_value(item, version) for item in value]
    if isinstance(value, memoryview):
        return bytes(value)
    return their_values(value, version) if hasattr(value, "_struct") else value


@pytest.mark.long
@for_rows("cls, version, theirs", CURRENT)
@few
@given(data=st.data())
def test_kafka_python_reads_and_writes_the_same_bytes(
    cls: type, version: int, theirs: Any, data: st.DataObject
) -> None:
    message = data.draw(messages(cls, version))
    blob = encode_bytes(message, version)
    read = ApiMessage.decode.__func__(theirs, blob, version)  # unbound: ApiVersionsResponse has a way of its own
    assert their_values(read, version) == our_values(message, version)
    read._header = None  # its decoder does not set it
    assert read.encode(version=version) == blob


@for_rows("cls, version, theirs", OLD)
@few
@given(data=st.data())
@pytest.mark.long
def test_older_kafka_python_classes_read_and_write_the_same_bytes(
    cls: type, version: int, theirs: Any, data: st.DataObject
) -> None:
    message = data.draw(messages(cls, version))
    blob = encode_bytes(message, version)
    assert theirs.decode(blob).encode() == blob
