"""ZooKeeper's client protocol by hand: any request, whole or broken, and the bytes that come back.

Blocking, one request at a time, and none of kctl's code: tests send the same requests to our server and to Apache
ZooKeeper.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.peers import probe

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC = 1, 2, 3, 4, 5, 6, 7, 8, 9
PING, GET_CHILDREN2, CHECK, MULTI, CREATE2, RECONFIG, CHECK_WATCHES, REMOVE_WATCHES = 11, 12, 13, 14, 15, 16, 17, 18
CREATE_CONTAINER, CREATE_TTL, MULTI_READ, AUTH, SET_WATCHES, SASL, GET_EPHEMERALS = 19, 21, 22, 100, 101, 102, 103
GET_ALL_CHILDREN_NUMBER, SET_WATCHES2, ADD_WATCH, WHO_AM_I, CLOSE = 104, 105, 106, 107, -11

OPEN_ACL = ((31, "world", "anyone"),)
NO_PASSWORD = bytes(16)
SESSION_TIMEOUT_MS = 40_000
"""Twenty ticks, the maximum that servers grant: these clients send no pings."""

Acl = Sequence[tuple[int, str, str]]


class Reply(NamedTuple):
    """The header's zxid and error, and the body as it came."""

    zxid: int
    error: int
    body: bytes


class Event(NamedTuple):
    """One watch event; `zxid` is that of its header."""

    type: int
    path: str
    zxid: int


class Connected(NamedTuple):
    """The response to a connect request; all zeros when there is no such session."""

    timeout_ms: int
    session_id: int
    password: bytes


class WireClient:
    """One connection with a session; watch events that came with responses gather in `events`.

    Raises EOFError or ConnectionResetError when the server closes the connection instead of answering.
    """

    def __init__(
        self,
        connect: str,
        *,
        timeout_ms: int = SESSION_TIMEOUT_MS,
        session_id: int = 0,
        password: bytes = NO_PASSWORD,
        last_zxid: int = 0,
    ) -> None:
        self.events: list[Event] = []
        self._xid = 0
        self.socket = socket.create_connection(probe.address(connect), timeout=60)
        try:
            self.send(_connect(timeout_ms, session_id, password, last_zxid))
            response = self.receive()
        except BaseException:
            self.close()
            raise
        timeout, session = struct.unpack_from(">iq", response, 4)
        self.connected = Connected(timeout, session, response[20:36])

    def call(self, op_code: int, body: bytes = b"", *, xid: int | None = None) -> Reply:
        """Raises EOFError when the server closes the connection instead."""
        if xid is None:
            self._xid += 1
            xid = self._xid
        self.send(struct.pack(">ii", xid, op_code) + body)
        while True:
            response = self.receive()
            its_xid, zxid, error = struct.unpack_from(">iqi", response)
            if its_xid == xid:
                return Reply(zxid, error, response[16:])
            assert its_xid == -1, f"an answer to {its_xid}, not to {xid}"
            kind, _state, length = struct.unpack_from(">iii", response, 16)
            self.events.append(Event(kind, response[28 : 28 + length].decode(), zxid))

    def take_events(self) -> list[Event]:
        """All events received and not yet returned; sends a ping first, whose response follows all older events."""
        self.call(PING, xid=-2)
        events, self.events = self.events, []
        return events

    def send(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def close(self) -> None:
        """Drops the connection; the session stays."""
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self.socket.recv(size - len(received))
            if not chunk:
                raise EOFError("the server closed the connection")
            received += chunk
        return bytes(received)


def end_session(connect: str, session_id: int, password: bytes) -> None:
    """Closes the session as its owner; raises EOFError when there is no such session.

    Both requests leave as one piece: the owner, who loses its connection to us, would take ours as soon as it is back.
    """
    frames = [_connect(SESSION_TIMEOUT_MS, session_id, password, 0), struct.pack(">ii", 1, CLOSE)]
    with socket.create_connection(probe.address(connect), timeout=60) as connection:
        connection.sendall(b"".join(map(buffer, frames)))
        with connection.makefile("rb") as responses:
            for _ in frames:
                (length,) = struct.unpack(">i", _whole(responses.read(4), 4))
                _whole(responses.read(length), length)


def _whole(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise EOFError("the server closed the connection")
    return data


def _connect(timeout_ms: int, session_id: int, password: bytes, last_zxid: int) -> bytes:
    return struct.pack(">iqiq", 0, last_zxid, timeout_ms, session_id) + buffer(password) + b"\0"


def buffer(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def string(text: str | None) -> bytes:
    return buffer(None if text is None else text.encode("utf-8", "surrogatepass"))


def strings(texts: Iterable[str]) -> bytes:
    listed = list(texts)
    return struct.pack(">i", len(listed)) + b"".join(map(string, listed))


def acl_list(acl: Acl | None) -> bytes:
    if acl is None:
        return struct.pack(">i", -1)
    entries = (struct.pack(">i", perms) + string(scheme) + string(identity) for perms, scheme, identity in acl)
    return struct.pack(">i", len(acl)) + b"".join(entries)


def create(path: str | None, data: bytes | None = b"", acl: Acl | None = OPEN_ACL, flags: int = 0) -> bytes:
    return string(path) + buffer(data) + acl_list(acl) + struct.pack(">i", flags)


def delete(path: str | None, version: int = -1) -> bytes:
    return string(path) + struct.pack(">i", version)


def set_data(path: str | None, data: bytes | None, version: int = -1) -> bytes:
    return string(path) + buffer(data) + struct.pack(">i", version)


def set_acl(path: str | None, acl: Acl | None, version: int = -1) -> bytes:
    return string(path) + acl_list(acl) + struct.pack(">i", version)


def check(path: str | None, version: int) -> bytes:
    return string(path) + struct.pack(">i", version)


def read(path: str | None, *, watch: bool = False) -> bytes:
    """exists, getData, getChildren and getChildren2."""
    return string(path) + (b"\1" if watch else b"\0")


def multi(operations: Iterable[tuple[int, bytes]]) -> bytes:
    parts = (struct.pack(">i?i", op_code, False, -1) + body for op_code, body in operations)
    return b"".join(parts) + struct.pack(">i?i", -1, True, -1)
