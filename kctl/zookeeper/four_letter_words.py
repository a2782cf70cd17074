"""Asks the servers of a connect string by a four-letter word whether they can be reached and written.

Blocking, with sockets and no session: for commands on the machine of a broker.
"""

from __future__ import annotations

import socket

from kctl.config.addresses import parse_addresses
from kctl.errors import KctlError

_PORT = 2181
_TIMEOUT_S = 1.0
_RESPONSE_BYTES_MAX = 1_024


def write_problem(connect: str) -> str | None:
    """Return why nothing can be changed there; None if no server says so.

    A server of Apache ZooKeeper may not execute the word `isro`, and one that needs TLS does not respond: then nothing
    is known.
    """
    try:
        servers = parse_addresses(connect.partition("/")[0], default_port=_PORT)
    except KctlError:
        return None
    answers = [_answer(host, port) for host, port in servers]
    if all(answer is None for answer in answers):
        return f"ZooKeeper at {connect} cannot be reached"
    if "ro" in answers and "rw" not in answers:
        return f"ZooKeeper at {connect} accepts no changes: it cannot write to its disk, which may be full"
    return None


def _answer(host: str, port: int) -> str | None:
    """Return the response to `isro`; empty without one, None without a connection."""
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as sock:
            sock.settimeout(_TIMEOUT_S)
            try:
                sock.sendall(b"isro")
                return sock.recv(_RESPONSE_BYTES_MAX).decode("ascii", "replace").strip()
            except OSError:
                return ""
    except OSError:
        return None
