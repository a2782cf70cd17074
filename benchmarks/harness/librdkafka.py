"""librdkafka as the load: its own rdkafka_performance where there is one, else confluent-kafka from Python.

The program measures better, because Python costs more per message than the broker does: name it by the environment
variable RDKAFKA_PERFORMANCE, or have it on the PATH.  Both report the time from the first to the last message.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 300
PRODUCED = re.compile(r"(\d+) delivered \(offset -?\d+, 0 failed\) in (\d+)ms")
CONSUMED = re.compile(r"% (\d+) messages \((\d+) bytes\) consumed in (\d+)ms")
BATCH = 1000
NO_SETTINGS: Mapping[str, str] = {}
"""`settings` are more properties of the client, for TLS for example."""


def performance_program() -> str | None:
    """The path of rdkafka_performance, or None."""
    return os.environ.get("RDKAFKA_PERFORMANCE") or shutil.which("rdkafka_performance")


def client_name() -> str:
    """Who produces and consumes here, for the report."""
    return "rdkafka_performance" if performance_program() else "confluent-kafka from Python"


def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    admin.delete_topics([topic])[topic].result(30)


def produce(
    bootstrap: str,
    topic: str,
    *,
    count: int,
    size: int,
    acks: int = 1,
    per_second: int | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> float:
    """Sends `count` messages of `size` bytes to partition 0; returns the seconds until all were acknowledged.

    With `per_second` at most so many messages each second, and from Python: the program pauses after each message for
    whole microseconds, which is no rate that one could name.
    """
    program = performance_program()
    if program and per_second is None:
        output = _run(
            [
                *(program, "-P", "-t", topic, "-p", "0", "-b", bootstrap, "-q", "-X", "broker.address.family=v4"),
                *("-s", str(size), "-c", str(count), "-a", str(acks), "-X", "linger.ms=5"),
                *_options(settings),
            ]
        )
        match = PRODUCED.search(output)
        if match is None or int(match[1]) != count:
            raise SystemExit(f"not all of {count} messages were delivered:\n{output[-1000:]}")
        return int(match[2]) / 1000
    return _produce_from_python(
        {"bootstrap.servers": bootstrap, **settings}, topic, count=count, size=size, acks=acks, per_second=per_second
    )


def consume(bootstrap: str, topic: str, *, count: int, settings: Mapping[str, str] = NO_SETTINGS) -> float:
    """Reads partition 0 from its beginning to its end, `count` messages; returns the seconds it took."""
    if program := performance_program():
        output = _run(
            [
                *(program, "-C", "-t", topic, "-p", "0", "-b", bootstrap, "-q", "-X", "broker.address.family=v4"),
                *("-o", "beginning", "-e"),
                *_options(settings),
            ]
        )
        match = CONSUMED.search(output)
        if match is None or int(match[1]) < count:
            raise SystemExit(f"not all of {count} messages were read:\n{output[-1000:]}")
        return int(match[3]) / 1000
    return _consume_from_python({"bootstrap.servers": bootstrap, **settings}, topic, count=count)


def _options(settings: Mapping[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]


def _run(command: list[str]) -> str:
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    if finished.returncode != 0:
        raise SystemExit(
            f"{command[0]} ended with {finished.returncode}:\n{(finished.stdout + finished.stderr)[-1000:]}"
        )
    return finished.stdout + finished.stderr


def _produce_from_python(
    common: Mapping[str, str], topic: str, *, count: int, size: int, acks: int, per_second: int | None
) -> float:
    producer = Producer({**common, "acks": acks, "queue.buffering.max.messages": 500_000})
    producer.list_topics(topic, timeout=30)
    messages = [{"value": bytes(size)}] * BATCH
    started = time.perf_counter()
    sent = 0
    while sent < count:
        sent += producer.produce_batch(topic, messages[: count - sent], partition=0)
        producer.poll(0)
        if per_second is not None:
            time.sleep(max(sent / per_second - (time.perf_counter() - started), 0))
    if producer.flush(TIMEOUT_S):
        raise SystemExit(f"not all of {count} messages were delivered")
    return time.perf_counter() - started


def _consume_from_python(common: Mapping[str, str], topic: str, *, count: int) -> float:
    # librdkafka pauses for a second by default whenever it is ahead of the application.
    queue = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1}
    consumer = Consumer({**common, **queue, "group.id": "benchmark", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = len(consumer.consume(1, TIMEOUT_S))
    started = time.perf_counter()
    while read < count:
        messages = consumer.consume(min(BATCH * 10, count - read), 10)
        if not messages:
            raise SystemExit(f"only {read} of {count} messages came")
        read += len(messages)
    took_s = time.perf_counter() - started
    consumer.close()
    return took_s
