"""Connections that send arbitrary requests, including malformed ones that a client library would not send."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from kctl.protocol import codec
from kctl.protocol.definition import definition_of
from kctl.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from tests.peers import probe

T = TypeVar("T")

WAIT_S = 60.0
"""A bound for every wait; a loaded machine needs a fraction of it."""


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(api_key: int, version: int, body: bytes, *, correlation_id: int = 1) -> bytes:
    """A frame with a header of version 1 and the client id "h"."""
    return framed(struct.pack(">hhih", api_key, version, correlation_id, 1) + b"h" + body)


API_VERSIONS = request(18, 0, b"")


def waiting_fetch(topic: str) -> bytes:
    """Fetch v0 of partition 0 that waits for the maximum time for more bytes than there will be."""
    name = topic.encode()
    partition = struct.pack(">iqi", 0, 0, 1 << 20)
    topics = struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", 1) + partition
    return request(1, 0, struct.pack(">iii", -1, (1 << 31) - 1, 1 << 20) + topics)


@contextlib.contextmanager
def connected(bootstrap: str) -> Iterator[socket.socket]:
    """A plain connection."""
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as sock:
        yield sock


def receive_frame(sock: socket.socket) -> bytes:
    """The payload of the next response; raises EOFError when the broker closes the connection."""
    (size,) = struct.unpack(">i", _receive_exactly(sock, 4))
    return _receive_exactly(sock, size)


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        received = sock.recv(min(size - len(data), 1 << 20))
        if not received:
            raise EOFError("the broker closed the connection")
        data += received
    return bytes(data)


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    """Polls until the condition holds; raises TimeoutError after WAIT_S."""
    probe.wait_until(is_true, what=what, timeout_s=WAIT_S)


class Attacker:
    """One connection to a broker."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, request: Any, response_class: type[T], version: int) -> T:
        """The response to a request; AssertionError if the broker closes the connection instead."""
        key = definition_of(type(request)).key
        assert key is not None
        payload = encode_request_header(RequestHeader(key, version, 1, "attacker")) + codec.encode_bytes(
            request, version
        )
        reply = self.exchange(payload)
        assert reply, "the broker closed the connection"
        _, offset = decode_response_header(reply, key, version)
        response, end = codec.decode(response_class, reply, version, offset)
        assert end == len(reply)
        return response

    def exchange(self, payload: bytes) -> bytes:
        """The response frame to one frame; empty if the broker closes the connection."""
        try:
            self._socket.sendall(framed(payload))
            return receive_frame(self._socket)
        except (EOFError, ConnectionResetError):
            return b""

    def send_and_end(self, payload: bytes) -> None:
        """Sends one frame; returns when the broker has closed the connection."""
        self._socket.sendall(framed(payload))
        self._socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while self._socket.recv(1 << 16):
                pass
