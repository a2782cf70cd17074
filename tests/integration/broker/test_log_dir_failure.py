"""Log directories that fail while a broker runs or are missing at its start: the others are served."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.peers import probe
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import KctlBroker, kctl_broker

pytestmark = pytest.mark.timeout(600)

TIMEOUT_S = 180
PROPERTIES = {"replica.high.watermark.checkpoint.interval.ms": "200"}
"""The write that detects first that a disk has failed."""


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def kctl(broker: KctlBroker, line: str, stdin: bytes = b"") -> Ran:
    environment = os.environ | {"KCTL_BOOTSTRAP_SERVER": broker.bootstrap}
    done = run_kctl(*line.split(), stdin=stdin, environment=environment)
    return Ran(done.returncode, done.stdout, done.stderr)


def leaders(broker: KctlBroker, topic: str) -> dict[int, int | None]:
    (found,) = kctl(broker, f"topics describe {topic} --format json").document
    return {partition["partition"]: partition["leader"] for partition in found["partitions"]}


def values(broker: KctlBroker, topic: str, partition: int) -> list[str]:
    read = kctl(broker, f"consume {topic} --partition {partition} --format jsonl")
    return [json.loads(line)["value"] for line in read.out.splitlines()]


def errors(broker: KctlBroker) -> dict[str, str | None]:
    rows = kctl(broker, "cluster log-dirs --format json").document
    return {row["log_dir"]: row["error"] for row in rows}


def places(broker: KctlBroker, topic: str) -> dict[str, int]:
    return {
        row["log_dir"]: row["partition"]
        for row in kctl(broker, f"cluster log-dirs --topic {topic} --format json").document
        if row["partition"] is not None
    }


def test_broker_serves_until_its_last_log_directory_fails(tmp_path: Path) -> None:
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    with kctl_broker(tmp_path / "data", properties=PROPERTIES | {"log.dirs": ",".join(dirs)}) as broker:
        assert kctl(broker, "topics create orders --partitions 2").status == 0
        lost, kept = (places(broker, "orders")[path] for path in dirs)
        for partition in (lost, kept):
            assert kctl(broker, f"produce orders --partition {partition}", stdin=b"before\n").status == 0

        (tmp_path / "one").rename(tmp_path / "gone")
        probe.wait_until(
            lambda: errors(broker) == {dirs[0]: "KAFKA_STORAGE_ERROR", dirs[1]: None},
            what="one directory offline",
            timeout_s=TIMEOUT_S,
        )
        # The controller was notified through ZooKeeper, and marks the replica offline.
        probe.wait_until(
            lambda: leaders(broker, "orders")[lost] in {None, -1},
            what="the partition without a leader",
            timeout_s=TIMEOUT_S,
        )
        assert leaders(broker, "orders")[kept] not in {None, -1}
        # Ten batches of 512 KB, which fail together and not each after the timeout of the one before.
        ended = kctl(broker, f"produce orders --partition {lost} --timeout 5s", stdin=(b"x" * 1000 + b"\n") * 5000)
        assert (ended.status, f"orders-{lost}: no leader within 5000 ms" in ended.err) == (1, True), ended
        assert kctl(broker, f"produce orders --partition {kept}", stdin=b"after\n").status == 0
        assert values(broker, "orders", kept) == ["before", "after"]
        assert kctl(broker, "topics create more --partitions 2").status == 0
        assert set(places(broker, "more")) == {dirs[1]}, "new partitions are created in the online directory"

        (tmp_path / "two").rename(tmp_path / "gone too")
        probe.wait_until(lambda: not broker.is_running, what="the broker stopped", timeout_s=TIMEOUT_S)
        assert "all log directories are offline" in broker.log_text

        (tmp_path / "gone").rename(tmp_path / "one")
        (tmp_path / "gone too").rename(tmp_path / "two")
        broker.start()
        probe.wait_until(
            lambda: not {None, -1} & set(leaders(broker, "orders").values()), what="both served", timeout_s=TIMEOUT_S
        )
        assert values(broker, "orders", lost) == ["before"]
        assert values(broker, "orders", kept) == ["before", "after"]


def test_a_directory_that_cannot_be_used_at_the_start_is_skipped_with_one_line(tmp_path: Path) -> None:
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    (tmp_path / "one").write_text("a file where a directory should be")
    with kctl_broker(tmp_path / "data", properties=PROPERTIES | {"log.dirs": ",".join(dirs)}) as broker:
        assert errors(broker) == {dirs[0]: "KAFKA_STORAGE_ERROR", dirs[1]: None}
        assert kctl(broker, "topics create orders --partitions 2").status == 0
        assert kctl(broker, "produce orders --partition 1", stdin=b"served\n").status == 0
        assert values(broker, "orders", 1) == ["served"]
        reported = [line for line in broker.log_text.splitlines() if dirs[0] in line and "ERROR" in line]
        assert len(reported) == 1
        assert "log directory goes offline" in reported[0]
