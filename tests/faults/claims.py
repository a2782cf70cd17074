"""Two brokers on two hosts claim one id: `python -m tests.faults.claims --seeds 20`.

Both have the properties of broker 0, as after cloning a machine; the folder of the second is a copy of the first one's,
or empty.  In half of the seeds they advertise one address.  In the other half there is a broker 1 as well, which can be
the controller and replicates one of the topics; it has to reach them, so that each advertises its own address.  Drawn
faults kill, start, halt and isolate both, while a client of each host writes with acks=all.  For each acknowledged
record the leader epoch is read from the files of the broker that acknowledged it: no epoch of a partition may have
records of two processes, and no record that was sent after one of a later epoch was acknowledged may be acknowledged in
an earlier one.  After each fault one of them serves.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kazoo.client import KazooClient

from kctl.errors import ErrorCode
from kctl.zookeeper.znodes import TopicAssignment, encode_topic
from tests.faults.cluster import PATIENCE_S, PORT, SESSION_TIMEOUT_S, ZOOKEEPER, ZOOKEEPER_PORT, why_not
from tests.peers import namespaces
from tests.peers.apache_zookeeper import ZooKeeperServer
from tests.peers.namespaces import Network
from tests.peers.one_broker import OneBroker
from tests.peers.probe import wait_until
from tests.peers.process import KctlProcess

FIRST, SECOND, OTHER = "first", "second", "other"
CLAIMANTS = (FIRST, SECOND)
ADVERTISED = "10.231.255.1:9092"
"""An address that no client uses: each connects to the broker of its host."""
ALONE, REPLICATED = "alone", "replicated"
FAULTS = 6
REQUEST_TIMEOUT_S = 5
BATCH = struct.Struct(">qii")
"""Base offset, length of the rest, leader epoch."""
BATCH_FIXED = 12
LINES_OF_EACH_LOG = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one claimant, and for how long."""

    kind: str
    host: str
    duration_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.host} ({self.duration_s:.1f} s)"


KINDS = ("kill", "kill_and_start_other", "halt", "halt_and_start_other", "isolate", "start_both", "halt_zookeeper")


def drawn(seed: int, count: int) -> list[Fault]:
    """The faults of a seed."""
    chance = Random(f"{seed} claims")
    order = chance.sample(KINDS, min(count, len(KINDS)))
    return [Fault(kind, chance.choice(CLAIMANTS), chance.uniform(0.5, 2 * SESSION_TIMEOUT_S)) for kind in order]


