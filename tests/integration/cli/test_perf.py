"""`kctl perf` with librdkafka and with our own client, on our broker and on Apache Kafka."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.cli.conftest import ON_OURS, Kctl
from tests.integration.cli.group_readers import TIMEOUT_S
from tests.peers.forked_kctl import program

CLIENTS = ("librdkafka", "kctl")
EACH_CLIENT = pytest.mark.parametrize("client", CLIENTS)


@EACH_CLIENT
def test_what_is_produced_is_consumed(kctl: Kctl, topic: str, client: str) -> None:
    load = "--num-records 2000 --record-size 10-200 --compression lz4"
    line = f"perf produce {topic} {load} --client {client} --format jsonl"
    ran = kctl(f"{line} --histogram --interval 100ms")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    total = rows[-1]
    assert (ran.status, total["kind"], total["records"], total["errors"]) == (0, "total", 2000, 0)
    assert total["client"].startswith(f"{client} ")
    assert 0 < total["p50_ms"] <= total["p95_ms"] <= total["p99_ms"] <= total["p999_ms"] <= total["max_ms"]
    assert sum(bucket["records"] for bucket in total["histogram"]) == 2000
    assert {row["kind"] for row in rows[:-1]} <= {"interval"}
    assert sum(int(row[2]) for row in kctl(f"topics offsets {topic}").rows) == 2000
    for reader in CLIENTS:
        read = kctl(f"perf consume {topic} --client {reader} --format json").document
        assert (read["records"], read["bytes"], read["p50_ms"]) == (2000, total["bytes"], None)
    assert kctl(f"perf consume {topic} --client {client} --num-records 700 --format json").document["records"] == 700


@EACH_CLIENT
def test_round_trips_are_measured(kctl: Kctl, topic: str, client: str) -> None:
    kctl(f"produce {topic}", stdin=b"a record of another program\n")
    line = f"perf latency {topic} --num-records 20 --client {client} --format json"
    assert kctl(line).status == 5
    total = kctl(f"{line} --yes").document
    assert (total["records"], total["bytes"]) == (20, 2000)
    assert 0 < total["p50_ms"] <= total["max_ms"]


@ON_OURS
@EACH_CLIENT
def test_interrupted_run_shows_what_was_measured(bootstrap: str, kctl: Kctl, topic: str, client: str) -> None:
    line = f"perf produce {topic} --duration 600s --throughput 500 --interval 100ms --format jsonl --client {client}"
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        command = [*program(), *line.split(), "--yes", "--bootstrap-server", bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            first = next(row for row in map(json.loads, running.stdout) if row["records"])
            running.send_signal(number)
            *_, total = map(json.loads, running.stdout)
            assert running.wait(TIMEOUT_S) == status
        assert (first["kind"], total["kind"]) == ("interval", "total")
        assert total["records"] >= first["records"]


@ON_OURS
def test_topic_is_created_on_request_only(kctl: Kctl) -> None:
    name = "perf-created"
    refused = kctl(f"perf produce {name} --num-records 1")
    assert (refused.status, "add --create" in refused.err) == (1, True)
    tried = kctl(f"perf produce {name} --num-records 1 --create --partitions 2 --dry-run --format json").document
    assert (tried["status"], tried["partitions"]) == ("would be created", 2)
    assert kctl("topics list").out.find(name) == -1
    assert kctl(f"perf produce {name} --num-records 1 --create --partitions 2").status == 0
    assert len(kctl(f"topics offsets {name}").rows) == 2
    assert kctl(f"perf produce {name} --dry-run --format json").document["records_in_topic"] == 1
    assert kctl(f"perf produce {name} --num-records 1").status == 5
    assert kctl(f"perf produce {name} --num-records 1 --partitions 2").status == 2


@ON_OURS
@EACH_CLIENT
def test_records_that_are_refused_are_counted(kctl: Kctl, client: str) -> None:
    name = f"perf-small-{client}"
    assert kctl(f"topics create {name} --set max.message.bytes=1000").status == 0
    ran = kctl(f"perf produce {name} --num-records 3 --record-size 5000 --batch-size 1 --client {client} --format json")
    assert (ran.status, ran.document["records"], ran.document["errors"]) == (1, 0, 3)
    assert "3 records were not written" in ran.err


@ON_OURS
def test_values_are_taken_from_a_file(kctl: Kctl, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_bytes(b"one\ntwo\n")
    assert kctl(f"perf produce {topic} --num-records 50 --payload-file {file}").status == 0
    values = {
        json.loads(line)["value"] for line in kctl(f"consume {topic} --until end --format jsonl").out.splitlines()
    }
    assert values == {"one", "two"}
    assert kctl(f"perf produce {topic} --payload-file {tmp_path}").status == 2
