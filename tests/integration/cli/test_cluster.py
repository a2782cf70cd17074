"""Cluster health on three brokers, kctl's and Apache Kafka's; starting and stopping a development cluster."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.cli.conftest import BROKERS, Kctl, ThreeBrokers
from tests.integration.cli.group_readers import TIMEOUT_S
from tests.peers import probe


def test_health_reports_partitions_under_min_isr(operate: Kctl) -> None:
    assert operate("topics create strict --replica-assignment 0:1").status == 0
    assert operate("cluster health --wait 30s").status == 0
    assert (
        operate(
            "topics describe --under-replicated-partitions --unavailable-partitions --under-min-isr-partitions"
        ).status
        == 0
    )
    assert operate("configs alter topic strict --set min.insync.replicas=3").status == 0

    ran = operate("cluster health --format json")
    assert (ran.status, ran.document["healthy"], ran.document["brokers"]) == (3, False, 3)
    (reason,) = ran.document["reasons"]
    assert (reason["problem"], reason["topic"], reason["partition"]) == ("under min ISR", "strict", 0)
    described = operate("topics describe --under-min-isr-partitions")
    assert (described.status, [row[0] for row in described.rows]) == (3, ["strict"])
    assert operate("topics describe --under-replicated-partitions").rows == []
    assert operate("topics delete strict --yes").status == 0


@pytest.mark.parametrize("three_brokers", BROKERS[:1], indirect=True)
def test_killed_broker_leaves_and_the_cluster_restarts(operate: Kctl, three_brokers: ThreeBrokers) -> None:
    where = f"--data-dir {three_brokers.folder}"
    assert operate("topics create lasting --partitions 3").rows[0][2] == "3"
    assert operate("produce lasting", stdin=b"still here\n").status == 0
    rows = {row[0]: row for row in operate(f"cluster status {where}").rows}
    assert {row[1] for row in rows.values()} == {"serving"}
    victim = next(row for row in rows.values() if row[0] != "zookeeper" and row[2] != three_brokers.bootstrap)

    os.kill(int(victim[3]), signal.SIGKILL)
    claim = lambda: [victim[0], "stopped"] in [row[:2] for row in operate(f"cluster status {where}").rows]  # noqa: E731
    probe.wait_until(claim, what=f"the end of {victim[0]}", timeout_s=TIMEOUT_S)
    assert operate(f"cluster status {where}").status == 3
    health = operate("cluster health")
    assert health.status == 3
    assert health.rows[0][:2] in (["broker unreachable", victim[0][-1]], ["broker missing", victim[0][-1]])

    again = operate(f"cluster start {where}")
    assert again.status == 0
    pids = {row[0]: row[3] for row in again.rows}
    assert {name for name, pid in pids.items() if pid != rows[name][3]} == {victim[0]}
    assert operate("topics describe --unavailable-partitions").status == 0
    # A new leader has the offsets of its followers only after they have fetched from it.
    claim = lambda: [row[4] for row in operate("consume lasting").rows] == ["still here"]  # noqa: E731
    probe.wait_until(claim, what="the record", timeout_s=TIMEOUT_S)
    assert operate(f"cluster start {where} --brokers 2").status == 2
