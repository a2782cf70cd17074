"""Transactions that were open or decided when a cluster was stopped end as they were to end, there and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kctl.model import TRANSACTION_STATE_TOPIC
from kctl.protocol.codec import encode_versioned
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.records.internal.topics import decode_transaction_value, encode_transaction_key
from tests.integration.jvm.conversion import kctl, made_node, make_plan, new_nodes, old_broker
from tests.integration.transactions.writing import TIMEOUT_S, producer, read, write
from tests.peers import apache_kafka, probe
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.kctl_broker import TEST_PROPERTIES

pytestmark = [pytest.mark.jvm, pytest.mark.matrix, pytest.mark.timeout(600)]

PROPERTIES = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
PREPARE_COMMIT, PREPARE_ABORT = 2, 3
"""Kafka: TransactionState."""


def prepare(log_dir: Path, transactional_id: str, status: int, version: int) -> None:
    """Decides an open transaction, as a coordinator that is killed before it has written a marker."""
    key = encode_transaction_key(transactional_id)
    for folder in log_dir.glob(f"{TRANSACTION_STATE_TOPIC}-*"):
        segment = max(folder.glob("*.log"))
        data = segment.read_bytes()
        headers = list(iterate_batches(data))
        values = [record.value for header in headers for record in iterate_records(data, header) if record.key == key]
        if not values:
            continue
        state = replace(decode_transaction_value(values[-1] or b""), transaction_status=status)
        record = Record(0, headers[-1].max_timestamp, key, encode_versioned(state, version))
        batch = build_batch([record], base_offset=headers[-1].next_offset, leader_epoch=headers[-1].leader_epoch)
        segment.write_bytes(data + batch)
        return
    raise AssertionError(f"{transactional_id} has no state in {log_dir}")


def values_of(name: str) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) for number in range(20)]


def wait_for_committed(bootstrap: str, names: Sequence[str]) -> None:
    expected = sorted(value for name in names for value in values_of(name))
    probe.wait_until(lambda: read(bootstrap, "deals") == expected, what=f"records of {names}", timeout_s=60)


@pytest.mark.parametrize("version", ["ours", apache_kafka.OLDEST_BROKER, apache_kafka.OLDEST_JUDGE])
def test_transactions_in_flight_end_as_they_were_decided_on_4_and_back(version: str, tmp_path: Path) -> None:
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **PROPERTIES})
    (log_dir,) = node.log_dirs
    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        with old_broker(node, version, zookeeper.connect) as bootstrap:
            kctl("topics", "create", "deals", "--partitions", 1, "--yes", "--bootstrap-server", bootstrap)
            first = [producer(bootstrap, name, timeout_ms=600_000) for name in ("committed", "aborted", "open")]
            for number, made in enumerate(first):
                made.begin_transaction()
                write(made, "deals", values_of(f"old {number}"))
        prepare(log_dir, "committed", PREPARE_COMMIT, 0)
        prepare(log_dir, "aborted", PREPARE_ABORT, 0)
        plan = make_plan(tmp_path, [node], zookeeper.connect, [f"3@127.0.0.1:{probe.free_port()}"])
        kctl("migrate", "convert", "--plan", plan, "--node", 3, "--yes")
        with new_nodes({node.new_settings: node.bootstrap}):
            wait_for_committed(node.bootstrap, ["old 0"])
            first[2].commit_transaction(TIMEOUT_S)
            wait_for_committed(node.bootstrap, ["old 0", "old 2"])
            second = [
                *(producer(node.bootstrap, name, timeout_ms=600_000) for name in ("committed", "aborted")),
                first[2],
            ]
            for number, made in enumerate(second):
                made.begin_transaction()
                write(made, "deals", values_of(f"new {number}"))
        prepare(log_dir, "committed", PREPARE_COMMIT, 1)
        prepare(log_dir, "aborted", PREPARE_ABORT, 1)
        kctl("migrate", "revert", "--plan", plan, "--node", 3, "--yes")
        with old_broker(node, version, zookeeper.connect) as bootstrap:
            wait_for_committed(bootstrap, ["old 0", "old 2", "new 0"])
            first[2].commit_transaction(TIMEOUT_S)
            wait_for_committed(bootstrap, ["old 0", "old 2", "new 0", "new 2"])
            everything = sorted(value for age in ("old", "new") for n in range(3) for value in values_of(f"{age} {n}"))
            assert read(bootstrap, "deals", committed=False) == everything
