"""Requests to one broker, whichever broker leads: what a client does that has stale metadata."""

from __future__ import annotations

import socket
from typing import NamedTuple, Self

from kctl.client.connections.framing import SIZE, request_frame, response_of
from kctl.errors import ErrorCode
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.peers import probe

PRODUCE_VERSION, FETCH_VERSION = 7, 11
ALL_IN_SYNC = -1


class Appended(NamedTuple):
    """The response to a record."""

    error: ErrorCode
    offset: int


class OneBroker:
    """A connection to a broker, for requests about one partition.  Its methods raise OSError, EOFError."""

    def __init__(self, address: str, *, timeout_s: float = 60) -> None:
        self._socket = socket.create_connection(probe.address(address), timeout=timeout_s)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def send_record(self, topic: str, value: bytes, *, partition: int = 0, timeout_ms: int = 30_000) -> None:
        """Sends a record with acks=all; see `appended`."""
        batch = build_batch([Record(0, 1, None, value)])
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])]
        self._send(ProduceRequest(acks=ALL_IN_SYNC, timeout_ms=timeout_ms, topic_data=data), PRODUCE_VERSION)

    def appended(self) -> Appended:
        """The response to a record that was sent."""
        result = response_of(self._receive(), ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses[0]
        return Appended(ErrorCode.of(result.error_code), result.base_offset)

    def append(self, topic: str, value: bytes, *, partition: int = 0, timeout_ms: int = 30_000) -> Appended:
        """Sends a record with acks=all, and waits for the response."""
        self.send_record(topic, value, partition=partition, timeout_ms=timeout_ms)
        return self.appended()

    def read_error(self, topic: str) -> ErrorCode:
        """The error of a consumer's fetch from the start of the log."""
        partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=partitions)])
        self._send(request, FETCH_VERSION)
        response = response_of(self._receive(), FetchResponse, FETCH_VERSION)
        return ErrorCode.of(response.responses[0].partitions[0].error_code)

    def _send(self, request: object, version: int) -> None:
        self._socket.sendall(b"".join(request_frame(request, version, correlation_id=1, client_id="one-broker")))

    def _receive(self) -> memoryview:
        (size,) = SIZE.unpack(self._read(SIZE.size))
        return memoryview(self._read(size))

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise EOFError("the broker closed the connection")
        return data
