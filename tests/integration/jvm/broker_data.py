"""Every kind of data that a broker stores for its clients: written through one broker, checked through the next.

topic       what is special about it
codecs      one partition for each codec, several segments each, timestamps to look up
compacted   one value per key is left, and the last word about one key is that it is gone
many        many partitions with a record each
old         message.format.version=0.10.0
trimmed     its first records have been deleted
exact       batches of one idempotent producer, of which the last is sent once more
deals       transactions that were committed, aborted, and left open by a producer that died
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.client.connections.blocking_transport import BlockingConnection, BlockingTransport, run_blocking
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.integration.transactions.writing import TIMEOUT_S, producer, transact, write
from tests.peers.probe import address, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS_BEFORE_2_1 = ("none", "gzip", "snappy", "lz4", "none")
"""Without zstd (KIP-110)."""
MANY = 30
KEYS = 10
UPDATES = 300
BATCHES = 3
"""The idempotent producer's records in each round."""
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (len(CODECS), {}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "4096"}),
    "many": (MANY, {}),
    "old": (1, {"message.format.version": "0.10.0"}),
    "trimmed": (1, {}),
    "exact": (1, {}),
    "deals": (2, {}),
}
PROPERTIES = {
    # Small enough that a few hundred records fill some segments and add some index entries.
    "log.segment.bytes": "16384",
    "log.index.interval.bytes": "1024",
    "log.cleaner.backoff.ms": "100",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
GROUP = "readers"
GONE = b"gone"

Entry = tuple[bytes | None, bytes | None]
TopicPartitionName = tuple[str, int]


class BrokerData:
    """The records written so far; `write` adds some of each kind, `check` verifies all of them."""

    def __init__(self, *, deletes_records: bool, codecs: Sequence[str] = CODECS) -> None:
        """Deleted records may reappear after a kill: brokers write log start offsets periodically."""
        self._deletes_records = deletes_records
        self._codecs = codecs
        self._rounds = 0
        self._entries: dict[TopicPartitionName, list[Entry]] = defaultdict(list)
        self._latest: dict[bytes | None, bytes | None] = {}
        self._first_time_ms = int(time.time() * 1000) - 3_600_000
        self._records_with_time = 0
        self._start_of_trimmed = 0
        self._producer = (-1, -1)
        self._last_batch: tuple[bytes, int] | None = None
        self._committed: set[bytes | None] = set()
        self._undecided: set[bytes] = set()
        self._never: set[bytes | None] = set()
        """Values of aborted transactions."""
        self._offsets: dict[int, tuple[int, str]] = {}

    def create(self, bootstrap: str) -> None:
        """The topics, empty."""
        admin = AdminClient(_common(bootstrap))
        topics = [NewTopic(name, partitions, 1, config=config) for name, (partitions, config) in TOPICS.items()]
        for created in admin.create_topics(topics).values():
            created.result(TIMEOUT_S)
        self.wait_for_leaders(bootstrap)

    def wait_for_leaders(self, bootstrap: str) -> None:
        """Waits until all partitions have a leader."""
        admin = AdminClient(_common(bootstrap))

        def all_have_leaders() -> bool:
            topics = admin.list_topics(timeout=TIMEOUT_S).topics
            return all(
                name in topics
                and len(topics[name].partitions) == partitions
                and all(partition.leader >= 0 for partition in topics[name].partitions.values())
                for name, (partitions, _) in TOPICS.items()
            )

        wait_until(all_have_leaders, what="leaders of all partitions", timeout_s=2 * TIMEOUT_S)

    def write(self, bootstrap: str, *, waits_for_compaction: bool = True) -> None:
        """Writes some records of every kind, all of them acknowledged.

        From Kafka 4.0 on segments have at least a megabyte, and the active one is not compacted.
        """
        self._rounds += 1
        self._write_codecs(bootstrap)
        self._write_compacted(bootstrap, waits=waits_for_compaction)
        self._write("many", bootstrap, ((index, b"k", b"%d in %d" % (self._rounds, index)) for index in range(MANY)))
        for codec in ("none", "gzip"):
            records = ((0, b"k%d" % number, _value(number)) for number in range(100))
            self._write("old", bootstrap, records, codec=codec)
        self._trim(bootstrap)
        self._write_exactly(bootstrap)
        self._make_deals(bootstrap)
        self._commit_offsets(bootstrap)

    def check(self, bootstrap: str) -> None:
        """All records are there: none is lost, changed, duplicated or out of order."""
        self.wait_for_leaders(bootstrap)
        self._check_duplicate(bootstrap)
        found = _read(bootstrap, *TOPICS)
        self._check_entries(found)
        self._check_deals(bootstrap, found)
        self._check_times(bootstrap)
        self._check_offsets(bootstrap)

    # Plain records

    def _write_codecs(self, bootstrap: str) -> None:
        for partition, codec in enumerate(self._codecs):
            records = [
                (partition, None if number % 50 == 0 else b"key %d" % number, _value(number)) for number in range(300)
            ]
            self._write("codecs", bootstrap, records, codec=codec, with_times=True)
        self._records_with_time += 300

    def _write(
        self,
        topic: str,
        bootstrap: str,
        records: Iterable[tuple[int, bytes | None, bytes | None]],
        *,
        codec: str = "none",
        with_times: bool = False,
    ) -> None:
        settings: dict[str, object] = {"compression.type": codec, "batch.num.messages": 10, "linger.ms": 5}
        # librdkafka takes half a second to become idempotent, so only one of these writers is.
        settings |= {"enable.idempotence": True} if topic == "many" else {"max.in.flight": 1}
        failures: list[KafkaError] = []
        made = Producer({**_common(bootstrap), **settings})
        for number, (partition, key, value) in enumerate(records):
            made.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
                timestamp=self._time_ms(self._records_with_time + number) if with_times else 0,
                headers=[("number", b"%d" % number), ("null", None)]
                if topic != "old"
                else None,  # The old formats have no headers.
            )
            self._entries[topic, partition].append((key, value))
        assert made.flush(TIMEOUT_S) == 0
        assert not failures, failures[0]

    def _time_ms(self, number: int) -> int:
        return self._first_time_ms + 1000 * number

    def _write_compacted(self, bootstrap: str, *, waits: bool) -> None:
        updates: list[tuple[int, bytes | None, bytes | None]] = [(0, GONE, b"soon")]
        updates += ((0, b"key %d" % (number % KEYS), _value(number)) for number in range(UPDATES))
        updates += [(0, GONE, None), (0, b"key 0", b"last of round %d" % self._rounds)]
        self._write("compacted", bootstrap, updates)
        self._latest.update((key, value) for _, key, value in updates)
        written = len(self._entries.pop(("compacted", 0)))
        assert written > UPDATES
        if not waits:
            return
        wait_until(
            lambda: len(_read(bootstrap, "compacted")["compacted", 0]) < UPDATES // 2,
            what="the compaction",
            timeout_s=2 * TIMEOUT_S,
        )

    def _trim(self, bootstrap: str) -> None:
        self._write("trimmed", bootstrap, ((0, b"%d" % number, _value(number)) for number in range(100)))
        if not self._deletes_records:
            return
        self._start_of_trimmed += 53
        admin = AdminClient(_common(bootstrap))
        for deleted in admin.delete_records([TopicPartition("trimmed", 0, self._start_of_trimmed)]).values():
            assert deleted.result(TIMEOUT_S).low_watermark == self._start_of_trimmed
        del self._entries["trimmed", 0][:53]

    def _check_entries(self, found: Mapping[TopicPartitionName, list[Message]]) -> None:
        for (topic, partition), entries in self._entries.items():
            messages = found[topic, partition]
            assert [(message.key(), message.value()) for message in messages] == entries, f"{topic}-{partition}"
            start = self._start_of_trimmed if topic == "trimmed" else 0
            assert [message.offset() for message in messages] == list(range(start, start + len(entries)))
        for partition in range(len(CODECS)):
            messages = found["codecs", partition]
            assert [message.timestamp()[1] for message in messages] == [
                self._time_ms(number) for number in range(self._records_with_time)
            ]
            assert messages[7].headers() == [("number", b"7"), ("null", None)]
        left = {message.key(): message.value() for message in found["compacted", 0]}
        assert left.pop(GONE, None) is None
        assert left == {key: value for key, value in self._latest.items() if key != GONE}

    def _check_times(self, bootstrap: str) -> None:
        expected = range(0, self._records_with_time, 37)
        with _consumer(bootstrap) as consumer:
            for partition in range(len(CODECS)):
                for number in expected:
                    at = TopicPartition("codecs", partition, self._time_ms(number) - 1)
                    assert consumer.offsets_for_times([at], TIMEOUT_S)[0].offset == number

    # One idempotent producer, encoded by hand, because a client would never resend an acknowledged batch.

    def _write_exactly(self, bootstrap: str) -> None:
        with _connection(bootstrap) as connection:
            if self._last_batch is None:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                given = run_blocking(connection.send(request, InitProducerIdResponse))
                assert given.error_code == 0
                self._producer = (given.producer_id, given.producer_epoch)
            for _ in range(BATCHES):
                sequence = len(self._entries["exact", 0])
                values = [b"exactly %d" % (sequence + index) for index in range(4)]
                batch = build_batch(
                    [Record(0, self._first_time_ms, b"k", value) for value in values],
                    producer_id=self._producer[0],
                    producer_epoch=self._producer[1],
                    base_sequence=sequence,
                )
                response = _produce(connection, batch)
                assert (response.error_code, response.base_offset) == (0, sequence), response
                self._last_batch = batch, response.base_offset
                self._entries["exact", 0] += ((b"k", value) for value in values)

    def _check_duplicate(self, bootstrap: str) -> None:
        """The broker responds to a resent last batch with its offset instead of appending it again."""
        assert self._last_batch is not None
        batch, offset = self._last_batch
        with _connection(bootstrap) as connection:
            response = _produce(connection, batch)
        assert (response.error_code, response.base_offset) == (0, offset), response

    # Transactions

    def _make_deals(self, bootstrap: str) -> None:
        made = producer(bootstrap, "dealer")  # This aborts the transaction that the previous instance left open.
        self._never |= self._undecided
        for number in range(3):
            values = _named(self._rounds, "committed", number)
            transact(made, "deals", values)
            self._committed |= values
            values = _named(self._rounds, "aborted", number)
            made.begin_transaction()
            write(made, "deals", values)
            made.abort_transaction(TIMEOUT_S)
            self._never |= values
        self._undecided = _named(self._rounds, "undecided", 0)
        made.begin_transaction()
        write(made, "deals", self._undecided)

    def _check_deals(self, bootstrap: str, found: Mapping[TopicPartitionName, list[Message]]) -> None:
        committed = _read(bootstrap, "deals", committed=True)
        assert _values(committed) == self._committed
        everything = self._committed | self._never | self._undecided
        assert _values({key: messages for key, messages in found.items() if key[0] == "deals"}) == everything

    # Groups

    def _commit_offsets(self, bootstrap: str) -> None:
        self._offsets = {
            partition: (100 * self._rounds + partition, f"round {self._rounds}") for partition in range(len(CODECS))
        }
        with _consumer(bootstrap) as consumer:
            offsets = [
                TopicPartition("codecs", partition, offset, metadata)
                for partition, (offset, metadata) in self._offsets.items()
            ]
            consumer.commit(offsets=offsets, asynchronous=False)

    def _check_offsets(self, bootstrap: str) -> None:
        with _consumer(bootstrap) as consumer:
            requested = [TopicPartition("codecs", partition) for partition in range(len(CODECS))]
            found = consumer.committed(requested, TIMEOUT_S)
        assert {offset.partition: (offset.offset, offset.metadata) for offset in found} == self._offsets


