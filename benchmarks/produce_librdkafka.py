"""Measures how fast librdkafka produces into one partition, and the cost to the broker.

    python -m benchmarks.produce_librdkafka [--runs 3] [--bootstrap-server HOST:PORT --pid PID]

1 KB and 100 B messages, acks=1, the client's own batching.  Limits: the client needs 1.3 processor seconds per GB at
1 KB and 5 at 100 B, so one core of it saturates near 750 MB/s and 2 million messages per second.
"""

from __future__ import annotations

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, parser, subject

SIZES = {"1 KB": (1024, 1_000_000), "100 B": (100, 3_000_000)}
GOALS = {
    ("1 KB", "MB/s"): ">= 400",
    ("1 KB", "broker CPU s/GB"): "<= 0.9",
    ("100 B", "million messages/s"): ">= 1.2",
}


def main() -> None:
    options = parser(__doc__, runs=3).parse_args()
    samples: dict[tuple[str, str], list[float]] = {}
    with subject(options) as broker:
        for run in range(options.runs):
            for name, (size, count) in SIZES.items():
                for unit, value in measure(broker, f"produce-{size}-{run}", size=size, count=count).items():
                    samples.setdefault((name, unit), []).append(value)
    figures = [
        Figure(f"produce {name}", unit, values, GOALS.get((name, unit), "")) for (name, unit), values in samples.items()
    ]
    report("produce_librdkafka", figures, client=librdkafka.client_name(), runs=options.runs)


def measure(broker: Subject, topic: str, *, size: int, count: int) -> dict[str, float]:
    """One run into a topic of its own, which is deleted again."""
    librdkafka.create_topic(broker.bootstrap, topic)
    cpu_before_s = broker.cpu_s()
    took_s = librdkafka.produce(broker.bootstrap, topic, count=count, size=size)
    cpu_s = broker.cpu_s() - cpu_before_s
    librdkafka.delete_topic(broker.bootstrap, topic)
    gigabytes = size * count / 1e9
    return {
        "MB/s": gigabytes * 1000 / took_s,
        "million messages/s": count / took_s / 1e6,
        "broker CPU s/GB": cpu_s / gigabytes,
    }


if __name__ == "__main__":
    main()
