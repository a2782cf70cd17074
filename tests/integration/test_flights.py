"""The example examples/flights with the broker killed during it: every flight that is sent is exported once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from examples.flights.flights import TOPIC, Departures, exported, half, produce, totals
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.probe import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.clients, pytest.mark.matrix, pytest.mark.timeout(600)]

Row = dict[str, Any]

TIMEOUT_S = 240
EACH = 8
"""One flight of this number is sent."""
KILL_AFTER = 10_000


@pytest.mark.skipif(shutil.which("java") is None, reason="java is not on the PATH: install a Java 17 runtime")
def test_a_year_of_flights_survives_a_kill_and_two_exports(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'kctl-kafka[spark]'")
    first, second = (list(islice(half(number), None, None, EACH)) for number in (1, 2))
    with kctl_broker(tmp_path / "data") as broker:
        _kctl(broker, "topics", "create", TOPIC, "--partitions", "6")
        group = Departures(broker.bootstrap)
        try:
            assert produce(broker.bootstrap, with_a_kill(first, broker)) == len(first)
            assert _export(broker, tmp_path / "export", "export", "--engine", "spark") == len(first)

            produce(broker.bootstrap, second)
            assert _export(broker, tmp_path / "export", "export") == len(second)
            assert group.wait_for(len(first + second), TIMEOUT_S), f"the group read only {group.count}"
            wait_until(lambda: group.partitions == [2, 2, 2], what="two partitions for each", timeout_s=TIMEOUT_S)
        finally:
            group.close()
    assert group.count == len(first + second)
    assert totals(exported(tmp_path / "export")) == totals(first + second)


def with_a_kill(rows: Sequence[Row], broker: KctlBroker) -> Iterator[Row]:
    """The rows; kill -9, and a restart, when some are sent, while others are in flight and the group reads."""
    yield from rows[:KILL_AFTER]
    broker.kill9()
    broker.start()
    yield from rows[KILL_AFTER:]


def _export(broker: KctlBroker, folder: Path, *engine: str) -> int:
    """Runs the command of an engine; returns the number of rows that it reports."""
    summary = json.loads(_kctl(broker, *engine, TOPIC, "--to", str(folder), "--format", "json"))
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
