"""Requests in flight on one connection to a leader with two followers: performed and answered in their order."""

from __future__ import annotations

import random
import socket
from typing import BinaryIO

import pytest

from kctl.client.connections.framing import CORRELATION_ID, SIZE, request_frame, response_of
from kctl.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.integration.replication.conftest import TIMEOUT_S, Racks

PRODUCE_VERSION, LIST_OFFSETS_VERSION = 7, 5
REQUESTS = 200
LATEST = -1


def produce(topic: str, number: int, acks: int) -> bytes:
    batch = build_batch([Record(0, 1, None, b"%d" % number)])
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    request = ProduceRequest(acks=acks, timeout_ms=TIMEOUT_S * 1000, topic_data=data)
    return b"".join(request_frame(request, PRODUCE_VERSION, correlation_id=number, client_id="test"))


def list_offsets(topic: str, number: int) -> bytes:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])
    return b"".join(request_frame(request, LIST_OFFSETS_VERSION, correlation_id=number, client_id="test"))


def next_response(stream: BinaryIO) -> memoryview:
    (size,) = SIZE.unpack(stream.read(SIZE.size))
    return memoryview(stream.read(size))


@pytest.mark.parametrize("kinds", [("all",), ("all", "one", "none"), ("all", "all", "offsets", "one", "none")])
def test_requests_in_flight_are_answered_in_order(racks: Racks, kinds: tuple[str, ...]) -> None:
    """ListOffsets returns the high watermark: after all earlier requests with acks=all, and before later ones."""
    topic = f"in-flight-{len(kinds)}"
    racks.create(topic, 0, 1, 2)
    racks.until("all replicas are in sync", lambda: racks.partition(topic)[2] == {0, 1, 2})
    chance = random.Random(len(kinds))
    acks = {"all": -1, "one": 1, "none": 0}
    sent = [chance.choice(kinds) for _ in range(REQUESTS)]
    frames = [
        list_offsets(topic, number) if kind == "offsets" else produce(topic, number, acks[kind])
        for number, kind in enumerate(sent)
    ]
    host, _, port = racks.brokers[0].bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"".join(frames))
        end = committed = 0
        for number, kind in enumerate(sent):
            if kind == "none":
                end += 1
                continue
            frame = next_response(stream)
            assert CORRELATION_ID.unpack_from(frame) == (number,)
            if kind == "offsets":
                offset = response_of(frame, ListOffsetsResponse, LIST_OFFSETS_VERSION).topics[0].partitions[0].offset
                assert committed <= offset <= end
                continue
            result = response_of(frame, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses[0]
            assert (result.error_code, result.base_offset) == (0, end)
            end += 1
            if kind == "all":
                committed = end
    racks.until("all replicas have all records", lambda: len({racks.size(topic, broker) for broker in range(3)}) == 1)
    values = racks.run(f"consume {topic} --value-only").split()
    assert values == [str(number) for number, kind in enumerate(sent) if kind != "offsets"]
