"""Compares `kctl migrate` with MirrorMaker 2: records lost and doubled, offsets of groups, time of the cut over.

    python -m benchmarks.online_migration [--runs 3] [--records 20000] [--kills 2] [--source 2.8.2]

An Apache Kafka broker with ZooKeeper is copied to Apache Kafka 4.3.1 while transactions, a quarter of them aborted, are
written to it.  The copying process is killed with SIGKILL and started again.  Groups are at the start, at the end and
at random offsets.  Then the producer stops.  The time until the last record is in the target is measured.  20 seconds
later what the target has is compared with the source, with librdkafka.

MirrorMaker 2 keeps the names of topics (IdentityReplicationPolicy), reads committed records only, and syncs the offsets
of groups every second.  "exactly once" adds exactly.once.source.support=enabled and offset.lag.max=0.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness.report import Figure, report
from tests.peers import apache_kafka, moved_cluster, probe
from tests.peers.process import Process

TARGET = apache_kafka.NEWEST_BROKER
TOPIC = moved_cluster.HISTORY
TPS = [(TOPIC, partition) for partition in range(moved_cluster.PARTITIONS)]
GROUPS = [f"group-{number}" for number in range(8)]
TIMEOUT_S = 180
SETTLE_S = 20
"""How long the copiers have for the offsets of groups after the last record."""
MIRROR_MAKER = """
clusters = source, target
source.bootstrap.servers = {source}
target.bootstrap.servers = {target}
source->target.enabled = true
target->source.enabled = false
topics = history
groups = group-.*
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
refresh.topics.interval.seconds = 5
refresh.groups.interval.seconds = 2
source.consumer.isolation.level = read_committed
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
offset.flush.interval.ms = 1000
"""
EXACTLY_ONCE = """
target.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:0
offset.lag.max = 0
"""


class Copier(NamedTuple):
    """A program that copies."""

    name: str
    command: Callable[[str, str, Path], list[str]]
    """From the addresses of both clusters and a folder for its files."""


def kctl_command(source: str, target: str, folder: Path) -> list[str]:
    plan = folder / "move.json"
    kctl = [sys.executable, "-m", "kctl", "migrate"]
    if not plan.exists():
        words = [
            "copy-plan",
            "--from-cluster",
            source,
            "--to-cluster",
            target,
            "--output",
            str(plan),
            "--topics",
            TOPIC,
        ]
        with Process("plan", [*kctl, *words], log=folder / "plan.log") as process:
            probe.wait_until(plan.exists, what=f"a plan: {process.log_text}", timeout_s=TIMEOUT_S)
    return [*kctl, "copy-start", "--plan", str(plan), "--yes", "--interval", "1s"]


def mirror_maker(more: str) -> Callable[[str, str, Path], list[str]]:
    def command(source: str, target: str, folder: Path) -> list[str]:
        settings = folder / "mm2.properties"
        settings.write_text(MIRROR_MAKER.format(source=source, target=target) + more)
        return apache_kafka.mirror_maker_command(TARGET, settings)

    return command


COPIERS = [
    Copier("kctl migrate", kctl_command),
    Copier("MirrorMaker 2", mirror_maker("")),
    Copier("MirrorMaker 2, exactly once", mirror_maker(EXACTLY_ONCE)),
]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="runs of each copier; medians are reported")
    options.add_argument("--records", type=int, default=20_000)
    options.add_argument("--kills", type=int, default=2)
    options.add_argument("--source", default=apache_kafka.OLDEST_JUDGE, help="version of the cluster to move from")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", metavar="NAME", help="measure this copier only")
    given = options.parse_args()
    samples: dict[tuple[str, str, str], list[float]] = {}
    for run in range(given.runs):
        for copier in COPIERS:
            if given.only not in {None, copier.name}:
                continue
            chance = random.Random(given.seed + run)
            for name, unit, value in measure(copier, given.source, given.records, given.kills, chance):
                samples.setdefault((copier.name, name, unit), []).append(value)
                print(f"{copier.name}: {name} {value:.1f} {unit}", file=sys.stderr)
    figures = [Figure(f"{copier}: {name}", unit, values) for (copier, name, unit), values in samples.items()]
    conditions = {"runs": given.runs, "records": given.records, "kills": given.kills, "source": given.source}
    report("online_migration", figures, **conditions)


@contextlib.contextmanager
def clusters(version: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a cluster to move from, and of one to move to."""
    with (
        apache_kafka.apache_kafka(version, folder / "source") as source,
        apache_kafka.apache_kafka(TARGET, folder / "target") as target,
    ):
        yield source, target


def measure(
    copier: Copier, version: str, records: int, kills: int, chance: random.Random
) -> Iterator[tuple[str, str, float]]:
    """Yield the figures of one run."""
    with tempfile.TemporaryDirectory() as name, clusters(version, Path(name)) as (source, target):
        folder = Path(name)
        admin = AdminClient({"bootstrap.servers": source})
        topic = NewTopic(TOPIC, moved_cluster.PARTITIONS, 1, config={"retention.ms": "-1"})
        admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        first = records // 2
        moved_cluster.write(source, chance, 0, first)
        ends = {tp: moved_cluster.end_offset(source, *tp) for tp in TPS}
        for number, group in enumerate(GROUPS):
            places = {tp: (0, end)[number] if number < 2 else chance.randrange(end) for tp, end in ends.items()}
            moved_cluster.commit(source, group, places)

        def start() -> Process:
            return Process(copier.name, copier.command(source, target, folder), log=folder / "copier.log")

        part = (records - first) // (kills + 1)
        for kill in range(kills):
            process = start()
            has_before = count(target)
            moved_cluster.write(source, chance, first + kill * part, part)
            wait_for_more(target, has_before + chance.randrange(1, part // 2), process)
            process.stop(signal.SIGKILL)
        with start():
            moved_cluster.write(source, chance, first + kills * part, part)
            end = time.monotonic()
            last = read_last(source)
            probe.wait_until(
                lambda: read_last(target) == last, what="the last records in the target", timeout_s=TIMEOUT_S
            )
            yield "the last record after", "s", time.monotonic() - end
            time.sleep(SETTLE_S)
        faults = [moved_cluster.compare(moved_cluster.read(source, *tp), moved_cluster.read(target, *tp)) for tp in TPS]
        yield "records lost", "records", sum(fault.lost for fault in faults)
        yield "records doubled", "records", sum(fault.doubled for fault in faults)
        groups = moved_cluster.compare_groups(source, target, GROUPS, TPS)
        total = len(GROUPS) * len(TPS)
        yield f"offsets of groups right (of {total})", "offsets", groups.right
        yield "offsets of groups absent", "offsets", groups.absent
        yield "records that groups read again", "records", groups.repeated
        yield "records that groups skip", "records", groups.skipped


def count(bootstrap: str) -> int:
    """The offsets of the topic."""
    return sum(moved_cluster.end_offset(bootstrap, *tp) for tp in TPS)


def wait_for_more(bootstrap: str, offsets: int, process: Process) -> None:
    probe.wait_until(
        lambda: count(bootstrap) > offsets or not process.is_running, what="records in the target", timeout_s=TIMEOUT_S
    )
    if not process.is_running:
        raise SystemExit(process.log_text[-3_000:])


def read_last(bootstrap: str) -> list[moved_cluster.Read | None]:
    """The last record of each partition."""
    last = []
    for tp in TPS:
        records = moved_cluster.read(bootstrap, *tp)
        last.append(records[max(records)] if records else None)
    return last


if __name__ == "__main__":
    main()
