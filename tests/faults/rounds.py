"""Rounds of faults on real processes, while clients write and read: `python -m tests.faults.rounds --rounds 30`.

A round is one fault, drawn by the seed: a broker or ZooKeeper is killed, halted or cut off for a while and then
restored, until all replicas are in sync again.  Every consumer must read what was acknowledged once and in order, and
the files of every replica must contain it.  `--seed N` repeats the same faults.  How long the cluster did not respond
is printed, but not checked.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.faults.cluster import BROKERS, PATIENCE_S, SESSION_TIMEOUT_S, ZOOKEEPER, Cluster, cluster, why_not
from tests.faults.workload import Group, Java, Librdkafka, Member, Reader, WorkloadClient, read_all
from tests.peers.probe import wait_until

TOPIC = "orders"
PARTITIONS = 6
RECORDS_A_SECOND = 120
PROGRESS = 5
"""Records that every partition has to acknowledge before the next fault."""
MEMBERS = 2
LINES_OF_EACH_LOG = 200
"""Printed by a run that fails."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Round:
    """One drawn fault; its target is a role, resolved when the round starts."""

    kind: str
    role: int
    """Below PARTITIONS: the leader of that partition; PARTITIONS: the controller."""
    duration_s: float

    def __str__(self) -> str:
        role = "the controller" if self.role == PARTITIONS else f"leader of {self.role}"
        return f"{self.kind} ({role}, {self.duration_s:.1f} s)"