class Claimant:
    """A host and the broker on it, if one runs."""

    def __init__(self, host: str, network: Network, folder: Path, connect: str, properties: Mapping[str, str]) -> None:
        self.host = host
        self.address = f"{network.address(host)}:{PORT}"
        self.folder = folder
        self.log = folder.with_name(f"{folder.name}.output")
        words = ["broker", "start", "--data-dir", str(folder), "--zookeeper", connect]
        for name, value in {"listeners": f"PLAINTEXT://0.0.0.0:{PORT}", **properties}.items():
            words += ["-o", f"{name}={value}"]
        self._words = words
        self._network = network.file(host)
        self._process: KctlProcess | None = None

    def start(self) -> None:
        """Starts the process, if none runs; whether it may serve is not known when this returns."""
        if self._process is None or not self._process.is_running:
            self._process = KctlProcess(f"broker on {self.host}", self._words, log=self.log, network=self._network)

    def kill(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.is_running:
            os.kill(self._process.pid, number)

    def epoch_of(self, topic: str, value: bytes) -> int | None:
        """The leader epoch of the batch with this value, in the files of the broker; None if it was truncated."""
        for path in sorted((self.folder / "logs" / f"{topic}-0").glob("*.log")):
            data = path.read_bytes()
            position = 0
            while position + BATCH.size <= len(data):
                _, length, epoch = BATCH.unpack_from(data, position)
                end = position + BATCH_FIXED + length
                if value in data[position:end]:
                    return int(epoch)
                position = end
        return None


class Acknowledged:
    """The acknowledged records, and what is wrong with them."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """By host."""
        self.hosts: dict[tuple[str, int], set[str]] = {}
        """By topic and leader epoch, the hosts whose brokers have acknowledged some."""
        self._latest_sent_s: dict[tuple[str, int], float] = {}
        self._first_acknowledged_s: dict[tuple[str, int], float] = {}
        self._lock = threading.Lock()

    def add(self, topic: str, epoch: int, host: str, *, sent_s: float, acknowledged_s: float) -> None:
        key = (topic, epoch)
        with self._lock:
            self.hosts.setdefault(key, set()).add(host)
            self.counts[host] = self.counts.get(host, 0) + 1
            self._latest_sent_s[key] = max(sent_s, self._latest_sent_s.get(key, sent_s))
            self._first_acknowledged_s.setdefault(key, acknowledged_s)

    def conflicts(self) -> list[str]:
        """Leader epochs of two processes, and old leaders that acknowledged what was sent after a new one had led."""
        with self._lock:
            found = [f"{key}: {sorted(hosts)}" for key, hosts in self.hosts.items() if len(hosts) > 1]
            for (topic, epoch), sent_s in self._latest_sent_s.items():
                for (other, later), led_s in self._first_acknowledged_s.items():
                    if topic == other and epoch < later and sent_s > led_s:
                        after_s = sent_s - led_s
                        found.append(f"{topic}: epoch {epoch} {after_s:.3f} s after the first record of {later}")
        return found


class Writer(threading.Thread):
    """Writes to the broker of one host until `is_over`, whatever it responds."""

    def __init__(self, claimant: Claimant, topic: str, acknowledged: Acknowledged) -> None:
        super().__init__(daemon=True)
        self.is_over = threading.Event()
        self._claimant = claimant
        self._topic = topic
        self._acknowledged = acknowledged

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            with suppress(OSError, EOFError), OneBroker(self._claimant.address, timeout_s=REQUEST_TIMEOUT_S) as client:
                while not self.is_over.wait(0.005):
                    number += 1
                    value = b"<%s %d>" % (self._claimant.host.encode(), number)
                    sent_s = time.monotonic()
                    if client.append(self._topic, value, timeout_ms=2_000).error is not ErrorCode.NONE:
                        self.is_over.wait(0.05)
                        continue
                    acknowledged_s = time.monotonic()
                    epoch = self._claimant.epoch_of(self._topic, value)
                    if epoch is not None:
                        host = self._claimant.host
                        self._acknowledged.add(self._topic, epoch, host, sent_s=sent_s, acknowledged_s=acknowledged_s)
            self.is_over.wait(0.1)


class Scene:
    """Hosts, ZooKeeper and the folders of one seed."""

    def __init__(self, network: Network, zookeeper: ZooKeeperServer, folder: Path, *, seed: int) -> None:
        chance = Random(f"{seed} scene")
        self.network = network
        self.zookeeper = zookeeper
        self._has_other = bool(seed % 2)
        self._is_copied = chance.random() < 0.7
        common = {
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_S * 1000),
            "offsets.topic.replication.factor": "1",
            "auto.create.topics.enable": "false",
        }
        connect = self._connect = f"{zookeeper.connect}/seed-{seed}"
        with _zookeeper_client(zookeeper.connect) as client:
            client.create(f"/seed-{seed}")

        def claimant(host: str, broker_id: int) -> Claimant:
            advertised = f"{network.address(host)}:{PORT}" if self._has_other else ADVERTISED
            own = {"broker.id": str(broker_id), "advertised.listeners": f"PLAINTEXT://{advertised}"}
            return Claimant(host, network, folder / f"{seed}-{host}", connect, {**common, **own})

        self.claimants = {host: claimant(host, 0) for host in CLAIMANTS}
        self.other = claimant(OTHER, 1)
        self.acknowledged = Acknowledged()
        self.writers: list[Writer] = []

    def begin(self) -> None:
        """Starts the first claimant, with its topics and writers."""
        first, second = self.claimants[FIRST], self.claimants[SECOND]
        first.start()
        if self._has_other:
            self.other.start()
        self._create(ALONE, 0)
        if self._has_other:
            self._create(REPLICATED, 0, 1)
        if self._is_copied:
            shutil.copytree(first.folder, second.folder)
        hosts = {ALONE: [first, second], REPLICATED: [first, second, self.other] if self._has_other else []}
        self.writers = [
            Writer(claimant, topic, self.acknowledged) for topic, claimants in hosts.items() for claimant in claimants
        ]
        for writer in self.writers:
            writer.start()
        self.wait_for_progress()

    def _create(self, topic: str, *replicas: int) -> None:
        """In ZooKeeper, since clients cannot reach the controller at the advertised address."""
        data = encode_topic(TopicAssignment({0: replicas}))
        with _zookeeper_client(self._connect) as client:
            wait_until(
                lambda: (
                    client.exists("/brokers/topics") is not None
                    and set(map(str, replicas)) <= set(client.get_children("/brokers/ids"))
                ),
                what=f"the brokers of {topic}",
                timeout_s=PATIENCE_S,
            )
            client.create(f"/brokers/topics/{topic}", data)

    def strike(self, fault: Fault) -> None:
        """Injects the fault and ends it."""
        struck = self.claimants[fault.host]
        other = self.claimants[SECOND if fault.host == FIRST else FIRST]
        match fault.kind:
            case "kill" | "kill_and_start_other":
                struck.kill()
                if fault.kind != "kill":
                    other.start()
                time.sleep(fault.duration_s)
                struck.start()
            case "halt" | "halt_and_start_other":
                struck.signal(signal.SIGSTOP)
                if fault.kind != "halt":
                    other.start()
                time.sleep(fault.duration_s)
                struck.signal(signal.SIGCONT)
            case "isolate":
                self.network.part(fault.host, ZOOKEEPER)
                other.start()
                time.sleep(fault.duration_s)
                self.network.join(fault.host, ZOOKEEPER)
            case "start_both":
                other.start()
                struck.start()
                time.sleep(fault.duration_s)
            case "halt_zookeeper":
                os.kill(self.zookeeper.pid, signal.SIGSTOP)
                time.sleep(fault.duration_s)
                os.kill(self.zookeeper.pid, signal.SIGCONT)

    def wait_for_progress(self) -> None:
        """One of the claimants acknowledges records again; if none runs, the first is started."""
        before = self._claimed()

        def has_come() -> bool:
            assert not self.acknowledged.conflicts(), self.acknowledged.conflicts()
            if not any(claimant.is_running for claimant in self.claimants.values()):
                self.claimants[FIRST].start()
            return self._claimed() > before + 3

        wait_until(has_come, what="more acknowledged records", timeout_s=PATIENCE_S, interval_s=0.2)

    def _claimed(self) -> int:
        return sum(self.acknowledged.counts.get(host, 0) for host in CLAIMANTS)

    def end(self) -> None:
        """Ends all processes, in any state."""
        for writer in self.writers:
            writer.is_over.set()
        for claimant in (*self.claimants.values(), self.other):
            claimant.kill()
        for writer in self.writers:
            writer.join(2 * REQUEST_TIMEOUT_S)

    def evidence(self) -> Iterator[str]:
        """What was acknowledged, and the end of each log."""
        yield f"acknowledged: {self.acknowledged.hosts}"
        for claimant in (*self.claimants.values(), self.other):
            if claimant.log.exists():
                lines = claimant.log.read_text(errors="replace").splitlines()[-LINES_OF_EACH_LOG:]
                yield f"log of {claimant.host}:\n" + "\n".join(lines)


@contextmanager
def _zookeeper_client(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect, timeout=20)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def hosts(folder: Path) -> Iterator[tuple[Network, ZooKeeperServer]]:
    """Hosts for both claimants, the other broker, and a running ZooKeeper."""
    folder.mkdir(parents=True, exist_ok=True)
    with namespaces.network() as network:
        address = network.add(ZOOKEEPER)
        for host in (*CLAIMANTS, OTHER):
            network.add(host)
        settings = {"tickTime": "1000"}
        zookeeper = ZooKeeperServer(
            folder / "zookeeper", host=address, port=ZOOKEEPER_PORT, settings=settings, on=network.on(ZOOKEEPER)
        )
        zookeeper.start()
        try:
            yield network, zookeeper
        finally:
            zookeeper.kill9()


def play(
    network: Network,
    zookeeper: ZooKeeperServer,
    folder: Path,
    *,
    seed: int,
    faults: list[Fault],
    report: Callable[[str], None],
) -> None:
    """Runs the faults of one seed.  Raises AssertionError, or TimeoutError if no claimant serves afterwards."""
    scene = Scene(network, zookeeper, folder, seed=seed)
    try:
        scene.begin()
        for fault in faults:
            scene.strike(fault)
            scene.wait_for_progress()
        conflicts = scene.acknowledged.conflicts()
        assert not conflicts, conflicts
        epochs = len(scene.acknowledged.hosts)
        report(f"seed {seed}: acknowledged {scene.acknowledged.counts} in {epochs} leader epochs of its partitions")
    except (AssertionError, TimeoutError):
        report(f"seed {seed}: {', '.join(map(str, faults))}")
        for text in scene.evidence():
            report(text)
        raise
    finally:
        scene.end()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.claims", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds (default: 20)")
    parser.add_argument("--seed", type=int, help="the first seed (default: a fresh one)")
    parser.add_argument("--faults", type=int, default=FAULTS, help="how many faults for each seed (default: 6)")
    options = parser.parse_args()
    if reason := why_not():
        sys.stderr.write(f"{reason}\n")
        return 1
    first = options.seed if options.seed is not None else secrets.randbelow(1 << 30)
    with tempfile.TemporaryDirectory() as scratch, hosts(Path(scratch)) as (network, zookeeper):
        for seed in range(first, first + options.seeds):
            faults = drawn(seed, options.faults)
            play(network, zookeeper, Path(scratch), seed=seed, faults=faults, report=_report)
    return 0


def _report(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
