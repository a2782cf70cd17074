"""Checks whether a Kafka port serves, with hand-written bytes and without kctl's code.

Both questions are in the oldest encoding of their API, which every broker since 0.10 answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

API_VERSIONS = 18
METADATA = 3
CORRELATION_ID = 7

# A broker that is starting or stopping may refuse, close, or send half a response.
NOT_YET = (OSError, struct.error, EOFError)


PORTS = range(12_000, 32_000)
"""Below the ports that systems assign to clients, and to servers that bind port 0."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.2
_chance = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """A TCP port of the loopback address on which no server listens; it is reserved for this process until it ends.

    Its server may be stopped at times.  Tests run in several processes, so each reserves a port by locking the byte of
    that number in a file.
    """
    return free_ports(1)[0]


def free_ports(count: int) -> range:
    """`count` consecutive ports, each reserved as by `free_port`."""
    while True:
        first = _chance.choice(PORTS)
        ports = range(first, first + count)
        if all(map(_reserve, ports)):
            return ports


def _reserve(port: int) -> bool:
    """Reserves the port for this process; False if it is reserved or in use already."""
    if port in _given:
        return False
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
    except OSError:
        return False
    _given.add(port)
    return True


@functools.cache
def _claims() -> int:
    """Open until the process ends: closing it would release all locks."""
    path = Path(tempfile.gettempdir()) / f"kctl-test-ports-{os.getuid()}.lock"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def address(bootstrap: str) -> tuple[str, int]:
    """("127.0.0.1", 9092) of "127.0.0.1:9092"."""
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def wait_until(claim: Callable[[], bool], *, what: str, timeout_s: float, interval_s: float | None = None) -> None:
    """Returns as soon as `claim` is true; raises TimeoutError naming `what` after `timeout_s`.

    Without an interval, a claim that takes long, such as a command, is called less often: it would take the processor
    from what is waited for.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        begin = time.monotonic()
        if claim():
            return
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        pause_s = min(max(SHORTEST_PAUSE_S, 3 * (now - begin)), LONGEST_PAUSE_S)
        time.sleep(pause_s if interval_s is None else interval_s)


def accepts(bootstrap: str) -> bool:
    """Whether the port accepts connections."""
    try:
        with socket.create_connection(address(bootstrap), timeout=1):
            return True
    except OSError:
        return False


def responds_to_api_versions(bootstrap: str, timeout_s: float = 2.0) -> bool:
    """A broker responds to ApiVersions version 0 without an error."""
    with contextlib.suppress(*NOT_YET):
        body = _call(bootstrap, API_VERSIONS, 0, b"", timeout_s)
        return body[:2] == b"\0\0"
    return False


def has_controller(bootstrap: str, timeout_s: float = 2.0) -> bool:
    """A broker responds to Metadata version 1 and names a controller and at least one broker: topics can be created."""
    with contextlib.suppress(*NOT_YET):
        body = _call(bootstrap, METADATA, 1, struct.pack(">i", 0), timeout_s)
        brokers: int = struct.unpack_from(">i", body)[0]
        position = 4
        for _ in range(brokers):
            position = _after_string(body, position + 4) + 4  # node id, host, port
            position = _after_string(body, position)  # rack
        controller: int = struct.unpack_from(">i", body, position)[0]
        return brokers > 0 and controller >= 0
    return False


def _call(bootstrap: str, api_key: int, version: int, body: bytes, timeout_s: float) -> bytes:
    request = struct.pack(">hhih", api_key, version, CORRELATION_ID, -1) + body
    with socket.create_connection(address(bootstrap), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        response = _receive(connection, size)
    if struct.unpack_from(">i", response)[0] != CORRELATION_ID:
        raise EOFError("the answer to some other question")
    return response[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise EOFError("the connection was closed in the middle of an answer")
        received += chunk
    return bytes(received)


def _after_string(body: bytes, position: int) -> int:
    length: int = struct.unpack_from(">h", body, position)[0]
    return position + 2 + max(length, 0)