def _common(bootstrap: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": bootstrap, "broker.address.family": "v4", "log_level": 0}


def _value(number: int) -> bytes:
    """A value that no codec compresses well, so that segments fill up with each codec."""
    return bytes((number * 7 + byte * byte * 31) % 251 for byte in range(200))


def _named(round_number: int, fate: str, number: int) -> set[bytes]:
    return {f"{fate} {round_number}.{number}.{index}".encode() for index in range(20)}


def _values(found: Mapping[TopicPartitionName, list[Message]]) -> set[bytes | None]:
    """Checks that each of these was written once."""
    values = [message.value() for messages in found.values() for message in messages]
    assert len(set(values)) == len(values)
    return set(values)


@contextmanager
def _consumer(bootstrap: str, **settings: object) -> Iterator[Consumer]:
    consumer = Consumer({**_common(bootstrap), "group.id": GROUP, "enable.auto.commit": False, **settings})
    try:
        yield consumer
    finally:
        consumer.close()


def _read(bootstrap: str, *topics: str, committed: bool = False) -> dict[TopicPartitionName, list[Message]]:
    """The records that a reader gets of each partition, from its start to its end for that isolation level."""
    messages: dict[TopicPartitionName, list[Message]] = {
        (topic, partition): [] for topic in topics for partition in range(TOPICS[topic][0])
    }
    ended: set[TopicPartitionName] = set()
    settings = {
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "enable.partition.eof": True,
        "check.crcs": True,
    }
    with _consumer(bootstrap, **settings) as consumer:
        consumer.list_topics(timeout=TIMEOUT_S)  # Otherwise it waits a second before it refreshes its metadata.
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in messages])
        deadline = time.monotonic() + 2 * TIMEOUT_S
        while len(ended) < len(messages):
            assert time.monotonic() < deadline, f"no end of {messages.keys() - ended} in sight"
            for message in consumer.consume(1000, 0.1):
                error, topic, partition = message.error(), message.topic(), message.partition()
                assert topic is not None
                assert partition is not None
                if error is None:
                    messages[topic, partition].append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add((topic, partition))
                else:
                    raise KafkaException(error)
    return messages


@contextmanager
def _connection(bootstrap: str) -> Iterator[BlockingConnection]:
    host, port = address(bootstrap)
    transport = BlockingTransport()
    opened = run_blocking(
        transport.connect(host, port, client_id="broker-data", connect_timeout_ms=10_000, timeout_ms=30_000)
    )
    try:
        yield opened
    finally:
        run_blocking(opened.close())


def _produce(connection: BlockingConnection, batch: bytes) -> PartitionProduceResponse:
    data = TopicProduceData(name="exact", partition_data=[PartitionProduceData(index=0, records=bytearray(batch))])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    response = run_blocking(connection.send(request, ProduceResponse))
    return response.responses[0].partition_responses[0]
