"""Writes the screens of `kctl top` in docs/top.md, from a cluster of three brokers under load.

    python -m docs.capture_top

It needs tmux, and takes about half a minute.  Values and ids differ from run to run.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.peers import probe
from tests.peers.kctl_broker import kctl_broker
from tests.peers.process import Process

PAGE = Path(__file__).with_name("top.md")
START, END = "<!-- screens: written by docs/capture_top.py -->\n", "<!-- end of screens -->\n"
SIZES = ((80, 24), (200, 34))
GROUPS = ("billing ", "search-index ", "nightly-report ")
RECORDS_PER_S = 2_000
TIMEOUT_S = 120
AUDIT_AGE_S = 3_300
"""Less than the retention of an hour by so much that no record expires meanwhile."""


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="kctl-top-") as folder,
        cluster(Path(folder)) as (bootstrap, metrics),
        load(bootstrap),
    ):
        screens = [screen(bootstrap, metrics, width, height) for width, height in SIZES]
    blocks = "\n".join(
        f"{width} columns:\n\n```text\n{text}\n```\n" for (width, _), text in zip(SIZES, screens, strict=True)
    )
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    PAGE.write_text(f"{before}{START}\n{blocks}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The bootstrap address of three brokers, and the options that name their metrics."""
    port = probe.free_port()
    words = [sys.executable, "-m", "kctl", "zookeeper", "start", "--data-dir", str(folder / "zookeeper")]
    service = Process("zookeeper", [*words, "--port", str(port)], log=folder / "zookeeper.log")
    with contextlib.ExitStack() as stack:
        stack.callback(service.stop)
        service.wait_until(lambda: probe.accepts(f"127.0.0.1:{port}"), timeout_s=TIMEOUT_S)
        brokers, options = [], []
        for broker_id in range(3):
            metrics_port = probe.free_port()
            properties = {
                "broker.id": str(broker_id),
                "metrics.port": str(metrics_port),
                "default.replication.factor": "3",
                "offsets.topic.replication.factor": "3",
            }
            data = folder / f"broker-{broker_id}"
            brokers.append(stack.enter_context(kctl_broker(data, properties=properties, zookeeper=f"127.0.0.1:{port}")))
            options += ["--metrics", f"{broker_id}=127.0.0.1:{metrics_port}"]
        yield brokers[0].bootstrap, options


@contextlib.contextmanager
def load(bootstrap: str) -> Iterator[None]:
    """Producers, a group that keeps up and one that does not, until the end of the block."""
    for topic, partitions in (("orders", 6), ("payments", 3), ("clicks", 12)):
        kctl("topics", "create", topic, "--partitions", str(partitions), "--bootstrap-server", bootstrap)
    leave_behind(bootstrap)
    is_over = threading.Event()
    readers = (("billing", 1_000), ("search-index", 200))
    threads = [threading.Thread(target=produce, args=(bootstrap, is_over))]
    threads += [threading.Thread(target=consume, args=(bootstrap, is_over, *reader)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def leave_behind(bootstrap: str) -> None:
    """A group without members, whose unread records are nearly as old as the limit of their topic."""
    at = ("--bootstrap-server", bootstrap)
    kctl("topics", "create", "audit", "--partitions", "1", "--config", "retention.ms=3600000", *at)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(250):
        producer.produce("audit", b"x" * 300, timestamp=round((time.time() - AUDIT_AGE_S) * 1000))
    producer.flush(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nightly-report", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("audit", 0, 0)], asynchronous=False)
    consumer.close()


def produce(bootstrap: str, is_over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    while not is_over.wait(0.1):
        for topic, share in (("orders", 2), ("payments", 5), ("clicks", 4)):
            for _ in range(RECORDS_PER_S // 10 // share):
                producer.produce(topic, b"x" * 300)
        producer.poll(0)
    producer.flush(TIMEOUT_S)


def consume(bootstrap: str, is_over: threading.Event, group: str, records: int) -> None:
    """Reads at most `records` at a time, four times a second."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1_000,
        }
    )
    consumer.subscribe(["orders"])
    while not is_over.wait(0.25):
        consumer.consume(records, timeout=0.5)
    consumer.close()


def screen(bootstrap: str, metrics: Sequence[str], width: int, height: int) -> str:
    """What a terminal of this size shows when all values are known."""
    tmux = ["tmux", "-L", f"kctl-top-{width}", "-f", "none"]
    words = [sys.executable, "-m", "kctl", "top", "--interval", "2s", "--bootstrap-server", bootstrap, *metrics]
    subprocess.run([*tmux, "new-session", "-d", "-x", str(width), "-y", str(height), *words], check=True)
    try:
        text = ""

        def is_complete() -> bool:
            nonlocal text
            captured = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True)
            text = captured.stdout
            groups = [line.split() for line in text.splitlines() if line.startswith(GROUPS)]
            return len(groups) == len(GROUPS) and all("-" not in cells for cells in groups) and "LOSING" in text

        probe.wait_until(is_complete, what="a screen with all values", timeout_s=TIMEOUT_S, interval_s=0.5)
        return "\n".join(line.rstrip() for line in text.rstrip().splitlines())
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def kctl(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "kctl", *words], check=True, capture_output=True)


if __name__ == "__main__":
    main()
