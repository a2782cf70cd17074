"""Measures how fast librdkafka produces and consumes over TLS 1.3, and the cost to the broker.

    python -m benchmarks.tls [--runs 3] [--no-kafka]

1 KB messages, one partition, acks=1; kctl and Apache Kafka with a compiler and memory as it recommends, in turns, each
over TLS and over plaintext.  The client encrypts too: it is the limit where it is alone on a processor.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import librdkafka
from benchmarks.harness.apache import JVM_FLAGS
from benchmarks.harness.broker import kctl_broker
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, parser, pin
from tests.peers import probe
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, apache_kafka_process
from tests.peers.certificates import PASSWORD, CertificateAuthority

SIZE, COUNT = 1024, 500_000
GOALS = {"MB/s": ">= 1.0", "CPU s/GB": "<= 0.8"}


@dataclass(frozen=True, slots=True)
class Brokers:
    """One broker, with the bootstrap address of each of its listeners."""

    name: str
    subject: Subject
    addresses: Mapping[str, str]


def main() -> None:
    options = parser(__doc__, runs=3)
    options.add_argument("--no-kafka", action="store_true", help="measure kctl only")
    given = options.parse_args()
    samples: dict[tuple[str, str, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="kctl-bench-") as folder:
        authority = CertificateAuthority.create(Path(folder))
        with contextlib.ExitStack() as stack:
            brokers = [stack.enter_context(kctl_subject(Path(folder), authority))]
            if not given.no_kafka:
                brokers.append(stack.enter_context(kafka_subject(Path(folder), authority)))
            if not given.no_pin:
                pin(*(broker.subject.pid for broker in brokers))
            # In turns, because the machine may not be as quiet later as it is now.
            for run in range(given.runs + 1):
                for broker in brokers:
                    for protocol in broker.addresses:
                        for key, value in measure(broker, protocol, authority, f"{protocol}-{run}").items():
                            if run:  # The first one warms up caches and compilers.
                                samples.setdefault((broker.name, protocol, *key), []).append(value)
    figures = [
        Figure(f"{work} {protocol}, {name}", unit, values) for (name, protocol, work, unit), values in samples.items()
    ]
    figures += [
        Figure(
            f"{work} {protocol}, kctl / Kafka",
            unit,
            [_ratio(values, samples["kafka", protocol, work, unit])],
            GOALS[unit],
        )
        for (name, protocol, work, unit), values in samples.items()
        if name == "kctl" and not given.no_kafka and protocol == "ssl"
    ]
    report("tls", figures, client=librdkafka.client_name(), runs=given.runs, kafka=LAST_WITH_ZOOKEEPER)


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return Figure("", "", ours).median / Figure("", "", theirs).median


def measure(
    broker: Brokers, protocol: str, authority: CertificateAuthority, topic: str
) -> dict[tuple[str, str], float]:
    """Writes a topic and reads it."""
    settings = {} if protocol == "plaintext" else {"security.protocol": "ssl", "ssl.ca.location": str(authority.pem)}
    bootstrap = broker.addresses[protocol]
    gigabytes = SIZE * COUNT / 1e9
    librdkafka.create_topic(broker.addresses["plaintext"], topic)
    figures = {}
    for work in ("produce", "consume"):
        before_s = broker.subject.cpu_s()
        if work == "produce":
            took_s = librdkafka.produce(bootstrap, topic, count=COUNT, size=SIZE, settings=settings)
        else:
            took_s = librdkafka.consume(bootstrap, topic, count=COUNT, settings=settings)
        figures[work, "MB/s"] = gigabytes * 1000 / took_s
        figures[work, "CPU s/GB"] = (broker.subject.cpu_s() - before_s) / gigabytes
    librdkafka.delete_topic(broker.addresses["plaintext"], topic)
    return figures


def _listeners(authority: CertificateAuthority) -> tuple[dict[str, str], dict[str, str], int]:
    """Properties, addresses, and the port without TLS."""
    plain, secure = probe.free_port(), probe.free_port()
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secure}",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(authority.issue("server").pkcs12),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.enabled.protocols": "TLSv1.3",
    }
    return properties, {"plaintext": f"127.0.0.1:{plain}", "ssl": f"127.0.0.1:{secure}"}, plain


@contextlib.contextmanager
def kctl_subject(folder: Path, authority: CertificateAuthority) -> Iterator[Brokers]:
    properties, addresses, port = _listeners(authority)
    with kctl_broker(folder / "kctl", properties=properties, port=port) as broker:
        yield Brokers("kctl", Subject(addresses["plaintext"], broker.pid), addresses)


@contextlib.contextmanager
def kafka_subject(folder: Path, authority: CertificateAuthority) -> Iterator[Brokers]:
    properties, addresses, port = _listeners(authority)
    with apache_kafka_process(
        LAST_WITH_ZOOKEEPER, folder / "kafka", port=port, properties=properties, jvm_flags=JVM_FLAGS
    ) as (_, process):
        yield Brokers("kafka", Subject(addresses["plaintext"], process.pid), addresses)


if __name__ == "__main__":
    main()
