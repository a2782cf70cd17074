"""Malformed input closes at most its own connection; the broker keeps serving and does not grow."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.protocol import codec
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers.kctl_broker import KctlBroker

FRAMES = 10_000
GROWTH_MAX_BYTES = 16 << 20
API_VERSIONS = encode_request_header(RequestHeader(18, 0, 1, "x"))


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def connected(broker: KctlBroker) -> socket.socket:
    host, _, port = broker.bootstrap.partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def exchange(sock: socket.socket, payload: bytes) -> bytes:
    """The response to one frame, empty if the broker closed the connection instead."""
    sock.sendall(framed(payload))
    return read_frame(sock)


def read_frame(sock: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        try:
            more = sock.recv(1 << 16)
        except ConnectionResetError:
            return b""
        if not more:
            return b""
        data += more
    return data[4:]


def serves(broker: KctlBroker) -> bool:
    with connected(broker) as sock:
        return len(exchange(sock, API_VERSIONS)) > 100


def resident_bytes(broker: KctlBroker) -> int:
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * 4096


def bad_frames(seed: int) -> Iterator[bytes]:
    """Random bytes; headers of real APIs followed by random bytes; real requests truncated, extended or with changed
    bytes.
    """
    rng = random.Random(seed)
    batch = build_batch([Record(0, 0, b"k", b"v" * 100)])
    sound = encode_request_header(RequestHeader(0, 7, 1, "x")) + codec.encode_bytes(produce("bad-input", batch), 7)
    while True:
        kind = rng.randrange(4)
        if kind == 0:
            yield rng.randbytes(rng.randrange(200))
        elif kind == 1:
            yield struct.pack(">hhih", rng.randrange(70), rng.randrange(12), 1, -1) + rng.randbytes(rng.randrange(100))
        elif kind == 2:
            yield sound[: rng.randrange(len(sound))]
        else:
            damaged = bytearray(sound)
            for _ in range(rng.randrange(1, 5)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            yield bytes(damaged)


def produce(topic: str, batch: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(struct.pack(">i", 1 << 30) + b"x" * 100, id="larger than socket.request.max.bytes"),
        pytest.param(struct.pack(">i", -5), id="negative length"),
        pytest.param(framed(struct.pack(">hhih", 9999, 0, 1, -1)), id="unknown API"),
        pytest.param(framed(struct.pack(">hhih", 3, 99, 1, -1)), id="unknown version"),
        pytest.param(framed(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 1 << 30)), id="absurd count"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
    ],
)
def test_closes_only_that_connection_and_logs_one_line(broker: KctlBroker, raw: bytes) -> None:
    lines_before = broker.log_text.count("closing connection")
    with connected(broker) as other, connected(broker) as bad:
        bad.sendall(raw)
        assert read_frame(bad) == b""
        assert len(exchange(other, API_VERSIONS)) > 100
    assert broker.log_text.count("closing connection") == lines_before + 1
    assert "Traceback" not in broker.log_text


def test_a_corrupt_batch_is_refused_and_nothing_of_it_is_written(broker: KctlBroker) -> None:
    sound = build_batch([Record(0, 0, b"k", b"v")])
    corrupt = sound[:-1] + bytes([sound[-1] ^ 1])
    header = encode_request_header(RequestHeader(0, 7, 1, "x"))
    with connected(broker) as sock:
        ensure_topic(sock, "corrupt")
        codes = []
        for batch in (corrupt, sound):
            reply = exchange(sock, header + codec.encode_bytes(produce("corrupt", batch), 7))
            response, _ = codec.decode(ProduceResponse, reply, 7, 4)
            partition = response.responses[0].partition_responses[0]
            codes.append((partition.error_code, partition.base_offset))
    assert codes == [(2, -1), (0, 0)]


def ensure_topic(sock: socket.socket, name: str) -> None:
    """Auto-creation by Metadata version 1: repeated until the topic has a leader."""
    requested = struct.pack(">i", 1) + struct.pack(">h", len(name)) + name.encode()
    while name.encode() not in (reply := exchange(sock, struct.pack(">hhih", 3, 1, 1, -1) + requested)) or (
        struct.pack(">hh", 5, len(name)) + name.encode() in reply
    ):
        continue


def test_ten_thousand_malformed_frames_neither_stop_the_broker_nor_increase_its_memory(broker: KctlBroker) -> None:
    frames = bad_frames(seed=20260101)
    with connected(broker) as sock:
        ensure_topic(sock, "bad-input")
    before = 0
    for number in range(FRAMES):
        if number == FRAMES // 10:
            before = resident_bytes(broker)
        # A connection for each: after a frame that closes it, no other would be read.
        with connected(broker) as sock, contextlib.suppress(OSError):
            sock.sendall(framed(next(frames)))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                continue
    assert serves(broker)
    assert resident_bytes(broker) - before < GROWTH_MAX_BYTES
    assert "Traceback" not in broker.log_text
