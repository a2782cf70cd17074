"""Names of the maximum length in every string of every request get a response."""

from __future__ import annotations

import struct
from importlib import import_module

from kctl.errors import ERROR_MESSAGE_CHARACTERS_MAX, ApiError, ErrorCode
from kctl.protocol import registry
from kctl.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.decoding import minimum_size
from kctl.protocol.definition import FIXED_FORMATS, Field, definition_of
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.protocol.varint import uvarint
from kctl.server.requests.outcomes import Outcome
from tests.hostile.raw_client import Attacker
from tests.peers.kctl_broker import KctlBroker
from tests.rows import for_rows

LENGTH_MAX = 32_767
PRODUCE = 0
APIS = [(api, version) for api in registry.all_apis().values() for version in api.served if api.key != PRODUCE]


def encoded(field: Field, version: int, text: bytes, *, is_flexible: bool) -> bytes:
    """A value of the field: numbers are 0, arrays have one element, strings are the text."""
    if field.kind in FIXED_FORMATS:
        return bytes(minimum_size(field, version, is_flexible))
    if field.struct is not None:
        presence = b"\1" if version in field.nullable else b""
        return presence + encoded_struct(field.struct, version, text, is_flexible=is_flexible)
    if field.kind == "array":
        assert field.element is not None
        element = encoded(field.element, version, text, is_flexible=is_flexible)
        return (uvarint(2) if is_flexible else struct.pack(">i", 1)) + element
    if field.kind == "string":
        return (uvarint(len(text) + 1) if is_flexible else struct.pack(">h", len(text))) + text
    return uvarint(1) if is_flexible else struct.pack(">i", 0)


def encoded_struct(cls: type, version: int, text: bytes, *, is_flexible: bool) -> bytes:
    present = [field for field in definition_of(cls).fields if version in field.versions and field.tag is None]
    tags = b"\0" if is_flexible else b""
    return b"".join(encoded(field, version, text, is_flexible=is_flexible) for field in present) + tags


@for_rows("text", [b"x" * LENGTH_MAX, "\u00e9".encode() * (LENGTH_MAX // 2)])
@for_rows("api, version", APIS)
def test_every_api_responds_to_names_of_the_maximum_length(
    broker: KctlBroker, api: registry.Api, version: int, text: bytes
) -> None:
    cls = getattr(import_module(f"kctl.protocol.apis.{api.name}"), api.kafka_name + "Request")
    is_flexible = definition_of(cls).is_flexible(version)
    header = encode_request_header(RequestHeader(api.key, version, 7, "x" * LENGTH_MAX))
    with Attacker(broker.bootstrap) as attacker:
        served = attacker.call(ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys
        response = attacker.exchange(header + encoded_struct(cls, version, text, is_flexible=is_flexible))
    is_served = api.key in {api_range.api_key for api_range in served}
    assert response[:4] == (struct.pack(">i", 7) if is_served else b"")
    assert "Traceback" not in broker.log_text


def test_an_error_message_that_repeats_a_long_name_is_cut() -> None:
    for message in (
        ApiError(ErrorCode.INVALID_REQUEST, "x" * LENGTH_MAX).message,
        Outcome(ErrorCode.INVALID_REQUEST, "x" * LENGTH_MAX).message,
    ):
        assert message is not None
        assert len(message) == ERROR_MESSAGE_CHARACTERS_MAX
