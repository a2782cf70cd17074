"""Acknowledged writes survive SIGKILL, and sessions resume on the restarted server with their nodes and watches.

kazoo writes from several threads while the server is killed at a random moment, again and again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from tests.peers import probe
from tests.peers.embedded_zookeeper import EmbeddedZooKeeperProcess

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

WRITERS = 3
ROUNDS = 4
SESSION_TIMEOUT_S = 20.0

State = dict[str, tuple[bytes, int]]


@contextmanager
def kazoo(connect: str) -> Iterator[KazooClient]:
    retry = KazooRetry(max_tries=-1, delay=0.02, max_delay=0.2)
    client = KazooClient(connect, timeout=SESSION_TIMEOUT_S, connection_retry=retry)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


class Writer(threading.Thread):
    """Writes below its own folder as fast as possible and records the possible content of each node.

    `acknowledged` are the acknowledged writes; `in_doubt` is the one write without a response when the server was
    killed.
    """

    def __init__(self, client: KazooClient, folder: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.folder = folder
        self.rng = random.Random(seed)
        self.acknowledged: State = {}
        self.in_doubt: tuple[str, tuple[bytes, int] | None] | None = None
        self.writes = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._write()
                self.writes += 1
        except (KazooException, KazooTimeoutError):
            return

    def _write(self) -> None:
        name = f"{self.folder}/n{self.rng.randrange(20)}"
        data = self.rng.randbytes(self.rng.randrange(200))
        known = self.acknowledged.get(name)
        if known is None:
            self.in_doubt = (name, (data, 0))
            self.client.create(name, data, ephemeral=self.rng.random() < 0.3)
        elif self.rng.random() < 0.2:
            self.in_doubt = (name, None)
            self.client.delete(name)
        else:
            self.in_doubt = (name, (data, known[1] + 1))
            self.client.set(name, data)
        self._settle(*self.in_doubt)

    def _settle(self, name: str, value: tuple[bytes, int] | None) -> None:
        self.in_doubt = None
        if value is None:
            del self.acknowledged[name]
        else:
            self.acknowledged[name] = value

    def verify(self, client: KazooClient) -> None:
        """All acknowledged nodes are there, and no others; a write in doubt is there completely or not at all."""
        found: State = {}
        for child in client.get_children(self.folder):
            data, stat = client.get(f"{self.folder}/{child}")
            found[f"{self.folder}/{child}"] = (data, stat.version)
        if self.in_doubt is not None:
            name, value = self.in_doubt
            if found.get(name) == value and found != self.acknowledged:
                self._settle(name, value)
        self.in_doubt = None
        assert found == self.acknowledged


@pytest.mark.timeout(180)
def test_acknowledged_writes_survive_kill_9_and_sessions_resume(embedded: EmbeddedZooKeeperProcess) -> None:
    rng = random.Random(9)
    with kazoo(embedded.connect) as reader:
        with (
            kazoo(embedded.connect) as one,
            kazoo(embedded.connect) as two,
            kazoo(embedded.connect) as three,
        ):
            clients = [one, two, three]
            ids = [client.client_id for client in clients]
            writers = []
            for number in range(WRITERS):
                reader.create(f"/w{number}")
                writers.append(Writer(clients[number], f"/w{number}", seed=number))
            for _ in range(ROUNDS):
                _write_for_a_while(writers, rng.randrange(50, 400))
                embedded.kill9()
                for writer in writers:
                    writer.stopping.set()
                embedded.start()
                # Only now: requests to kazoo just after the connection was lost wait for the next one.
                for writer in writers:
                    writer.join(30)
                    assert not writer.is_alive()
                for client in (reader, *clients):
                    probe.wait_until(partial(getattr, client, "connected"), what="reconnect", timeout_s=60)
                    client.sync("/")
                for writer in writers:
                    writer.verify(reader)
                assert [client.client_id for client in clients] == ids, "a session was not resumed"
                writers = [_successor(writer) for writer in writers]
            assert sum(writer.writes for writer in writers) > 0
            mine = {number: _owned(reader, f"/w{number}") for number in range(WRITERS)}
            assert any(mine.values())
        # The sessions were closed, so only persistent nodes remain in each folder.
        for number in range(WRITERS):
            assert _owned(reader, f"/w{number}") == set()


def _write_for_a_while(writers: list[Writer], count: int) -> None:
    goal = sum(writer.writes for writer in writers) + count
    for writer in writers:
        writer.start()
    probe.wait_until(lambda: sum(writer.writes for writer in writers) >= goal, what="writes", timeout_s=60)


def _successor(writer: Writer) -> Writer:
    """A new thread that continues the work of the writer."""
    successor = Writer(writer.client, writer.folder, writer.rng.randrange(1 << 30))
    successor.acknowledged = writer.acknowledged
    successor.writes = writer.writes
    return successor


def _owned(client: KazooClient, folder: str) -> set[str]:
    owned = set()
    for child in client.get_children(folder):
        try:
            if client.get(f"{folder}/{child}")[1].ephemeralOwner:
                owned.add(child)
        except NoNodeError:
            continue
    return owned
