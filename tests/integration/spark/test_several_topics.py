"""Exports of several topics: one table for all, and topics that cannot be exported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.spark.peer import Topic, export, read_rows, run_export

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("engine", ["local"], indirect=True),
]

MakeTopic = Callable[..., Topic]


def with_records(make_topic: MakeTopic, bootstrap: str, suffix: str, count: int = 6, value: bytes = b"{}") -> Topic:
    topic = make_topic(bootstrap, 2, suffix)
    topic.produce({"value": value, "partition": n % 2} for n in range(count))
    return topic


def test_topics_that_cannot_be_planned_do_not_stop_the_others(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    good, losing = (with_records(make_topic, kctl_bootstrap, suffix) for suffix in ("-good", "-losing"))
    export(good, tmp_path, losing.name)
    for topic in (good, losing):
        topic.produce({"value": b"{}", "partition": n % 2} for n in range(4))
    losing.delete_records(0, 4)

    status, document, output = run_export(good, tmp_path, losing.name, "no-such-topic")
    assert status == 1
    assert [failure["topic"] for failure in document["failed"]] == ["no-such-topic", losing.name]
    assert f"topic {losing.name} is not exported completely: {losing.name}-0: offsets 3 to 3 are gone" in output
    assert "topic no-such-topic is not exported completely: topic no-such-topic does not exist" in output
    assert {row["topic"] for row in document["partitions"]} == {good.name}
    assert len(read_rows(tmp_path, topics=[good.name, losing.name])) == 10 + 6

    status, document, _ = run_export(good, tmp_path, losing.name)
    assert (status, document["batches"]) == (3, [])
    status, document, _ = run_export(good, tmp_path, losing.name, "no-such-topic", "--dry-run")
    assert (status, len(document["failed"])) == (1, 2)
    document = export(losing, tmp_path, good.name, "--on-data-loss", "warn")
    assert (document["failed"], document["lost"]) == ([], 1)


def test_nothing_is_written_if_no_topic_can_be_exported(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    bad = with_records(make_topic, kctl_bootstrap, "", value=b"no object")
    options = ("--value", "json", "--on-bad-record", "fail")
    status, document, _ = run_export(bad, tmp_path / "new", "no-such-topic", *options)
    assert (status, "error" in document) == (1, True)
    assert not list(tmp_path.iterdir())


def test_topics_share_one_folder(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    first, second = (with_records(make_topic, kctl_bootstrap, suffix) for suffix in ("-first", "-second"))
    export(first, tmp_path, "--one-table")
    first.produce([{"value": b"{}", "partition": 0}])
    export(second, tmp_path, first.name, "--one-table")
    assert export(second, tmp_path, first.name, "--one-table")["batches"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_SUCCESS", "_kctl", "data"]
    rows = pq.read_table(tmp_path / "data", partitioning=None)
    assert Counter(rows["topic"].to_pylist()) == {first.name: 7, second.name: 6}
    identities = zip(*(rows[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    assert set(Counter(identities).values()) == {1}
