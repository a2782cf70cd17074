"""Encodes requests into frames, decodes responses, and interprets the ApiVersions exchange.  No IO.

A frame is a size of 4 bytes, a header and a body.  Every connection starts with ApiVersions.  Its response has version
0 if the broker does not support the requested version (KIP-511), and never a flexible header.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar

from kctl import __version__
from kctl.client.connections.transport import ConnectionLost
from kctl.client.connections.versions import OLDEST_KAFKA, BrokerVersions
from kctl.errors import ApiError, AuthenticationFailed, ErrorCode, KctlError, MalformedRequest
from kctl.output.quantities import counted
from kctl.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.codec import Chunk, decode, encode
from kctl.protocol.definition import definition_of
from kctl.protocol.headers import RequestHeader, decode_response_header, encode_request_header

T = TypeVar("T")

SIZE = struct.Struct(">i")
CORRELATION_ID = struct.Struct(">i")

API_VERSIONS_KEY = 18
API_VERSIONS_MAX = 3

_TLS_RECORDS = {0x1503, 0x1603}
"""Alert and handshake, each followed by the major version 3."""
_HTTP = int.from_bytes(b"HTTP")
"""The first bytes of a response of HTTP, taken for the size of a frame."""
_ERROR_CODE = struct.Struct(">h")
_ERROR_CODE_POSITION = 4


def request_frame(request: object, version: int, *, correlation_id: int, client_id: str) -> list[Chunk]:
    """Return the chunks of a request frame, starting with its size."""
    key = definition_of(type(request)).key
    assert key is not None
    header = encode_request_header(RequestHeader(key, version, correlation_id, client_id))
    body = encode(request, version)
    return [SIZE.pack(len(header) + sum(map(len, body))) + header, *body]


def correlation_id_of(frame: memoryview) -> int:
    """Return the correlation id of a response frame (without its size).  Raises MalformedRequest."""
    if len(frame) < CORRELATION_ID.size:
        raise MalformedRequest(f"response header: {counted(len(frame), 'byte')}")
    correlation_id: int = CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def response_of(frame: memoryview, response_class: type[T], version: int) -> T:
    """Return the message in a response frame (without its size).  Raises MalformedRequest."""
    key = definition_of(response_class).key
    assert key is not None
    _, position = decode_response_header(frame, key, version)
    message, _ = decode(response_class, frame, version, position)
    return message


def first_result(items: Sequence[T]) -> T:
    """Return the only element of a response about one requested thing.  Raises MalformedRequest if it is missing."""
    if not items:
        raise MalformedRequest("the response does not contain the requested item")
    return items[0]


def api_versions_request() -> ApiVersionsRequest:
    """Return the first request of every connection."""
    return ApiVersionsRequest(client_software_name="kctl", client_software_version=__version__)


def refused_handshake(address: str, protocol: str) -> str:
    """Return the error text for a peer that closes the connection on ApiVersions, an API of Kafka 0.10."""
    if protocol.endswith("SSL"):
        return (
            f"{address}: the broker closed the connection after the TLS handshake; if it requires a certificate, "
            "set ssl.keystore.location to one that it trusts"
        )
    return (
        f"{address}: closed the connection after ApiVersions: it is older than Kafka {OLDEST_KAFKA}, "
        f"which is the minimum, or not a {protocol} listener of a broker; check security.protocol"
    )


def refused_first_request(address: str, protocol: str) -> str:
    """Return the error text for a broker that responds to ApiVersions and closes the connection on the next request."""
    return (
        f"{address}: the broker closed the connection at the first request; if this listener needs authentication, set "
        f"security.protocol to SASL_{protocol}"
    )


def not_kafka(address: str, size: int) -> KctlError:
    """Return the error for a frame whose size is invalid.

    A TLS record in response to plain text means wrong properties.
    """
    if size >> 16 in _TLS_RECORDS:
        text = "the listener uses TLS; set security.protocol to SSL, or to SASL_SSL with sasl.mechanism"
        return AuthenticationFailed(f"{address}: {text}")
    if size == _HTTP:
        return ConnectionLost(f"{address}: an HTTP server or proxy responds, not a broker")
    return ConnectionLost(f"{address}: does not use Kafka's protocol (frame of {counted(size, 'byte')})")


def no_response(request: object, timeout_ms: int) -> str:
    """Return the error text for a request without a response in time."""
    name = definition_of(type(request)).name.removesuffix("Request")
    return f"no response to {name} within {timeout_ms} ms"


def broker_versions_of(frame: memoryview, version: int) -> BrokerVersions | int:
    """Return the broker's API versions, or the version of ApiVersions to retry with.

    Raises ApiError, MalformedRequest.
    """
    if len(frame) < _ERROR_CODE_POSITION + _ERROR_CODE.size:
        raise MalformedRequest(f"response of {counted(len(frame), 'byte')}")
    (error_code,) = _ERROR_CODE.unpack_from(frame, _ERROR_CODE_POSITION)
    is_too_new = error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0
    response = response_of(frame, ApiVersionsResponse, 0 if is_too_new else version)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    if is_too_new:
        return min(ranges.get(API_VERSIONS_KEY, (0, 0))[1], version - 1)
    if response.error_code:
        raise ApiError(ErrorCode.of(response.error_code))
    return BrokerVersions(ranges)
