"""The ApiVersions responses of Apache Kafka's brokers, in tests/golden/protocol/api_versions.txt."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from tests.peers import probe

_FILE = Path(__file__).parents[1] / "golden/protocol/api_versions.txt"


def golden_api_versions() -> list[list[str]]:
    """For each request: the version of Kafka, the version of the request, and the response in hex without its size."""
    return [line.split(" ") for line in _FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def request_api_versions(bootstrap: str, version: int) -> bytes:
    """The response of a broker to the request of the golden file, without its size."""
    header = struct.pack(">hhih", 18, version, 7, 1) + b"h"
    body = b"" if version < 3 else b"\0\x05kctl\x021\0"
    with socket.create_connection(probe.address(bootstrap), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(size, socket.MSG_WAITALL)
