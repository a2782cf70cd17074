"""Many brokers of a test run, one after the other and several at once: nothing of them is left."""

from __future__ import annotations

import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kctl.system.operating_system import is_process_alive
from kctl.testing import KafkaBroker
from kctl.testing.brokers.warm_process import WarmProcess
from tests.integration.testing.applications import TIMEOUT_S
from tests.peers.probe import accepts, wait_until

BROKERS = 200
AT_ONCE = 8
MEMORY_GROWTH_MAX_BYTES = 16 << 20
"""Less than 100 KiB for each broker; it is noise of the allocator, and a leak of a broker's output would be more."""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def open_descriptors(process: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def resident_bytes(process: int | str = "self") -> int:
    [kib] = re.findall(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return int(kib) << 10


def children(process: int | str) -> set[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


class Use:
    """Starts a broker, produces one record, stops it, and keeps its process id and address."""

    def __init__(self, warm: WarmProcess) -> None:
        self.warm = warm
        self.processes: list[int] = []
        self.addresses: list[str] = []

    def __call__(self, number: int) -> None:
        # Some have a socket that controls them, and some are killed.
        with KafkaBroker(warm=self.warm, control=number % 2 == 0) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            producer.produce("orders", b"1")
            assert producer.flush(TIMEOUT_S) == 0
            self.processes.append(broker.pid)
            self.addresses.append(broker.bootstrap_servers)
            if number % 4 == 3:
                broker.kill()


@pytest.mark.matrix
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc has the descriptors and processes")
@pytest.mark.parametrize("at_once", [1, AT_ONCE])
def test_brokers_of_200_tests_leave_nothing(folders: Path, at_once: int) -> None:
    others = children("self")
    warm = WarmProcess()
    use = Use(warm)
    with ThreadPoolExecutor(at_once) as tests:
        # The first ones load what stays loaded.
        list(tests.map(use, range(2 * AT_ONCE)))
        [server] = children("self") - others
        before = open_descriptors(), open_descriptors(server), resident_bytes(), resident_bytes(server)
        list(tests.map(use, range(BROKERS - 2 * AT_ONCE)))
        after = open_descriptors(), open_descriptors(server), resident_bytes(), resident_bytes(server)
    assert len(set(use.processes)) == len(use.addresses) == BROKERS
    wait_until(lambda: not any(map(is_process_alive, use.processes)), what="the end of processes", timeout_s=TIMEOUT_S)
    assert [address for address in use.addresses if accepts(address)] == []
    assert list(folders.iterdir()) == []
    assert before[:2] == after[:2]
    growth = [now - then for then, now in zip(before[2:], after[2:], strict=True)]
    assert max(growth) < MEMORY_GROWTH_MAX_BYTES, growth
    assert children(server) == set()
    warm.close()
    assert not is_process_alive(server)
