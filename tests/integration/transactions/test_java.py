"""Apache Kafka's own programs read the transaction log and find and abort hanging transactions."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.integration.clients.confluent import Confluent
from tests.integration.transactions.conftest import PROPERTIES
from tests.integration.transactions.writing import TIMEOUT_S, producer, read, transact, write
from tests.peers import apache_kafka, probe
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, run_java_tool
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.markers import wait_for_markers

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    with kctl_broker(tmp_path_factory.mktemp("transactions") / "data", properties=PROPERTIES) as broker:
        yield broker


def test_kafka_reads_our_transaction_log(tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    with kctl_broker(
        tmp_path / "data", properties={**PROPERTIES, "transaction.state.log.num.partitions": "1"}
    ) as broker:
        Confluent(broker.bootstrap).create_topic("t", 2)
        made = producer(broker.bootstrap, "the id")
        transact(made, "t", [b"1", b"2"])
        made.begin_transaction()
        write(made, "t", [b"3"])
        made.abort_transaction(TIMEOUT_S)
        describe = ["transactions", "describe", "the id", "--bootstrap-server", broker.bootstrap]
        probe.wait_until(
            lambda: "CompleteAbort" in run_kctl(*describe).stdout,
            what="the markers of the abort",
            timeout_s=TIMEOUT_S,
        )
        broker.stop()
        file = broker.logs_dir / "__transaction_state-0" / "00000000000000000000.log"
        dumped = run_java_tool(
            OLDEST_JUDGE, "kafka.tools.DumpLogSegments", ["--transaction-log-decoder", "--files", file]
        )
    lines = [line for line in dumped.stdout.splitlines() if "transactionalId=" in line]
    assert all("transactionalId=the id" in line and "isValid: true" in line for line in lines)
    states = [line.rpartition("state=")[2].partition(",")[0] for line in lines]
    assert [state for state, _ in itertools.groupby(states)] == [
        *("Empty", "Ongoing", "PrepareCommit", "CompleteCommit"),
        *("Ongoing", "PrepareAbort", "CompleteAbort"),
    ]


class TestTransactionsCommand:
    """bin/kafka-transactions.sh."""

    def test_kafkas_tool_lists_and_describes_transactions(self, broker: KctlBroker) -> None:
        Confluent(broker.bootstrap).create_topic("described", 1)
        made = producer(broker.bootstrap, "id-described")
        made.begin_transaction()
        write(made, "described", [b"1"])
        listed = self._rows(broker, "list")
        assert [row["TransactionState"] for row in listed if row["TransactionalId"] == "id-described"] == ["Ongoing"]
        (row,) = self._rows(broker, "describe", "--transactional-id", "id-described")
        assert (row["TransactionState"], row["TopicPartitions"]) == ("Ongoing", "described-0")
        assert (row["ProducerEpoch"], row["TransactionTimeoutMs"]) == ("0", "60000")
        (writing,) = self._rows(broker, "describe-producers", "--topic", "described", "--partition", "0")
        assert (writing["ProducerId"], writing["CurrentTransactionStartOffset"]) == (row["ProducerId"], "0")
        made.abort_transaction(TIMEOUT_S)

        def is_complete() -> bool:
            (row,) = self._rows(broker, "describe", "--transactional-id", "id-described")
            return row["TransactionState"] == "CompleteAbort"

        probe.wait_until(is_complete, what="the markers of the abort", timeout_s=TIMEOUT_S)

    def test_kafkas_tool_aborts_a_hanging_transaction(self, broker: KctlBroker) -> None:
        """KIP-664: a transaction unknown to its coordinator blocks read_committed consumers until it is aborted."""
        topic = "hanging"
        Confluent(broker.bootstrap).create_topic(topic, 1)
        asyncio.run(_write_behind_the_coordinators_back(broker.bootstrap, topic))
        transact(producer(broker.bootstrap, "id-after"), topic, [b"after"])
        assert read(broker.bootstrap, topic) == []
        self._run(broker, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        wait_for_markers(broker.bootstrap, topic)
        assert read(broker.bootstrap, topic) == [b"after"]

    def _rows(self, broker: KctlBroker, *words: str) -> list[dict[str, str]]:
        titles, *rows = [line.split("\t") for line in self._run(broker, *words).splitlines() if "\t" in line]
        names = [title.strip() for title in titles]
        return [dict(zip(names, (cell.strip() for cell in row), strict=True)) for row in rows]

    def _run(self, broker: KctlBroker, *words: str) -> str:
        command = ["--bootstrap-server", broker.bootstrap, *words]
        finished = run_java_tool(LAST_WITH_ZOOKEEPER, "org.apache.kafka.tools.TransactionsCommand", command)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout


async def _write_behind_the_coordinators_back(bootstrap: str, topic: str) -> None:
    batch = build_batch(
        [Record(0, int(time.time() * 1000), b"k", b"hangs")],
        producer_id=123_456,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        transactional_id="unheard of",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    host, port = probe.address(bootstrap)
    connection = await AsyncioTransport().connect(
        host, port, client_id="test", connect_timeout_ms=10_000, timeout_ms=10_000
    )
    response = await connection.send(request, ProduceResponse)
    await connection.close()
    assert response.responses[0].partition_responses[0].error_code == 0
