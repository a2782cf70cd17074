"""Exports of partitions that Apache Kafka stored in message formats 0 and 1, also compressed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.clients.test_old_files import EXPECTED, broker_on_kafkas_files
from tests.integration.spark.peer import ENGINES, RUN_TIMEOUT_S

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

APPENDED = "appended-"
"""Topics with this prefix have LogAppendTime."""


@pytest.fixture(scope="module")
def old_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker_on_kafkas_files(tmp_path_factory.mktemp("old"), EXPECTED) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize("file_size", ["256m", "600"], ids=["one-file", "cut-within-messages"])
def test_old_formats_have_the_rows_of_the_newest(
    old_bootstrap: str, tmp_path: Path, engine: str, file_size: str
) -> None:
    command = [
        *(sys.executable, "-m", "kctl", *ENGINES[engine], *EXPECTED, "--to", str(tmp_path), "--format", "json"),
        *("--bootstrap-server", old_bootstrap, "--target-file-size", file_size),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["records"] == sum(map(len, EXPECTED.values()))
    if file_size != "256m":
        assert document["files"] > 2 * len(EXPECTED)
    for topic, expected in EXPECTED.items():
        rows = sorted(pq.read_table(tmp_path / topic, partitioning=None).to_pylist(), key=lambda row: row["offset"])
        found = [
            [row["offset"], round(row["timestamp"].timestamp() * 1000), text(row["key"]), text(row["value"])]
            for row in rows
        ]
        assert found == expected, topic
        assert {row["timestampType"] for row in rows} == {int(topic.startswith(APPENDED))}


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
