"""Requests to frames and frames to responses, and the first exchange of a connection.  No IO.

A frame is a size of 4 bytes and then header and body.  The first exchange is ApiVersions, whose answer has the format
of version 0 when the broker does not know the version asked (KIP-511), and never a flexible header.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

from kctl import __version__
from kctl.client.versions import OLDEST_KAFKA, BrokerVersions
from kctl.errors import ApiError, ErrorCode, MalformedRequest
from kctl.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.codec import Chunk, decode, encode
from kctl.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from kctl.protocol.message import definition_of

T = TypeVar("T")

SIZE = struct.Struct(">i")

API_VERSIONS_KEY = 18
API_VERSIONS_MAX = 3

_ERROR_CODE = struct.Struct(">h")
_ERROR_CODE_POSITION = 4


def request_frame(request: object, version: int, *, correlation_id: int, client_id: str) -> list[Chunk]:
    """The chunks of one request, size first."""
    key = definition_of(type(request)).key
    assert key is not None
    header = encode_request_header(RequestHeader(key, version, correlation_id, client_id))
    body = encode(request, version)
    return [SIZE.pack(len(header) + sum(map(len, body))) + header, *body]


def correlation_id_of(frame: memoryview) -> int:
    """Which request a response frame (without its size) answers.  Raises MalformedRequest."""
    correlation_id, _ = decode_response_header(frame, API_VERSIONS_KEY, 0)
    return correlation_id


def response_of(frame: memoryview, response_class: type[T], version: int) -> T:
    """The message in a response frame (without its size).  Raises MalformedRequest."""
    key = definition_of(response_class).key
    assert key is not None
    _, position = decode_response_header(frame, key, version)
    message, _ = decode(response_class, frame, version, position)
    return message


def first_answer(items: Sequence[T]) -> T:
    """The answer about the one thing that was asked.  Raises MalformedRequest when the broker has left it out."""
    if not items:
        raise MalformedRequest("the broker's response leaves out what was asked")
    return items[0]


def api_versions_request() -> ApiVersionsRequest:
    """What every connection asks first."""
    return ApiVersionsRequest(client_software_name="kctl", client_software_version=__version__)


def refused_handshake(address: str) -> str:
    """What it means when the other side closes the connection instead of answering ApiVersions, which 0.10 brought."""
    return (
        f"{address}: closed the connection when it was asked for its versions: it is older than Kafka {OLDEST_KAFKA}, "
        "which is the minimum, or not a PLAINTEXT listener of a broker"
    )


def no_answer(request: object, timeout_ms: int) -> str:
    """What to say of a request that was not answered in time."""
    name = definition_of(type(request)).name.removesuffix("Request")
    hint = f"; brokers older than Kafka {OLDEST_KAFKA}, which is the minimum, may not answer it"
    return f"no answer to {name} within {timeout_ms} ms{hint if name == 'ApiVersions' else ''}"


def broker_versions_of(frame: memoryview, version: int) -> BrokerVersions | int:
    """What the broker told, or the version of ApiVersions to ask in instead.  Raises ApiError, MalformedRequest."""
    if len(frame) < _ERROR_CODE_POSITION + _ERROR_CODE.size:
        raise MalformedRequest(f"response of {len(frame)} bytes")
    (error_code,) = _ERROR_CODE.unpack_from(frame, _ERROR_CODE_POSITION)
    is_too_new = error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0
    response = response_of(frame, ApiVersionsResponse, 0 if is_too_new else version)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    if is_too_new:
        return min(ranges.get(API_VERSIONS_KEY, (0, 0))[1], version - 1)
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code))
    return BrokerVersions(ranges)
