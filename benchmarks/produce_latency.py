"""Measures the latency of single messages at 1,000 per second, without batching.

    python -m benchmarks.produce_latency [--runs 5] [--seconds 5] [--bootstrap-server HOST:PORT --pid PID]

confluent-kafka, linger.ms=0, acks=all on one replica, 100 bytes; the latency is librdkafka's own, from produce() to the
acknowledgement.  Limits: two wake-ups across processors alone cost 0.05 to 0.1 ms each.
"""

from __future__ import annotations

import statistics
import time

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import parser, subject

RATE_PER_S = 1000
WARM_UP = 500


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--seconds", type=float, default=5, help="length of one run")
    chosen = options.parse_args()
    p50_ms, p99_ms = [], []
    with subject(chosen) as broker:
        librdkafka.create_topic(broker.bootstrap, "latency")
        for _ in range(chosen.runs):
            latencies_ms = measure(broker.bootstrap, "latency", count=int(chosen.seconds * RATE_PER_S))
            cuts = statistics.quantiles(latencies_ms, n=100)
            p50_ms.append(cuts[49])
            p99_ms.append(cuts[98])
        librdkafka.delete_topic(broker.bootstrap, "latency")
    figures = [Figure("produce p50 at 1,000/s", "ms", p50_ms, "< 0.6"), Figure("produce p99 at 1,000/s", "ms", p99_ms)]
    report("produce_latency", figures, rate_per_s=RATE_PER_S, runs=chosen.runs)


def measure(bootstrap: str, topic: str, *, count: int) -> list[float]:
    """The latencies of `count` messages in ms, after some that do not count."""
    latencies_ms: list[float] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"a message was not delivered: {error}")
        latencies_ms.append((message.latency() or 0.0) * 1000)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    next_s = time.perf_counter()
    for _ in range(count + WARM_UP):
        producer.produce(topic, bytes(100), on_delivery=note)
        next_s += 1 / RATE_PER_S
        while (left_s := next_s - time.perf_counter()) > 0:
            producer.poll(left_s)
    if producer.flush(30):
        raise SystemExit("not all messages were delivered")
    return latencies_ms[WARM_UP:]


if __name__ == "__main__":
    main()
