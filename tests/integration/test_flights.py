"""The example examples/flights with the broker killed during it: every flight is exported once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.flights.flights import FLIGHTS, TOPIC, Departures, exported, flights, half, produce, totals
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.clients, pytest.mark.timeout(600)]

TIMEOUT_S = 240
KILL_AFTER = 50_000


@pytest.mark.skipif(shutil.which("java") is None, reason="java is not on the PATH: install a Java 17 runtime")
def test_a_year_of_flights_survives_a_kill_and_two_exports(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'kctl-kafka[spark]'")
    with kctl_broker(tmp_path / "data") as broker:
        _kctl(broker, "topics", "create", TOPIC, "--partitions", "6")
        group = Departures(broker.bootstrap)
        try:
            kill = KillOnce(broker)
            assert produce(broker.bootstrap, half(1), kill.when_delivered) == FLIGHTS // 2
            assert kill.was_done
            assert _export(broker, tmp_path / "export") == FLIGHTS // 2

            produce(broker.bootstrap, half(2))
            assert _export(broker, tmp_path / "export") == FLIGHTS - FLIGHTS // 2
            assert group.wait_for(FLIGHTS, TIMEOUT_S), f"the group read only {group.count}"
            wait_until(lambda: group.partitions == [2, 2, 2], what="two partitions for each", timeout_s=TIMEOUT_S)
        finally:
            group.close()
    assert group.count == FLIGHTS
    assert totals(exported(tmp_path / "export")) == totals(flights())


class KillOnce:
    """kill -9, and a restart, while the producer has rows in flight and the group reads."""

    def __init__(self, broker: KctlBroker) -> None:
        self._broker = broker
        self.was_done = False

    def when_delivered(self, delivered: int) -> None:
        if delivered > KILL_AFTER and not self.was_done:
            self.was_done = True
            self._broker.kill9()
            self._broker.start()


def _export(broker: KctlBroker, folder: Path) -> int:
    """Runs an export; returns the number of rows that it reports."""
    summary = json.loads(_kctl(broker, "spark", "export", TOPIC, "--to", str(folder), "--format", "json"))
    return _rows(summary)


def _rows(summary: Any) -> int:
    return int(summary["records"])


def _kctl(broker: KctlBroker, *arguments: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "kctl", *arguments, "--bootstrap-server", broker.bootstrap],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout
