"""Clients that write and read during the faults and report lost, duplicated or reordered records.

Each runs in its own thread from `start` to `end`.  `complaints` describes what went wrong.
"""

from __future__ import annotations

import itertools
import json
import logging
import subprocess
import threading
import time
import traceback
from collections import defaultdict, deque
from pathlib import Path
from typing import IO, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, java_command
from tests.peers.probe import wait_until

Position = tuple[int, int]
"""Partition and offset."""

CLIENT = {
    "log_level": 0,  # they log much about unreachable brokers
    "reconnect.backoff.max.ms": 500,
    "socket.connection.setup.timeout.ms": 3000,
    "topic.metadata.refresh.interval.ms": 1000,
}
FOR_EVER_MS = 2**31 - 1
POLL_S = 0.1
GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
"""Errors of a consumer whose position is beyond the end of the log, or in a truncated epoch."""
MOVING = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE}
"""Errors of a partition with a new leader, which librdkafka does not call retriable."""
CLOSED_DURING_SEND = "Producer closed while send in progress"
"""Kafka's producer reports this for a record that waits for metadata when it is stopped; the record was not sent."""
END_TIMEOUT_S = 120
LAST_MESSAGES_CHARS = 4000
LOG_DEBUG = 7
"""The level of syslog(3) with which librdkafka logs what its property `debug` selects."""


class WorkloadClient(threading.Thread):
    """Calls `_work` repeatedly until `end`."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.complaints: list[str] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                self._work()
            self._finish()
        except Exception as error:
            self.complaints.append(f"{self.name}: {error!r} at {traceback.format_exc()}")

    def end(self) -> None:
        """Raises AssertionError if it does not end."""
        self.is_over.set()
        self.join(END_TIMEOUT_S)
        assert not self.is_alive(), f"{self.name} does not end"

    def _work(self) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        """Runs at the end of the thread."""


class Acknowledgements:
    """The acknowledged records: the offset of each value, and the times of acknowledgements by partition."""

    def __init__(self, partitions: int) -> None:
        self.values: dict[Position, bytes] = {}
        self.placeless: list[bytes] = []
        """Acknowledged as a duplicate of a batch whose offset the broker no longer has."""
        self.times_s: dict[int, list[float]] = {partition: [] for partition in range(partitions)}

    def add(self, partition: int, offset: int | None, value: bytes) -> str | None:
        """None, or the inconsistency."""
        self.times_s[partition].append(time.monotonic())
        if offset is None or offset < 0:
            self.placeless.append(value)
            return None
        is_taken = (partition, offset) in self.values
        self.values[partition, offset] = value
        return f"two records were acknowledged at offset {offset} of partition {partition}" if is_taken else None

    def ends(self) -> dict[int, int]:
        """The offset after the last acknowledged record of each partition."""
        ends: dict[int, int] = {}
        for partition, offset in self.values.copy():
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return ends

    def counts(self) -> list[int]:
        return [len(times) for times in self.times_s.values()]

    def silence_s(self, since_s: float) -> float:
        """The longest time without an acknowledgement by a partition."""
        now_s = time.monotonic()
        longest = 0.0
        for times in self.times_s.values():
            moments = [since_s, *(moment for moment in times if moment > since_s), now_s]
            longest = max(longest, *(after - before for before, after in itertools.pairwise(moments)))
        return longest


class Librdkafka(WorkloadClient):
    """An idempotent producer that retries forever and numbers its records per partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, rate: int, log: Path | None = None) -> None:
        """`log` is a file for what librdkafka logs about its connections, leaders and producer id."""
        super().__init__("librdkafka")
        self.acknowledged = Acknowledgements(partitions)
        self.sent = [0] * partitions
        self._log_handler = logging.FileHandler(log, mode="w") if log else logging.NullHandler()
        self._log_handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger = logging.Logger("librdkafka")
        logger.addHandler(self._log_handler)
        self._errors: deque[str] = deque(maxlen=20)
        self._topic = topic
        self._pause_s = 1 / rate
        self._producer = Producer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "request.timeout.ms": 5000,
                "linger.ms": 2,
                "error_cb": self._noted,
                **({"log_level": LOG_DEBUG, "debug": "broker,metadata,eos"} if log else {}),
            },
            logger=logger,
        )

    def close(self) -> None:
        """Ends its log."""
        self._log_handler.close()

    def last_messages(self) -> str:
        """The last errors that librdkafka has reported."""
        return "\n".join(self._errors)

    def _noted(self, error: KafkaError) -> None:
        self._errors.append(f"{time.strftime('%X')} {error}")

    def _work(self) -> None:
        partition = min(range(len(self.sent)), key=self.sent.__getitem__)
        value = b"%s %d" % (self.name.encode(), self.sent[partition])
        try:
            self._producer.produce(
                self._topic, value, b"%d" % partition, partition=partition, on_delivery=self._reported
            )
            self.sent[partition] += 1
        except BufferError:
            pass  # Full until the cluster acknowledges more.
        self._producer.poll(self._pause_s)

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.complaints.append(f"{self.name} cannot deliver: {error}")
            return
        value, partition = message.value(), message.partition()
        assert value is not None
        assert partition is not None
        complaint = self.acknowledged.add(partition, message.offset(), value)
        if complaint:
            self.complaints.append(complaint)

    def _finish(self) -> None:
        left = self._producer.flush(END_TIMEOUT_S)
        if left:
            self.complaints.append(f"{self.name} has {left} records that were not acknowledged")


class Java(WorkloadClient):
    """Apache Kafka's VerifiableProducer; it numbers its records over all partitions, and the keys spread them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, folder: Path, *, rate: int) -> None:
        super().__init__("java")
        self.acknowledged = Acknowledgements(partitions)
        settings = folder / "producer.properties"
        settings.write_text(
            "enable.idempotence=true\nacks=all\nlinger.ms=2\n"
            f"retries={FOR_EVER_MS}\ndelivery.timeout.ms={FOR_EVER_MS}\nmax.block.ms={FOR_EVER_MS}\n"
            "request.timeout.ms=5000\nmetadata.max.age.ms=1000\nreconnect.backoff.max.ms=500\n"
            "socket.connection.setup.timeout.ms=3000\n"
        )
        options = ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(rate)]
        options += ["--acks", "-1", "--repeating-keys", "100", "--producer.config", str(settings)]
        self._log_path = folder / "java-producer.log"
        self._log = self._log_path.open("wb")
        self._popen = subprocess.Popen(
            java_command(LAST_WITH_ZOOKEEPER, "org.apache.kafka.tools.VerifiableProducer", options, log_level="WARN"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def last_messages(self) -> str:
        """The end of what the producer has logged."""
        return self._log_path.read_text(errors="replace")[-LAST_MESSAGES_CHARS:]

    def end(self) -> None:
        """SIGTERM: it delivers its buffered records and ends."""
        self._popen.terminate()
        super().end()

    def kill(self) -> None:
        """Leaves no process behind."""
        self._popen.kill()
        self._popen.wait()
        self._log.close()

    def run(self) -> None:
        output: IO[bytes] | None = self._popen.stdout
        assert output is not None
        with output:
            for line in output:
                try:
                    self._reported(json.loads(line))
                except ValueError:
                    self.complaints.append(f"{self.name} says {line!r}")

    def _reported(self, event: dict[str, Any]) -> None:
        if event["name"] == "producer_send_success":
            value = str(event["value"]).encode()
            complaint = self.acknowledged.add(event["partition"], event["offset"], value)
            if complaint:
                self.complaints.append(complaint)
        elif event["name"] == "producer_send_error" and event["message"] != CLOSED_DURING_SEND:
            self.complaints.append(f"{self.name} cannot deliver: {event}")


class Reader(WorkloadClient):
    """Reads all records as soon as they are visible, from the beginning, without a group."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("reader")
        self.seen: dict[Position, bytes] = {}
        self.errors: list[str] = []
        """Notes that may explain an inconsistency but are none."""
        self.next_offsets = dict.fromkeys(range(partitions), 0)
        self._consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "error",  # A log that is shorter than the consumer's position is an inconsistency.
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def _work(self) -> None:
        for message in self._consumer.consume(500, POLL_S):
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() in GONE:
                self.complaints.append(f"{self.name}: what was read is not there any more: {error}")
            else:
                self.errors.append(f"{time.strftime('%X')} {error}")

    def _take(self, message: Message) -> None:
        partition, offset, value = _parts(message)
        if offset != self.next_offsets[partition]:
            expected = self.next_offsets[partition]
            self.complaints.append(f"{self.name}: offset {offset} after {expected - 1} in partition {partition}")
        self.next_offsets[partition] = offset + 1
        self.seen[partition, offset] = value

    def _finish(self) -> None:
        self._consumer.close()