class Story:
    """A cluster with running clients."""

    def __init__(self, struck: Cluster, folder: Path, report: Say) -> None:
        self._cluster = struck
        self._print = report
        bootstrap = struck.bootstrap
        self._librdkafka_log = folder / "librdkafka-producer.log"
        self.librdkafka = Librdkafka(bootstrap, TOPIC, PARTITIONS, rate=RECORDS_A_SECOND, log=self._librdkafka_log)
        self.java = Java(bootstrap, TOPIC, PARTITIONS, folder, rate=RECORDS_A_SECOND // 3)
        self.reader = Reader(bootstrap, TOPIC, PARTITIONS)
        self.group = Group(PARTITIONS)
        members = [Member(bootstrap, TOPIC, self.group, number) for number in range(MEMBERS)]
        self.clients: list[WorkloadClient] = [self.librdkafka, self.java, self.reader, *members]

    def begin(self) -> None:
        for client in self.clients:
            client.start()
        self.wait_for_progress()

    def play(self, drawn: Round) -> None:
        """Injects the fault, ends it, and waits until the cluster has recovered."""
        began_s = time.monotonic()
        with KINDS[drawn.kind](self._cluster, self._victim(drawn.role)) as struck:
            time.sleep(drawn.duration_s)
        self.wait_for_progress()
        self._wait_until_whole()
        self._wait_for_readers(self.librdkafka.acknowledged.ends())
        silence_s = self.librdkafka.acknowledged.silence_s(began_s)
        took_s = time.monotonic() - began_s
        self._print(f"{drawn}: {struck}; longest silence of a partition {silence_s:.1f} s, whole after {took_s:.1f} s")

    def finish(self) -> None:
        """All clients have finished, and their results are consistent.  Raises AssertionError."""
        for writer in (self.librdkafka, self.java):
            writer.end()
        history = read_all(self._cluster.bootstrap, TOPIC, PARTITIONS)
        ends = {partition: 1 + max(o for p, o in history if p == partition) for partition in range(PARTITIONS)}
        self._wait_for_readers(ends)
        self._wait_until_whole()
        for client in self.clients:
            client.end()
        self._raise_complaints()
        assert self.reader.seen == history, "who read all the while saw what is there now"
        self._check_writers(history)
        self._print(
            f"{len(history)} records, each once and in order; {self.group.rebalances} times a member of the group "
            "was assigned something"
        )

    def _check_writers(self, history: dict[tuple[int, int], bytes]) -> None:
        for writer in (self.librdkafka, self.java):
            for position, value in writer.acknowledged.values.items():
                assert history.get(position) == value, f"{value!r} was acknowledged at {position}"
            assert set(writer.acknowledged.placeless) <= set(history.values())
        for partition in range(PARTITIONS):
            values = [value for (p, _), value in sorted(history.items()) if p == partition]
            ours = [value for value in values if value.startswith(b"librdkafka")]
            assert ours == [b"librdkafka %d" % number for number in range(self.librdkafka.sent[partition])]
            theirs = [int(value) for value in values if not value.startswith(b"librdkafka")]
            assert theirs == sorted(set(theirs)), f"Java's records are each once and in order in {partition}"
        of_java = [value for value in history.values() if not value.startswith(b"librdkafka")]
        assert len(of_java) == len(set(of_java)), "Java's records are in one partition each"

    def wait_for_progress(self) -> None:
        """Waits until every partition has acknowledged further records of each writer."""
        for writer in (self.librdkafka, self.java):
            goals = [count + PROGRESS for count in writer.acknowledged.counts()]

            def has_come(writer: Librdkafka | Java = writer, goals: list[int] = goals) -> bool:
                return all(map(int.__ge__, writer.acknowledged.counts(), goals))

            try:
                self._wait(has_come, f"{PROGRESS} more records of {writer.name} in each partition")
            except TimeoutError as error:
                counts = writer.acknowledged.counts()
                raise TimeoutError(f"{error}: has {counts}, not {goals}; {writer.last_messages()}") from None

    def _wait_until_whole(self) -> None:
        self._wait(lambda: self._cluster.is_whole(TOPIC, PARTITIONS), "all replicas in sync")

    def _wait_for_readers(self, ends: dict[int, int]) -> None:
        """Waits until the reader and the group have read up to these offsets."""
        for who, positions in (("reader", self.reader.next_offsets), ("group", self.group.next_offsets)):
            try:
                self._wait(partial(_has_reached, positions, ends), f"the {who}")
            except TimeoutError as error:
                raise TimeoutError(f"{error}: is at {positions}, not {ends}; {self.reader.errors[-20:]}") from None

    def _victim(self, role: int) -> int:
        return self._cluster.controller() if role == PARTITIONS else self._cluster.leader(TOPIC, role)

    def _wait(self, claim: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            self._raise_complaints()
            return claim()

        wait_until(holds, what=what, timeout_s=PATIENCE_S, interval_s=0.1)

    def _raise_complaints(self) -> None:
        complaints = [complaint for client in self.clients for complaint in client.complaints]
        assert not complaints, complaints

    def evidence(self) -> Iterator[str]:
        """What each writer has delivered and reported, what each broker knows, and the ends of logs."""
        for writer in (self.librdkafka, self.java):
            yield f"{writer.name} has {writer.acknowledged.counts()}: {writer.last_messages()}"
        for broker_id in BROKERS:
            yield f"broker {broker_id}: leader and in-sync replicas {self._cluster.states(TOPIC, broker_id)}"
        for broker_id, broker in self._cluster.brokers.items():
            yield f"log of broker {broker_id}:\n{_end_of(broker.log_text)}"
        yield f"log of librdkafka:\n{_end_of(self._librdkafka_log.read_text(errors='replace'))}"

    def close(self) -> None:
        """Stops all processes in any state."""
        for client in self.clients:
            client.is_over.set()
        self.java.kill()
        self.librdkafka.close()


@contextmanager
def kill_broker(struck: Cluster, victim: int) -> Iterator[str]:
    """SIGKILL, and a restart before or after the session has expired."""
    struck.brokers[victim].kill9()
    yield f"broker {victim}"
    struck.brokers[victim].start()


@contextmanager
def kill_two_brokers(struck: Cluster, victim: int) -> Iterator[str]:
    """More brokers than min.insync.replicas allows: nothing is acknowledged until one is back."""
    other = (victim + 1) % len(BROKERS)
    for broker_id in (victim, other):
        struck.brokers[broker_id].kill9()
    yield f"brokers {victim} and {other}"
    for broker_id in (victim, other):
        struck.brokers[broker_id].start()


@contextmanager
def halt_broker(struck: Cluster, victim: int) -> Iterator[str]:
    """SIGSTOP, then SIGCONT: the partitions of the broker may have other leaders by then."""
    struck.halt(struck.brokers[victim].pid)
    yield f"broker {victim}"
    struck.resume(struck.brokers[victim].pid)


@contextmanager
def unplug_broker(struck: Cluster, victim: int) -> Iterator[str]:
    """The broker runs without a network."""
    struck.network.unplug(struck.host(victim))
    yield f"broker {victim}"
    struck.network.plug_in(struck.host(victim))


@contextmanager
def part_from_zookeeper(struck: Cluster, victim: int) -> Iterator[str]:
    """The broker reaches brokers and clients but not ZooKeeper: a leader whose session expires unnoticed."""
    struck.network.part(struck.host(victim), ZOOKEEPER)
    yield f"broker {victim}"
    struck.network.join(struck.host(victim), ZOOKEEPER)


@contextmanager
def part_brokers(struck: Cluster, victim: int) -> Iterator[str]:
    """Two brokers do not reach each other; ZooKeeper and clients reach both."""
    other = (victim + 1) % len(BROKERS)
    struck.network.part(struck.host(victim), struck.host(other))
    yield f"brokers {victim} and {other}"
    struck.network.join(struck.host(victim), struck.host(other))


@contextmanager
def kill_zookeeper(struck: Cluster, _victim: int) -> Iterator[str]:
    """SIGKILL, and a restart; sessions continue when ZooKeeper is back."""
    struck.zookeeper.kill9()
    yield "ZooKeeper"
    struck.zookeeper.start()


@contextmanager
def halt_zookeeper(struck: Cluster, _victim: int) -> Iterator[str]:
    """All sessions may have expired when ZooKeeper continues."""
    struck.halt(struck.zookeeper.pid)
    yield "ZooKeeper"
    struck.resume(struck.zookeeper.pid)


KINDS: dict[str, Callable[[Cluster, int], AbstractContextManager[str]]] = {
    kind.__name__: kind
    for kind in (
        kill_broker,
        halt_broker,
        unplug_broker,
        kill_zookeeper,
        halt_zookeeper,
        part_from_zookeeper,
        part_brokers,
        kill_two_brokers,
    )
}
ESSENTIAL = ("kill_broker", "halt_broker", "unplug_broker", "kill_zookeeper", "halt_zookeeper")


def drawn(seed: int, rounds: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Round]:
    """The faults of a seed: all kinds in each cycle, in a new random order."""
    chance = Random(f"{seed} rounds")
    order: list[str] = []
    for _ in range(rounds):
        if not order:
            order = chance.sample(kinds, len(kinds))
        is_short = chance.random() < 0.3
        duration_s = chance.uniform(0.3, 1.5) if is_short else SESSION_TIMEOUT_S + chance.uniform(1, 4)
        yield Round(order.pop(), chance.randrange(PARTITIONS + 1), duration_s)


@contextmanager
def story(folder: Path, report: Say) -> Iterator[tuple[Cluster, Story]]:
    """A cluster with running clients."""
    with cluster(folder) as struck:
        struck.create_topic(TOPIC, PARTITIONS)
        reported = Story(struck, folder, report)
        try:
            reported.begin()
            yield struck, reported
        except (AssertionError, TimeoutError):
            for text in reported.evidence():
                report(text)
            raise
        finally:
            reported.close()


def play(folder: Path, rounds: Sequence[Round], report: Say) -> None:
    """Runs all rounds and the final checks.  Raises AssertionError, or TimeoutError if the cluster does not recover."""
    with story(folder, report) as (struck, reported):
        for number, round_ in enumerate(rounds, 1):
            report(f"round {number}: {round_}")
            reported.play(round_)
        reported.finish()
        struck.stop()
    assert_replicas_are_equal(struck)


def assert_replicas_are_equal(stopped: Cluster) -> None:
    """The files of all replicas contain the same bytes."""
    for partition in range(PARTITIONS):
        logs = [stopped.data_dir(broker_id) / "logs" / f"{TOPIC}-{partition}" for broker_id in BROKERS]
        contents = [b"".join(path.read_bytes() for path in sorted(log.glob("*.log"))) for log in logs]
        assert contents[0], f"{logs[0]} has no records"
        assert contents[1:] == contents[:1] * 2, f"the replicas of {TOPIC}-{partition} differ"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="how many faults (default: 30)")
    parser.add_argument("--seed", type=int, help="the seed that a run printed (default: a fresh one)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which faults (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where logs and output stay (default: nowhere)")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        sys.stderr.write(f"{reason}\n")
        return 1
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 32)
    report(f"seed {seed}")
    rounds = list(drawn(seed, options.rounds, options.kinds.split(",")))
    with tempfile.TemporaryDirectory() as scratch:
        play(options.folder or Path(scratch), rounds, report)
    return 0


def _end_of(log: str) -> str:
    return "\n".join(log.splitlines()[-LINES_OF_EACH_LOG:])


def _has_reached(positions: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(positions[partition] >= end for partition, end in ends.items())


def report(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
