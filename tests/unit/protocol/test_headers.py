from __future__ import annotations

import pytest

from kctl.errors import MalformedRequest
from kctl.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from kctl.protocol.registry import all_apis
from tests.rows import for_rows

APIS = all_apis()


@for_rows(
    "key, version, expected",
    [
        (7, 0, 0),
        (7, 1, 1),
        (7, 3, 2),
        (0, 8, 1),
        (0, 9, 2),
        (17, 1, 1),
        (47, 0, 1),
        (18, 2, 1),
        (18, 3, 2),
        (999, 0, 1),
    ],
)
def test_request_header_version_follows_from_api_and_version(key: int, version: int, expected: int) -> None:
    assert request_header_version(key, version) == expected


@for_rows("key, version, expected", [(0, 8, 0), (0, 9, 1), (18, 3, 0), (18, 9, 0), (7, 3, 1), (17, 1, 0), (999, 9, 0)])
def test_response_header_version_follows_from_api_and_version(key: int, version: int, expected: int) -> None:
    assert response_header_version(key, version) == expected


@for_rows("key", APIS)
def test_headers_round_trip(key: int) -> None:
    for version in APIS[key].versions:
        for client_id in (None, "", "ü-client"):
            has_client_id = (key, version) != (7, 0)
            header = RequestHeader(key, version, -5, client_id if has_client_id else None)
            blob = encode_request_header(header)
            assert decode_request_header(b"??" + blob + b"body", 2) == (header, 2 + len(blob))
        blob = encode_response_header(key, version, 77)
        assert decode_response_header(blob + b"body", key, version) == (77, len(blob))


def test_newer_version_is_read_as_flexible() -> None:
    """ApiVersions of a newer client must get a response, so its header must be decoded."""
    blob = bytes.fromhex("0012 0009 00000001 0001 63 01 00 02 abcd ffff")
    assert decode_request_header(blob) == (RequestHeader(18, 9, 1, "c"), 16)


@for_rows("size", range(14))
def test_header_that_is_cut_short_is_refused(size: int) -> None:
    blob = encode_request_header(RequestHeader(0, 9, 1, "abc"))
    assert len(blob) == 14
    with pytest.raises(MalformedRequest):
        decode_request_header(blob[:size])


@pytest.mark.parametrize("blob", ["00000009 0001 00000001 0002 fffe", "0000 0009 00000001 0000 05 00", "00"])
def test_malformed_header_is_refused(blob: str) -> None:
    with pytest.raises(MalformedRequest):
        decode_request_header(bytes.fromhex(blob))


@pytest.mark.parametrize("blob", ["", "000000", "00000001", "00000001 01 00", "00000001 01 00 7f"])
def test_response_header_that_is_cut_short_is_refused(blob: str) -> None:
    with pytest.raises(MalformedRequest):
        decode_response_header(bytes.fromhex(blob), 0, 9)
