"""Measures reading only what was committed against reading everything.

    python -m benchmarks.read_committed [--runs 5] [--transactions 500] [--messages 200]

confluent-kafka reads one partition of transactions with messages of 1 KB, one in ten aborted, from its beginning to its
end: with isolation.level read_uncommitted, and with read_committed, for which the broker returns the aborted
transactions of each piece and the client filters by.  Ratios per message that the reader was given to look at.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, parser, subject

TOPIC = "committed"
VALUE = bytes(1000)
ABORTED_ONE_IN = 10
TIMEOUT_S = 60


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--transactions", type=int, default=500)
    options.add_argument("--messages", type=int, default=200, help="per transaction")
    chosen = options.parse_args()
    everything = chosen.transactions * chosen.messages
    committed = everything - -(-chosen.transactions // ABORTED_ONE_IN) * chosen.messages
    rates: dict[str, list[float]] = {"read_uncommitted": [], "read_committed": []}
    used: dict[str, list[float]] = {"read_uncommitted": [], "read_committed": []}
    with subject(chosen) as broker:
        librdkafka.create_topic(broker.bootstrap, TOPIC)
        fill(broker.bootstrap, chosen.transactions, chosen.messages)
        for _ in range(chosen.runs):
            for isolation, expected in (("read_uncommitted", everything), ("read_committed", committed)):
                took_s, broker_s = read(broker, isolation, expected)
                rates[isolation].append(everything / took_s)
                used[isolation].append(broker_s * 1e9 / (everything * len(VALUE)))
        librdkafka.delete_topic(broker.bootstrap, TOPIC)
    pairs = zip(rates["read_committed"], rates["read_uncommitted"], strict=True)
    figures = [
        *(Figure(f"{isolation}: messages", "/s", samples) for isolation, samples in rates.items()),
        Figure("read_committed / read_uncommitted", "x", [committed_rate / other for committed_rate, other in pairs]),
        *(Figure(f"{isolation}: broker processor", "s/GB", samples) for isolation, samples in used.items()),
    ]
    report("read_committed", figures, runs=chosen.runs, transactions=chosen.transactions, messages=chosen.messages)


def fill(bootstrap: str, transactions: int, messages: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "benchmark"})
    producer.init_transactions(TIMEOUT_S)
    for number in range(transactions):
        producer.begin_transaction()
        for _ in range(messages):
            producer.produce(TOPIC, VALUE, partition=0)
        if number % ABORTED_ONE_IN:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)  # Aborting throws away what was not sent yet.
            producer.abort_transaction(TIMEOUT_S)


def read(broker: Subject, isolation: str, expected: int) -> tuple[float, float]:
    """Seconds from the first message to the last of `expected`, and seconds of the broker's processor."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    count = len(consumer.consume(1, TIMEOUT_S))
    started, used = time.perf_counter(), broker.cpu_s()
    while count < expected:
        messages = consumer.consume(min(10_000, expected - count), 10)
        if not messages:
            raise SystemExit(f"only {count} of {expected} messages came with {isolation}")
        count += len(messages)
    took = time.perf_counter() - started, broker.cpu_s() - used
    consumer.close()
    return took


if __name__ == "__main__":
    main()
