"""Requests with one message each over raw sockets, with a given number in flight: what one costs a broker.

The frames are encoded once, so that the client costs little more than its system calls.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kctl.client.connections.framing import request_frame
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record

PRODUCE_VERSION, FETCH_VERSION = 7, 11
PRODUCER_ID = 1
TIMEOUT_S = 120
_SIZE = struct.Struct(">i")
PRODUCE_ERROR, FETCH_ERROR = 22, 30
"""Position of the error code of the first partition in a response: after correlation id, counts, a name of 4 bytes, and
in that to Fetch throttle time, error code and session.
"""
TOPIC_NAME_BYTES = 4


def produce_frame(topic: str, *, acks: int, size: int = 100, partitions: int = 1) -> bytes:
    """A Produce request with one message of `size` bytes for each of the first partitions of a topic whose name has 4
    letters.
    """
    assert len(topic) == TOPIC_NAME_BYTES
    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(size))])
    partition_data = [PartitionProduceData(index=index, records=batch) for index in range(partitions)]
    data = [TopicProduceData(name=topic, partition_data=partition_data)]
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data)
    return b"".join(request_frame(request, PRODUCE_VERSION, correlation_id=1, client_id="benchmark"))


def idempotent_frames(topic: str, count: int, *, size: int = 100) -> list[bytes]:
    """As `produce_frame` with acks=all, of one idempotent producer whose sequence numbers begin with 0."""
    assert len(topic) == TOPIC_NAME_BYTES
    now_ms = int(time.time() * 1000)
    frames: list[bytes] = []
    for sequence in range(count):
        batch = build_batch(
            [Record(0, now_ms, None, bytes(size))], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence
        )
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
        frames.append(b"".join(request_frame(request, PRODUCE_VERSION, correlation_id=1, client_id="benchmark")))
    return frames


def fetch_frame(topic: str) -> bytes:
    """A Fetch request for the first batch of partition 0 of a topic whose name has 4 letters, without a session."""
    assert len(topic) == TOPIC_NAME_BYTES
    return _fetch_frame(topic, wait_ms=500, bytes_max=1)


def _fetch_frame(topic: str, *, wait_ms: int, bytes_max: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=bytes_max)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, topics=topics)
    return b"".join(request_frame(request, FETCH_VERSION, correlation_id=1, client_id="benchmark"))


def send(
    address: str,
    frame: bytes | Sequence[bytes],
    *,
    count: int,
    connections: int,
    in_flight: int,
    error_at: int = PRODUCE_ERROR,
) -> float:
    """Sends the frame `count` times, with `in_flight` requests on each connection; returns the seconds it took.

    Of several frames each is sent once, in order on one connection.  Raises SystemExit when a response has an error
    code, which is at `error_at`.
    """
    with selectors.DefaultSelector() as selector:
        sockets = [connect(address) for _ in range(connections)]
        buffers = {opened: bytearray() for opened in sockets}
        started = time.perf_counter()
        sent = done = 0
        for opened in sockets:
            selector.register(opened, selectors.EVENT_READ)
            first = min(in_flight, count - sent)
            opened.sendall(_some(frame, sent, first))
            sent += first
        while done < count:
            ready = selector.select(TIMEOUT_S)
            if not ready:
                raise SystemExit(f"only {done} of {count} requests were answered")
            for key, _ in ready:
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                answered = _take_responses(sock, buffers[sock], error_at)
                done += answered
                more = min(answered, count - sent)
                if more:
                    sock.sendall(_some(frame, sent, more))
                    sent += more
        took_s = time.perf_counter() - started
        for opened in sockets:
            opened.close()
    return took_s


def _some(frame: bytes | Sequence[bytes], begin: int, count: int) -> bytes:
    return frame * count if isinstance(frame, bytes) else b"".join(frame[begin : begin + count])


@contextmanager
def long_polls(address: str, topic: str, count: int, *, wait_ms: int = 5_000) -> Iterator[None]:
    """So many consumers, each with a connection and a Fetch request that waits for records that never come."""
    frame = _fetch_frame(topic, wait_ms=wait_ms, bytes_max=1 << 20)
    sockets = [connect(address) for _ in range(count)]
    is_over = threading.Event()

    def serve() -> None:
        with selectors.DefaultSelector() as selector:
            for index, opened in enumerate(sockets):
                selector.register(opened, selectors.EVENT_READ)
                opened.sendall(frame)
                if not index % 50:
                    time.sleep(wait_ms / 1000 * 50 / count)  # Spread over the time that they wait.
            while not is_over.is_set():
                for key, _ in selector.select(0.1):
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock.recv(1 << 16):
                        sock.sendall(frame)

    thread = threading.Thread(target=serve, name="long polls")
    thread.start()
    try:
        time.sleep(wait_ms / 1000)
        yield
    finally:
        is_over.set()
        thread.join()
        for opened in sockets:
            opened.close()


def connect(address: str) -> socket.socket:
    """A connection without Nagle's algorithm."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _take_responses(sock: socket.socket, buffer: bytearray, error_at: int) -> int:
    """Receives once; returns how many responses are complete."""
    received = sock.recv(1 << 18)
    if not received:
        raise SystemExit("the broker has closed the connection")
    buffer += received
    count = position = 0
    while len(buffer) - position >= _SIZE.size:
        (size,) = _SIZE.unpack_from(buffer, position)
        end = position + _SIZE.size + size
        if len(buffer) < end:
            break
        (error,) = struct.unpack_from(">h", buffer, position + _SIZE.size + error_at)
        if error:
            raise SystemExit(f"a message was refused with error code {error}")
        position = end
        count += 1
    del buffer[:position]
    return count
