"""Requests to frames and frames to responses, and the first exchange of a connection.  No IO.

A frame is a size of 4 bytes and then header and body.  The first exchange is ApiVersions, whose answer has the format
of version 0 when the broker does not know the version asked (KIP-511), and never a flexible header.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from kctl import __version__
from kctl.client.versions import BrokerVersions
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.codec import Chunk, decode, encode
from kctl.protocol.message import definition_of

T = TypeVar("T")

SIZE = struct.Struct(">i")
RESPONSE_SIZE_MAX = 1 << 30
"""A larger size means that the other side does not speak Kafka's protocol."""

API_VERSIONS_KEY = 18
API_VERSIONS_MAX = 3

_HEADER = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")
_LENGTH = struct.Struct(">h")


def request_frame(request: object, version: int, *, correlation_id: int, client_id: str) -> list[Chunk]:
    """The chunks of one request, size first."""
    definition = definition_of(type(request))
    assert definition.key is not None
    name = client_id.encode()
    header = _HEADER.pack(definition.key, version, correlation_id) + _LENGTH.pack(len(name)) + name
    if definition.is_flexible(version):
        header += b"\x00"  # no tagged fields
    body = encode(request, version)
    return [SIZE.pack(len(header) + sum(map(len, body))) + header, *body]


def correlation_id_of(frame: memoryview) -> int:
    """Which request a response frame (without its size) answers.  Raises MalformedRequest."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedRequest(f"response of {len(frame)} bytes has no header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    return int(correlation_id)


def response_of(frame: memoryview, response_class: type[T], version: int) -> T:
    """The message in a response frame (without its size).  Raises MalformedRequest."""
    definition = definition_of(response_class)
    position = _CORRELATION_ID.size
    if definition.is_flexible(version) and definition.key != API_VERSIONS_KEY:
        position = _skip_tagged_fields(frame, position)
    message, _ = decode(response_class, frame, version, position)
    return message


def api_versions_request() -> ApiVersionsRequest:
    """What every connection asks first."""
    return ApiVersionsRequest(client_software_name="kctl", client_software_version=__version__)


def broker_versions_of(frame: memoryview, version: int) -> BrokerVersions | int:
    """What the broker told, or the version of ApiVersions to ask in instead.  Raises ApiError, MalformedRequest."""
    (error_code,) = _LENGTH.unpack_from(frame, _CORRELATION_ID.size) if len(frame) >= 6 else (0,)
    is_too_new = error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0
    response = response_of(frame, ApiVersionsResponse, 0 if is_too_new else version)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    if is_too_new:
        return min(ranges.get(API_VERSIONS_KEY, (0, 0))[1], version - 1)
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code))
    return BrokerVersions(ranges)


def _skip_tagged_fields(frame: memoryview, position: int) -> int:
    """The position after the tagged fields of a response header; no broker is known to send any."""
    try:
        count, position = _unsigned_varint(frame, position)
        for _ in range(count):
            _, position = _unsigned_varint(frame, position)
            size, position = _unsigned_varint(frame, position)
            position += size
    except IndexError:
        raise MalformedRequest("response header is cut off") from None
    return position


def _unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