class Group:
    """The records that the members of a group have read and committed."""

    def __init__(self, partitions: int) -> None:
        self.lock = threading.Lock()
        self.next_offsets = dict.fromkeys(range(partitions), 0)
        self.committed: defaultdict[int, int] = defaultdict(int)
        self.rebalances = 0


class Member(WorkloadClient):
    """A group member that commits what it has read: no record is skipped, no commit is lost."""

    def __init__(self, bootstrap: str, topic: str, group: Group, number: int) -> None:
        super().__init__(f"member {number}")
        self._group = group
        self._assigned_at: dict[int, int] = {}
        """The committed offset when a partition was assigned, until its first record is read."""
        self._consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap,
                "group.id": "members",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 1000,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._group.lock:
            self._group.rebalances += 1
            self._assigned_at = {
                partition.partition: self._group.committed[partition.partition] for partition in partitions
            }

    def _work(self) -> None:
        positions: dict[int, int] = {}
        topic = ""
        for message in self._consumer.consume(500, POLL_S):
            if message.error() is None:
                partition, offset, _ = _parts(message)
                self._take(partition, offset)
                positions[partition] = offset + 1
                topic = str(message.topic())
        if positions:
            self._commit(topic, positions)

    def _take(self, partition: int, offset: int) -> None:
        with self._group.lock:
            committed = self._assigned_at.pop(partition, 0)
            if offset < committed:
                self.complaints.append(f"{self.name}: begins at {offset} of {partition}, committed was {committed}")
            expected = self._group.next_offsets[partition]
            if offset > expected:
                self.complaints.append(f"{self.name}: offset {offset} of {partition}: {expected} was not read")
            self._group.next_offsets[partition] = max(expected, offset + 1)

    def _commit(self, topic: str, positions: dict[int, int]) -> None:
        offsets = [TopicPartition(topic, partition, offset) for partition, offset in positions.items()]
        try:
            outcome = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return  # A rebalance, or an unavailable coordinator: try again soon.
        with self._group.lock:
            for reported in outcome or []:
                if reported.error is None:
                    committed = self._group.committed
                    committed[reported.partition] = max(reported.offset, committed[reported.partition])

    def _finish(self) -> None:
        self._consumer.close()


def _end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    """Repeats the request while the leader moves, which librdkafka does not do."""
    found: list[int] = []

    def is_found() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(partition, END_TIMEOUT_S)[1])
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in MOVING:
                raise
        return bool(found)

    wait_until(is_found, what=f"the end of {partition}", timeout_s=END_TIMEOUT_S)
    return found[0]


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[Position, bytes]:
    """All records, as read by a new consumer."""
    reader = Reader(bootstrap, topic, partitions)
    reader.start()
    consumer = Consumer({**CLIENT, "bootstrap.servers": bootstrap, "group.id": "nobody"})
    ends = {partition: _end_offset(consumer, TopicPartition(topic, partition)) for partition in range(partitions)}
    consumer.close()
    try:
        wait_until(
            lambda: bool(reader.complaints) or all(reader.next_offsets[number] >= end for number, end in ends.items()),
            what="the whole history",
            timeout_s=END_TIMEOUT_S,
        )
    finally:
        reader.end()
    assert not reader.complaints, reader.complaints
    return reader.seen


def _parts(message: Message) -> tuple[int, int, bytes]:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return partition, offset, value
