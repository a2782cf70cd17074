"""Measures how fast librdkafka consumes one partition from its beginning, and the cost to the broker.

    python -m benchmarks.consume_librdkafka [--runs 3] [--bootstrap-server HOST:PORT --pid PID]

The log is in the page cache, because it was written a moment before.  The client is the limit: about 1 GB/s at 1 KB and
2 to 2.5 million messages per second at 100 B.
"""

from __future__ import annotations

from benchmarks.harness import librdkafka
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, parser, subject

SIZES = {"1 KB": (1024, 1_000_000), "100 B": (100, 3_000_000)}
GOALS = {("1 KB", "MB/s"): ">= 600", ("100 B", "million messages/s"): ">= 1.5"}


def main() -> None:
    options = parser(__doc__, runs=3).parse_args()
    samples: dict[tuple[str, str], list[float]] = {}
    with subject(options) as broker:
        for name, (size, count) in SIZES.items():
            topic = f"consume-{size}"
            librdkafka.create_topic(broker.bootstrap, topic)
            librdkafka.produce(broker.bootstrap, topic, count=count, size=size)
            for _ in range(options.runs):
                for unit, value in measure(broker, topic, size=size, count=count).items():
                    samples.setdefault((name, unit), []).append(value)
            librdkafka.delete_topic(broker.bootstrap, topic)
    figures = [
        Figure(f"consume {name}", unit, values, GOALS.get((name, unit), "")) for (name, unit), values in samples.items()
    ]
    report("consume_librdkafka", figures, client=librdkafka.client_name(), runs=options.runs)


def measure(broker: Subject, topic: str, *, size: int, count: int) -> dict[str, float]:
    """One whole reading of the topic."""
    cpu_before_s = broker.cpu_s()
    took_s = librdkafka.consume(broker.bootstrap, topic, count=count)
    cpu_s = broker.cpu_s() - cpu_before_s
    gigabytes = size * count / 1e9
    return {
        "MB/s": gigabytes * 1000 / took_s,
        "million messages/s": count / took_s / 1e6,
        "broker CPU s/GB": cpu_s / gigabytes,
    }


if __name__ == "__main__":
    main()
