"""The broker is killed during transactions and restarted: transactions stay atomic."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaException, Producer

from tests.integration.clients.confluent import Confluent
from tests.integration.transactions.conftest import PROPERTIES
from tests.integration.transactions.writing import TIMEOUT_S, producer, read, transact, write
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

TOPIC = "orders"
PARTITIONS = 3
KILLS = 4
WRITERS = 3
RECORDS = 9


class Writer(threading.Thread):
    """Commits numbered transactions one after the other; aborts every third."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name=name)
        self.committed: set[int] = set()
        self.unknown: set[int] = set()
        """Transactions whose commit was requested without a response."""
        self.failure: BaseException | None = None
        self._address = bootstrap
        self._is_over = threading.Event()

    def run(self) -> None:
        number = 0
        made: Producer | None = None
        while not self._is_over.is_set():
            try:
                if made is None:
                    made = producer(self._address, self.name)
                number += 1
                self._transact(made, number)
            except KafkaException as error:
                # If an abort fails, the next instance aborts the transaction.
                made = self._aborted(made) if made is not None and error.args[0].txn_requires_abort() else None
            except BaseException as error:
                self.failure = error
                raise

    def end(self) -> None:
        self._is_over.set()
        self.join(2 * TIMEOUT_S)
        assert not self.is_alive()

    def _transact(self, made: Producer, number: int) -> None:
        made.begin_transaction()
        for index in range(RECORDS):
            made.produce(TOPIC, f"{self.name} {number} {index}".encode(), b"%d" % index, partition=index % PARTITIONS)
        if number % 3 == 0:
            made.flush(TIMEOUT_S)
            made.abort_transaction(TIMEOUT_S)
            return
        self.unknown.add(number)
        made.commit_transaction(TIMEOUT_S)
        self.unknown.remove(number)
        self.committed.add(number)

    @staticmethod
    def _aborted(made: Producer) -> Producer | None:
        try:
            made.abort_transaction(TIMEOUT_S)
        except KafkaException:
            return None
        return made


def test_transactions_stay_atomic_after_kills(tmp_path: Path) -> None:
    chance = Random(7)
    with kctl_broker(tmp_path / "data", properties=PROPERTIES) as broker:
        Confluent(broker.bootstrap).create_topic(TOPIC, PARTITIONS)
        writers = [Writer(broker.bootstrap, f"writer-{number}") for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            _wait_for_commits(writers, chance.randrange(3, 10))
            broker.kill9()
            broker.start()
        _wait_for_commits(writers, 3)
        for writer in writers:
            writer.end()
            # A last instance aborts open transactions.
            producer(broker.bootstrap, writer.name)
        seen = _by_transaction(broker)
        assert all(writer.failure is None for writer in writers)
        assert {len(indexes) for indexes in seen.values()} == {RECORDS}, "each whole, and nothing twice"
        for writer in writers:
            assert len(writer.committed) > 2 * KILLS, "enough happened between the kills"
            found = {number for name, number in seen if name == writer.name}
            assert writer.committed <= found <= writer.committed | writer.unknown


def _wait_for_commits(writers: list[Writer], count: int) -> None:
    """Returns once every writer has committed `count` more transactions."""
    goals = [(writer, len(writer.committed) + count) for writer in writers]
    wait_until(
        lambda: all(len(writer.committed) >= goal or writer.failure is not None for writer, goal in goals),
        what=f"{count} transactions of every writer",
        timeout_s=2 * TIMEOUT_S,  # After a kill, clients wait up to ten seconds before they retry.
    )


def _by_transaction(broker: KctlBroker) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for value in read(broker.bootstrap, TOPIC):
        name, number, index = value.decode().split()
        found[name, int(number)].append(int(index))
    return found


@pytest.mark.parametrize("is_committed", [True, False], ids=["decided", "open"])
def test_restarted_broker_completes_only_prepared_transactions(tmp_path: Path, is_committed: bool) -> None:
    """The markers of a decided transaction may be missing when the broker is killed; an open one stays open."""
    values = [b"%02d" % number for number in range(20)]
    with kctl_broker(tmp_path / "data", properties=PROPERTIES) as broker:
        Confluent(broker.bootstrap).create_topic(TOPIC, PARTITIONS)
        made = producer(broker.bootstrap, "id")
        made.begin_transaction()
        write(made, TOPIC, values)
        if is_committed:
            made.commit_transaction(TIMEOUT_S)
        broker.kill9()
        broker.start()
        if is_committed:
            _wait_for(broker, values)
            transact(made, TOPIC, [b"next"])
            _wait_for(broker, [*values, b"next"])
        else:
            assert read(broker.bootstrap, TOPIC) == []
            made.commit_transaction(TIMEOUT_S)
            _wait_for(broker, values)


def _wait_for(broker: KctlBroker, values: list[bytes]) -> None:
    """Committed readers stop at a decided transaction until its coordinator has written the markers."""
    wait_until(lambda: read(broker.bootstrap, TOPIC) == values, what=f"{len(values)} records", timeout_s=TIMEOUT_S)
