"""Exports of a topic whose leader was replaced by a replica without its last records.  KIP-320."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.tables.engines.data_source import source_of
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.queries.topic_source import UnlimitedTopicStream
from tests.integration.replication.conftest import Racks
from tests.integration.spark.peer import run_engine
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import kctl_broker

pytestmark = pytest.mark.timeout(400)

PROPERTIES = {
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "unclean.leader.election.enable": "true",
}
SHARED, LOST, NEW = 50, 100, 150
"""Records of both replicas, of the first leader only, and of the second one."""


@contextlib.contextmanager
def two_brokers(folder: Path) -> Iterator[Racks]:
    with contextlib.ExitStack() as stack:
        zookeeper = stack.enter_context(embedded_zookeeper(folder / "zookeeper"))
        brokers = [
            stack.enter_context(
                kctl_broker(
                    folder / f"broker-{number}",
                    zookeeper=zookeeper.connect,
                    properties=PROPERTIES | {"broker.id": str(number)},
                )
            )
            for number in range(2)
        ]
        yield Racks(brokers, folder)


def elect_uncleanly(racks: Racks, topic: str) -> None:
    """Broker 1, which lacks the last records, becomes the leader."""
    racks.brokers[0].stop()
    racks.brokers[1].start()
    racks.until("broker 1 leads", lambda: racks.partition(topic)[0] == 1)


def run(racks: Racks, *words: str) -> tuple[int, Any, str]:
    """Exit status, document and messages of a command."""
    status, printed, output = run_engine("local", *words, "--bootstrap-server", racks.bootstrap, "--format", "json")
    assert "Traceback" not in output, output
    return status, json.loads(printed) if printed else None, output


def test_an_unclean_election_is_noticed_and_all_records_are_exported(tmp_path: Path) -> None:
    with two_brokers(tmp_path) as racks:
        racks.create("orders", 0, 1)
        racks.produce("orders", SHARED, size=100)
        racks.brokers[1].stop()
        racks.until("one replica is in sync", lambda: racks.partition("orders")[2] == {0})
        racks.produce("orders", LOST, size=100)
        targets = {table: str(tmp_path / table) for table in ("parquet", "iceberg", "delta")}
        words = {table: ("export", "orders", "--to", to, "--table", table) for table, to in targets.items()}
        for table in targets:
            status, document, output = run(racks, *words[table])
            assert (status, document["records"]) == (0, SHARED + LOST), (table, output)
        read_end = stream(racks).latestOffset()
        elect_uncleanly(racks, "orders")
        racks.produce("orders", NEW, size=100)
        for table, target in targets.items():
            status, _, output = run(racks, *words[table])
            assert status == 3, (table, output)
            assert f"offsets {SHARED} to {SHARED + LOST - 1}" in output, (table, output)
            _, (row,), _ = run(racks, "tables", "status", target)
            assert (row["state"], row["diverged_offset"]) == ("truncated", SHARED), table
            status, document, output = run(racks, *words[table], "--on-data-loss", "warn")
            assert (status, document["records"], document["replaced"]) == (0, NEW, LOST), (table, output)
            _, (row,), _ = run(racks, "tables", "status", target)
            assert (row["state"], row["replaced"]) == ("current", LOST), table
            assert row["replaced_ranges"] == [
                {
                    "incarnation": 0,
                    "start": SHARED,
                    "end": SHARED + LOST,
                    "leader_epoch": row["replaced_ranges"][0]["leader_epoch"],
                }
            ], table
            status, rows, output = run(racks, "tables", "verify", "orders", target)
            assert status == 0, (table, output)
            assert f"offsets {SHARED} to {SHARED + LOST - 1}" in output, (table, output)
            assert [row["topic_records"] for row in rows if row["status"] == "equal"] in ([NEW], [SHARED, NEW]), table
            assert run(racks, *words[table])[1]["records"] == 0, table
        with pytest.raises(DataLoss, match=f"offsets {SHARED} to {SHARED + LOST - 1}"):
            stream(racks).partitions(read_end, stream(racks).latestOffset())
        lenient = stream(racks, failOnDataLoss="false")
        (task,) = lenient.partitions(read_end, lenient.latestOffset())
        assert sum(batch.num_rows for batch in lenient.read(task)) == NEW


def stream(racks: Racks, **options: str) -> UnlimitedTopicStream:
    """A streaming query of the topic."""
    return UnlimitedTopicStream(source_of({"bootstrap.servers": racks.bootstrap, "topic": "orders", **options}))
