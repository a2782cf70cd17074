"""Exports of partitions that Apache Kafka stored in message formats 0 and 1, also compressed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.clients.test_old_files import EXPECTED, broker_on_kafkas_files
from tests.integration.spark.peer import run_engine

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

APPENDED = "appended-"
"""Topics with this prefix have LogAppendTime."""


@pytest.fixture(scope="module")
def old_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker_on_kafkas_files(tmp_path_factory.mktemp("old"), EXPECTED) as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("file_size", ["256m", "600"], ids=["one-file", "cut-within-messages"])
def test_old_formats_have_the_rows_of_the_newest(old_bootstrap: str, tmp_path: Path, file_size: str) -> None:
    status, printed, output = run_engine(
        *("local", "export", *EXPECTED, "--to", str(tmp_path), "--format", "json"),
        *("--bootstrap-server", old_bootstrap, "--target-file-size", file_size),
    )
    assert status == 0, output
    document = json.loads(printed)
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
