"""The readers of `format("kctl")` in this process: what needs no query of Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.errors import ConfigError, UsageError
from kctl.tables.engines.data_source import KctlDataSource, source_of
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.queries.topic_source import TopicReader, UnlimitedTopicStream
from kctl.tables.exec.selection.columns import HEADER_MAP
from tests.integration.spark.test_export import LOCAL, MakeTopic


def read(options: dict[str, str]) -> list[dict[str, Any]]:
    reader = TopicReader(source_of(options))
    return [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]


@LOCAL
def test_a_query_has_headers_in_any_form_and_may_start_beyond_the_end(
    kctl_bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    topic.produce([{"value": b"1", "headers": [("id", b"a"), ("id", b"b")]}, {"value": b"2"}])
    options = {"bootstrap.servers": kctl_bootstrap, "topic": topic.name}
    assert "headers" not in read(options)[0]
    (entries, nothing) = (row["headers"] for row in read({**options, "includeHeaders": "true"}))
    assert [entry["value"] for entry in entries] == [b"a", b"b"]
    assert nothing is None
    assert [row["headers"] for row in read({**options, "headers": "map"})] == [[("id", b"b")], None]
    assert [row["headers"] for row in read({**options, "headers": "columns:id"})] == [{"id": b"b"}, None]
    found = KctlDataSource({**options, "headers": "map"}).schema()["headers"].dataType.simpleString()
    assert (found, HEADER_MAP) == ("map<string,binary>", pa.map_(pa.string(), pa.binary()))
    beyond = {**options, "startingOffsets": json.dumps({topic.name: {"0": 9}})}
    with pytest.raises(DataLoss, match="ends at offset 2, before 9: it was truncated or created again"):
        read(beyond)
    assert read({**beyond, "failOnDataLoss": "false"}) == []


@LOCAL
def test_a_query_begins_and_ends_at_times_and_has_as_many_tasks_as_asked_for(
    kctl_bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(kctl_bootstrap, 2)
    for partition, offset in ((partition, offset) for offset in range(12) for partition in range(2)):
        topic.produce([{"value": b"%d" % offset, "partition": partition, "timestamp": 1000 * offset + partition + 1}])
    options = {"bootstrap.servers": kctl_bootstrap, "topic": topic.name}

    def found(**more: str) -> list[tuple[int, int]]:
        return sorted((row["partition"], row["offset"]) for row in read({**options, **more}))

    assert found(startingTimestamp="5000", endingTimestamp="8002") == [
        *((0, offset) for offset in range(5, 9)),
        *((1, offset) for offset in range(5, 8)),
    ]
    times = json.dumps({topic.name: {"1": 9001}})
    assert found(startingOffsetsByTimestamp=times, endingTimestamp="10000") == [
        *((0, offset) for offset in range(10)),
        (1, 9),
    ]
    assert found(startingTimestamp="11000", startingOffsets="latest") == [(0, 11), (1, 11)]
    with pytest.raises(UsageError, match=r"-0 has no record at or after the time to start at"):
        found(startingTimestamp="11002")
    assert found(startingTimestamp="11002", startingOffsetsByTimestampStrategy="latest") == [(1, 11)]
    with pytest.raises(UsageError, match="-7, for which there is a time, is not a partition"):
        found(startingOffsetsByTimestamp=json.dumps({topic.name: {"7": 1}}))
    assert len(TopicReader(source_of(options)).partitions()) == 2
    many = TopicReader(source_of({**options, "minPartitions": "6"})).partitions()
    assert len(many) == 6
    assert sum(part.value.end - part.value.start for part in many) == 24


@LOCAL
def test_a_pattern_reads_the_topics_that_exist_at_each_batch(kctl_bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    topic.produce([{"value": b"1"}])
    options = {"kafka.bootstrap.servers": kctl_bootstrap, "subscribePattern": f"{topic.name}.*"}
    assert [row["topic"] for row in read(options)] == [topic.name]
    assert read({**options, "subscribePattern": topic.name[:-1]}) == []
    stream = UnlimitedTopicStream(source_of(options))
    first = stream.initialOffset()
    topic.produce([{"value": b"2"}])
    parts = stream.partitions(first, stream.latestOffset())
    assert [row["value"] for part in parts for batch in stream.read(part) for row in batch.to_pylist()] == [b"1", b"2"]
    with pytest.raises(UsageError, match="give one of the options topic"):
        source_of({**options, "subscribe": topic.name})
    with pytest.raises(UsageError, match="is not a regular expression"):
        source_of({"subscribePattern": "("})


@LOCAL
def test_a_stream_from_the_latest_offsets_survives_a_crash_in_its_first_batch(
    kctl_bootstrap: str, make_topic: MakeTopic
) -> None:
    """Spark then plans that batch again: with the end in its checkpoint, but with new first offsets."""
    topic = make_topic(kctl_bootstrap, 1)
    topic.produce([{"value": b"1"}])
    source = source_of({"bootstrap.servers": kctl_bootstrap, "topic": topic.name, "startingOffsets": "latest"})
    end = UnlimitedTopicStream(source).latestOffset()
    topic.produce([{"value": b"2"}])
    again = UnlimitedTopicStream(source)
    assert again.partitions(again.initialOffset(), end) == []
    (rest,) = again.partitions(end, again.latestOffset())
    assert [row["value"] for batch in again.read(rest) for row in batch.to_pylist()] == [b"2"]
    with pytest.raises(DataLoss, match="ends at offset 1, before 2"):
        UnlimitedTopicStream(source).partitions(again.latestOffset(), end)


@LOCAL
def test_a_stream_notices_a_topic_that_was_created_again_and_is_longer(
    kctl_bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    topic.produce([{"value": b"1"}])
    options = {"bootstrap.servers": kctl_bootstrap, "topic": topic.name}
    before = UnlimitedTopicStream(source_of(options)).latestOffset()
    topic.delete()
    topic.create()
    topic.produce([{"value": b"2"}, {"value": b"3"}])
    strict, lenient = (
        UnlimitedTopicStream(source_of({**options, "failOnDataLoss": given})) for given in ("true", "false")
    )
    with pytest.raises(DataLoss, match="was deleted and created again since its records were read"):
        strict.partitions(before, strict.latestOffset())
    (task,) = lenient.partitions(before, lenient.latestOffset())
    assert [row["value"] for batch in lenient.read(task) for row in batch.to_pylist()] == [b"2", b"3"]


def test_isolation_is_that_of_the_option_else_of_the_client_properties(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("isolation.level=read_uncommitted\nretires=3\n")
    options = {"topic": "orders", "command.config": str(config), "bootstrap.servers": "PLAINTEXT://127.0.0.1:9092"}
    assert source_of(options).isolation is IsolationLevel.READ_UNCOMMITTED
    assert "'retires' (is 'retries' meant?)" in caplog.text
    assert source_of({**options, "isolation": "read_committed"}).isolation is IsolationLevel.READ_COMMITTED
    config.write_text("interceptor.classes=org.example.Mine\n")
    with pytest.raises(ConfigError, match="interceptor"):
        source_of(options)
