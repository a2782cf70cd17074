"""The share session of a member with one broker, against a broker that loses sessions, connections and responses.

Goal: the broker never has reason to refuse a request, each record that was handed out is acknowledged once or its
acknowledgement is reported as failed, and what is acquired and has no record is not handed to the application.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kctl.client.application.consumer_records import decode_raw
from kctl.client.consuming.sharing.acquired import acquired_records
from kctl.client.consuming.sharing.session import (
    GAP,
    AcknowledgeType,
    OffsetRange,
    Pending,
    SessionRequest,
    ShareLimits,
    ShareSession,
    TopicIdPartition,
    acknowledge_request,
    acknowledged,
    fetch_request,
)
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.share_acknowledge import AcknowledgementBatch, ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kctl.protocol.apis.share_fetch import AcquiredRecords, ShareFetchRequest, ShareFetchResponse
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.property.examples import examples
from tests.rows import for_rows

TOPIC_ID = UUID(int=7)
PARTITIONS = [TopicIdPartition(TOPIC_ID, number) for number in range(3)]
TP = TopicPartition("orders", 0)
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
KINDS = tuple(AcknowledgeType)


class Broker:
    """The sessions of one broker with one member: checks requests as Kafka's SharePartitionManager does."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.partitions: set[TopicIdPartition] = set()
        self.held: dict[TopicIdPartition, dict[int, bool]] = {}
        """Offsets that the member holds."""
        self.next_offset = dict.fromkeys(PARTITIONS, 0)

    def handle(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> ErrorCode:
        is_fetch = isinstance(request, ShareFetchRequest)
        acknowledgements = {
            TopicIdPartition(topic.topic_id, partition.partition_index): partition.acknowledgement_batches
            for topic in request.topics
            for partition in topic.partitions
            if partition.acknowledgement_batches
        }
        if request.share_session_epoch == 0:
            assert is_fetch, "a session begins with a fetch"
            assert not acknowledgements, "a first request cannot acknowledge"
            self.lose()
            self.epoch = 0
        elif self.epoch is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        elif request.share_session_epoch not in {-1, self.epoch + 1}:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            self.epoch = request.share_session_epoch
        for partition, batches in acknowledgements.items():
            self._acknowledge(partition, batches)
        if isinstance(request, ShareFetchRequest):
            assert not request.is_renew_ack
            listed = {TopicIdPartition(one.topic_id, part.partition_index) for one in request.topics
                      for part in one.partitions}  # fmt: skip
            gone = {TopicIdPartition(one.topic_id, part) for one in request.forgotten_topics_data
                    for part in one.partitions}  # fmt: skip
            assert gone <= self.partitions
            self.partitions = (self.partitions | listed) - gone
        elif request.share_session_epoch == -1:
            self.lose()
        else:
            assert acknowledgements
        return ErrorCode.NONE

    def _acknowledge(self, partition: TopicIdPartition, batches: list[AcknowledgementBatch]) -> None:
        end = -1
        for batch in batches:
            assert end < batch.first_offset <= batch.last_offset, "ascending and apart"
            end = batch.last_offset
            (kind,) = batch.acknowledge_types
            for offset in range(batch.first_offset, batch.last_offset + 1):
                assert offset in self.held[partition], "it is held by the member"
                if kind != RENEW:
                    del self.held[partition][offset]

    def hand_out(self, count: int) -> list[tuple[TopicIdPartition, int]]:
        found = []
        for partition in sorted(self.partitions):
            for _ in range(count):
                offset = self.next_offset[partition]
                self.next_offset[partition] += 1
                self.held.setdefault(partition, {})[offset] = True
                found.append((partition, offset))
        return found

    def lose(self) -> None:
        """The session and what was acquired in it: others get these records."""
        self.epoch = None
        self.partitions.clear()
        self.held.clear()


@examples(100)
@given(st.integers(0, 1 << 32))
def test_sessions_acknowledge_each_record_once_or_report_it(seed: int) -> None:
    chance = Random(seed)
    broker, session = Broker(), ShareSession()
    held: list[tuple[TopicIdPartition, int]] = []
    handed: set[tuple[TopicIdPartition, int]] = set()
    given_back: set[tuple[TopicIdPartition, int]] = set()
    done: list[tuple[TopicIdPartition, int]] = []
    failed: list[tuple[TopicIdPartition, int]] = []

    def note(acknowledgements: Pending, into: list[tuple[TopicIdPartition, int]]) -> None:
        into += [
            (partition, offset)
            for partition, them in acknowledgements.items()
            for offset, kind in them.records.items()
            if kind is not RENEW
        ]

    def send(request: SessionRequest) -> None:
        """The broker handles the request, or not, and the response arrives, or not."""
        luck = chance.random()
        if luck < 0.03:
            broker.lose()  # The connection is lost.
            lost = session.lost()
            note(lost, failed)
            return
        if luck < 0.06:
            broker.lose()  # The session was evicted.
        message = (fetch_request(request, "g", "m", ShareLimits()) if request.fetches
                   else acknowledge_request(request, "g", "m"))  # fmt: skip
        code = broker.handle(message)
        response: ShareFetchResponse | ShareAcknowledgeResponse
        if request.fetches:
            response = ShareFetchResponse(error_code=code, responses=[], node_endpoints=[])
        else:
            response = ShareAcknowledgeResponse(error_code=code, responses=[], node_endpoints=[])
        outcomes = acknowledged(request, response)
        assert all((outcome is None) == (code is ErrorCode.NONE) for outcome in outcomes.values())
        note(request.acknowledgements, failed if code else done)
        session.completed(code)
        if code:
            note(session.lost(), failed)
            held.clear()
        elif request.fetches:
            found = broker.hand_out(chance.randrange(3))
            held.extend(found)
            handed.update(found)

    for _ in range(60):
        wanted = set(chance.sample(PARTITIONS, chance.randrange(4)))
        for place in chance.sample(held, min(len(held), chance.randrange(4))):
            kind = chance.choice(KINDS)
            session.acknowledge(*place, kind)
            if kind is not RENEW:
                held.remove(place)
                given_back.add(place)
        request = session.next_request(wanted, fetches=chance.random() < 0.7)
        if request is not None:
            assert session.next_request(wanted, fetches=True) is None, "one request at a time"
            send(request)
            if session.epoch == 0:
                held.clear()
    request = session.last_request()
    if request is not None:
        send(request)
    note(session.lost(), failed)
    assert sorted(done + failed) == sorted(given_back), f"seed {seed}"
    assert not set(done) & set(failed)
    assert given_back <= handed


def batches(*lengths: int) -> memoryview:
    """Batches of so many records each, from offset 10 on."""
    data, offset = bytearray(), 10
    for length in lengths:
        batch = bytearray(build_batch([Record(0, 1_000, None, b"%d" % number) for number in range(length)]))
        batch[:8] = offset.to_bytes(8, "big")
        data += batch
        offset += length
    return memoryview(bytes(data))


def damaged(data: memoryview) -> memoryview:
    """The last byte is another one."""
    return memoryview(bytes(data[:-1]) + bytes([data[-1] ^ 1]))


def acquired(*ranges: tuple[int, int, int]) -> list[AcquiredRecords]:
    return [AcquiredRecords(first_offset=one, last_offset=two, delivery_count=count) for one, two, count in ranges]


@for_rows(
    "name, data, ranges, records, rest",
    [
        ("all of a batch", batches(3), acquired((10, 12, 1)), [(10, 1), (11, 1), (12, 1)], []),
        ("records of others between", batches(4), acquired((10, 10, 1), (12, 12, 2)), [(10, 1), (12, 2)], []),
        ("a gap before and within", batches(2), acquired((5, 11, 1)), [(10, 1), (11, 1)], [(5, 9, GAP)]),
        ("more than there is", batches(2), acquired((10, 14, 1)), [(10, 1), (11, 1)], [(12, 14, RELEASE)]),
        ("an incomplete batch", batches(1, 3)[:-5], acquired((10, 13, 1)), [(10, 1)], [(11, 13, RELEASE)]),
        ("a damaged batch", damaged(batches(2, 2)), acquired((10, 13, 3)), [(10, 3), (11, 3)], [(12, 13, RELEASE)]),
        ("a huge range", batches(1), acquired((10, 1 << 62, 1)), [(10, 1)], [(11, 1 << 62, RELEASE)]),
        ("nothing", memoryview(b""), acquired((10, 11, 1)), [], [(10, 11, RELEASE)]),
    ],
)
def test_acquired_records_are_given_out_and_all_other_offsets_are_acknowledged(
    name: str,
    data: memoryview,
    ranges: list[AcquiredRecords],
    records: list[tuple[int, int]],
    rest: list[tuple[int, int, int]],
) -> None:
    found = acquired_records(TP, data, ranges, decode_raw)
    assert [(record.offset, count) for record, count in found.records] == records
    assert found.ranges == [OffsetRange(*range_) for range_ in rest]
    assert (found.damage is not None) == ("damaged" in name)
