"""A connection that sends any request, well-formed or not, and reads the answer."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self, TypeVar

from kctl.protocol import codec
from kctl.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from kctl.protocol.message import definition_of

T = TypeVar("T")

TIMEOUT_S = 60


class Attacker:
    """One connection to a broker."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Any, response_class: type[T], version: int) -> T:
        """The answer to a request; AssertionError when the broker closes the connection instead."""
        key = definition_of(type(request)).key
        assert key is not None
        payload = encode_request_header(RequestHeader(key, version, 1, "attacker")) + codec.encode_bytes(
            request, version
        )
        answer = self.exchange(payload)
        assert answer, "the broker closed the connection"
        _, offset = decode_response_header(answer, key, version)
        response, end = codec.decode(response_class, answer, version, offset)
        assert end == len(answer)
        return response

    def exchange(self, payload: bytes) -> bytes:
        """The frame that answers one frame; empty when the broker closes the connection."""
        self._socket.sendall(struct.pack(">i", len(payload)) + payload)
        size = self._read(4)
        return self._read(struct.unpack(">i", size)[0]) if size else b""

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self._socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError:
                return b""
            if not more:
                return b""
            data += more
        return data
