"""`format("kctl")` as a sink: what tasks and the driver do, each stopped at any point, read by librdkafka."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from pyspark.sql.pandas.types import from_arrow_schema

from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.producing.partitioners import partition_of_key
from kctl.client.producing.transaction import Transaction
from kctl.errors import ApiError, ConfigError, KctlError, UsageError
from kctl.tables.engines.sink_options import sink_of
from kctl.tables.exec.queries.sink_commits import abort_rows, commit_rows, decide, is_committed
from kctl.tables.exec.queries.topic_sink import TopicSink, WrittenRows, rows_of, transactional_id, write_rows
from kctl.tables.exec.queries.topic_writer import TopicWriter
from tests.integration.spark.peer import RUN_TIMEOUT_S, TIMEOUT_S, Topic
from tests.integration.spark.test_export import LOCAL, MakeTopic
from tests.peers.probe import wait_until
from tests.peers.spark_cluster import spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.binary())])


def consume(bootstrap: str, topic: str, partitions: int) -> Iterator[Any]:
    """Yield the committed records of a topic by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "broker.address.family": "v4",
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    ended = 0
    try:
        while ended < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic} is blocked by an open transaction"
            error = message.error()
            if error is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    finally:
        consumer.close()


def values_of(topic: Topic) -> Counter[bytes]:
    return Counter(message.value() for message in consume(topic.bootstrap, topic.name, topic.partitions))


def sink(to: Topic, version: int | None = None, schema: pa.Schema = SCHEMA, **more: str) -> TopicSink:
    of_batch = {} if version is None else {"txnAppId": to.name, "txnVersion": str(version)}
    options = {"kafka.bootstrap.servers": to.bootstrap, "topic": to.name, **of_batch, **more}
    return sink_of(options, from_arrow_schema(schema), overwrites=False)


def run_tasks(of: TopicSink, values: Sequence[str], first_task: int = 0) -> list[WrittenRows]:
    """Write a value by each task."""

    async def run() -> list[WrittenRows]:
        written = []
        for task, value in enumerate(values, first_task):
            batch = pa.record_batch([["k"], [value.encode()]], schema=SCHEMA)
            is_repetition = of.batch is not None and await is_committed(of.settings, of.group, of.batch)
            written.append(await write_rows(of, task, rows_of([batch], of.columns), is_committed=is_repetition))
        return written

    return asyncio.run(run())


def commit(of: TopicSink, written: list[WrittenRows]) -> str:
    return asyncio.run(commit_rows(of.settings, written, of.batch))


def only_decide(of: TopicSink, written: list[WrittenRows]) -> None:
    """What a driver has done that is killed before it ends the transactions."""

    async def run() -> None:
        async with ClusterClient(of.settings, AsyncioTransport()) as client:
            assert of.batch is not None
            await decide(client, written, of.batch)

    asyncio.run(run())


@LOCAL
def test_a_batch_is_written_once_wherever_it_is_stopped(kctl_bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(kctl_bootstrap, 2)
    run_tasks(sink(topic, 0), ["killed before its commit", "x"])
    first = sink(topic, 0)
    assert commit(first, run_tasks(first, ["a", "b"])) == ""
    expected = Counter([b"a", b"b"])
    assert values_of(topic) == expected
    again = run_tasks(sink(topic, 0), ["a", "b", "c"])
    assert [rows.is_repetition for rows in again] == [True] * 3
    assert "batch 0 of kctl-spark." in commit(first, again)
    assert values_of(topic) == expected

    second = sink(topic, 1)
    only_decide(second, run_tasks(second, ["d", "e", "f"]))
    assert "was committed before" in commit(second, run_tasks(sink(topic, 1), ["d", "e", "f"]))
    expected += Counter([b"d", b"e", b"f"])
    assert values_of(topic) == expected

    third = sink(topic, 2)
    asyncio.run(abort_rows(third.settings, run_tasks(third, ["aborted by the driver"])))
    assert commit(third, run_tasks(third, [])) == ""  # of a batch without rows
    assert commit(third, run_tasks(third, ["g"])) == ""
    assert "was committed before" in commit(first, run_tasks(first, ["an earlier batch"]))
    assert values_of(topic) == expected + Counter([b"g"])


@LOCAL
def test_of_two_drivers_at_once_one_commits(kctl_bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    of = sink(topic, 0)
    paused, other = run_tasks(of, ["a", "b"]), run_tasks(of, ["a", "b"])
    with pytest.raises(KctlError, match="nothing is committed: the transaction of task 0 has ended"):
        commit(of, paused)
    assert commit(of, other) == ""
    assert "was committed before" in commit(of, paused)
    assert values_of(topic) == Counter([b"a", b"b"])

    # One task of the second driver looks before the first one commits, and the other one after it.
    of = sink(topic, 1)
    first, early = run_tasks(of, ["c"]), run_tasks(of, ["d"], first_task=1)
    assert commit(of, first) == ""
    assert "was committed before" in commit(of, [*run_tasks(of, ["c"]), *early])
    assert values_of(topic) == Counter([b"a", b"b", b"c"])


@LOCAL
def test_rows_that_are_lost_after_the_commit_of_a_batch_are_reported(
    kctl_bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(kctl_bootstrap, 1)
    of = sink(topic, 5)
    written = run_tasks(of, ["a", "b"])
    only_decide(of, written)

    async def fence() -> None:
        async with ClusterClient(of.settings, AsyncioTransport()) as client:
            await Transaction.begin(client, transactional_id(of.group, 1))

    asyncio.run(fence())
    with pytest.raises(KctlError, match=f"rows are missing: delete the group with 'kctl groups delete {of.group}'"):
        commit(of, run_tasks(of, ["a", "b"]))
    assert values_of(topic) == Counter([b"a"])


@LOCAL
def test_rows_have_keys_headers_topics_and_partitions(kctl_bootstrap: str, make_topic: MakeTopic) -> None:
    topic, other = make_topic(kctl_bootstrap, 3), make_topic(kctl_bootstrap, 1, "-other")
    columns = {
        "topic": pa.array([topic.name, other.name, topic.name, topic.name]),
        "partition": pa.array([2, None, None, 0], pa.int32()),
        "key": pa.array(["k", None, "a key", None]),
        "value": pa.array(["1", "ä", None, ""]),
        "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, [], None], HEADERS),
        "offset": pa.array([7, 7, 7, 7]),
    }
    batch = pa.record_batch(columns)
    for words in ({}, {"transactional": "false", "kafka.compression.type": "zstd"}):
        writer = TopicWriter(sink(topic, None, batch.schema, topic="", **words))
        writer.commit([writer.write(iter([batch]))])
    found = [
        (message.partition(), message.key(), message.value(), message.headers())
        for message in consume(kctl_bootstrap, topic.name, 3)
    ]
    place = partition_of_key(b"a key", 3)
    expected = [
        (2, b"k", b"1", [("h", b"1"), ("h", None)]),
        (place, b"a key", None, None),
        (0, None, b"", None),
    ]
    assert sorted(found, key=repr) == sorted(expected * 2, key=repr)
    assert [message.value() for message in consume(kctl_bootstrap, other.name, 1)] == ["ä".encode()] * 2

    for row, complaint in (
        ({"partition": 9, "value": "x"}, "PARTITION|partition 9|-9"),
        ({"topic": None, "value": "x"}, "row 1 of a task has no topic: give the option topic"),
        ({"partition": -1, "value": "x"}, "row 1 of a task: -1 is not a partition"),
        ({"headers": [{"key": None, "value": b""}]}, "row 1 of a task has a header without a key"),
        ({"value": "x" * 2_000_000}, "larger"),
    ):
        rows = [{"topic": topic.name, "value": "good"}, {"topic": topic.name, **row}]
        broken = pa.RecordBatch.from_pylist(rows, batch.schema)
        with pytest.raises((UsageError, ApiError), match=complaint):
            TopicWriter(sink(topic, None, batch.schema, topic="")).write(iter([broken]))
    assert len(list(consume(kctl_bootstrap, topic.name, 3))) == 6


def test_options_and_columns_that_do_not_fit_are_named() -> None:
    good = {"topic": "orders", "kafka.bootstrap.servers": "127.0.0.1:9092"}
    for options, schema, complaint in (
        ({"topics": "a"}, SCHEMA, "no option topics; it has bootstrap.servers, command.config, topic"),
        ({"startingOffsets": "earliest"}, SCHEMA, "no option startingoffsets"),
        ({"topic": "a,b"}, SCHEMA, "topic takes one name"),
        ({"topic": ""}, SCHEMA, "give the option topic, or rows with a column topic"),
        ({}, pa.schema([("key", pa.string()), ("id", pa.int64())]), "no column value; they have key, id"),
        ({}, pa.schema([("value", pa.int64())]), "the column value is bigint, and must be binary or string"),
        ({}, pa.schema([("value", pa.string()), ("partition", pa.string())]), "partition is string, and must be int"),
        ({}, pa.schema([("value", pa.string()), ("headers", pa.string())]), "the column headers is string"),
        ({"txnAppId": "a"}, SCHEMA, "txnAppId and txnVersion belong together"),
        ({"txnAppId": "a", "txnVersion": "x"}, SCHEMA, "txnVersion"),
        ({"txnAppId": "a", "txnVersion": "1", "transactional": "false"}, SCHEMA, "txnAppId needs transactions"),
        ({"transactional": "yes"}, SCHEMA, "transactional takes true, false"),
        ({"kafka.acks": "1"}, SCHEMA, "acks below all"),
        ({"kafka.transactional.id": "x"}, SCHEMA, "kafka.transactional.id: tasks have ids of their own"),
        ({"kafka.value.serializer": "x"}, SCHEMA, "values are bytes or text"),
        ({"kafka.linger.ms": "x"}, SCHEMA, "linger.ms"),
    ):
        with pytest.raises((UsageError, ConfigError), match=complaint):
            sink_of({**good, **options}, from_arrow_schema(schema), overwrites=False)
    with pytest.raises(UsageError, match="use the mode append"):
        sink_of(good, from_arrow_schema(SCHEMA), overwrites=True)
    with pytest.raises(UsageError, match="txnAppId is an option of batch queries"):
        sink_of(
            {**good, "txnAppId": "a", "txnVersion": "1"}, from_arrow_schema(SCHEMA), overwrites=False, is_streaming=True
        )


KILLS = 3


def start(
    topic: Topic, target: Topic, checkpoint: Path, *words: str, master: str = "local[2]"
) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("spark_writes.py")
    command = [sys.executable, str(program), master, topic.bootstrap, topic.name, target.name, str(checkpoint), *words]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


@LOCAL
def test_spark_writes_batches_and_streams(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topics = make_topic(kctl_bootstrap, 2), make_topic(kctl_bootstrap, 2, "-target")
    write_batches_and_streams(topics, tmp_path, "local[2]")


@LOCAL
@pytest.mark.matrix
@pytest.mark.timeout(600)
def test_executors_of_a_cluster_write_batches_and_streams(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topics = make_topic(kctl_bootstrap, 2), make_topic(kctl_bootstrap, 2, "-target")
    with spark_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        write_batches_and_streams(topics, tmp_path, cluster.master)


def write_batches_and_streams(topics: tuple[Topic, Topic], tmp_path: Path, master: str) -> None:
    topic, target = topics
    topic.produce({"key": b"%d" % n, "value": b"%d" % n, "partition": n % 2} for n in range(250))
    process = start(topic, target, tmp_path / "checkpoint", "batch", "again", master=master)
    printed, errors = process.communicate(timeout=RUN_TIMEOUT_S)
    assert process.returncode == 0, errors
    lines = printed.splitlines()
    assert lines[0] == "batch"
    assert "the column value is bigint, and must be binary or string" in lines[1]
    assert lines[2].startswith("again ")
    values = [b"batch %d" % n for n in range(40)] + [b"%d" % n for n in range(250)]
    assert values_of(target) == Counter(values)
    for message in consume(target.bootstrap, target.name, 2):
        # Rows of a topic have the column partition, which Spark's sink obeys too.
        place = partition_of_key(message.key(), 2) if message.value().startswith(b"b") else int(message.key()) % 2
        assert message.partition() == place


@LOCAL
@pytest.mark.matrix
@pytest.mark.timeout(1_500)  # each of the starts of Spark takes a minute on a busy machine
def test_a_streaming_query_that_is_killed_writes_each_record_once(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, target = make_topic(kctl_bootstrap, 2), make_topic(kctl_bootstrap, 2, "-target")
    chance = random.Random(39)
    count = 0
    for _ in range(KILLS):
        topic.produce({"value": b"%d" % n, "partition": n % 2} for n in range(count, count + 1_500))
        count += 1_500
        with start(topic, target, tmp_path / "checkpoint", "forever") as process:
            enough = written_records(target) + chance.randrange(1, 800)
            wait_until(
                lambda enough=enough: written_records(target) >= enough or process.poll() is not None,  # type: ignore[misc]
                what="records",
                timeout_s=RUN_TIMEOUT_S,
                interval_s=0.1,
            )
            assert process.poll() is None, process.communicate()
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    with start(topic, target, tmp_path / "checkpoint") as process:
        _, errors = process.communicate(timeout=RUN_TIMEOUT_S)
    assert process.returncode == 0, errors
    assert values_of(target) == Counter(b"%d" % n for n in range(count))


def written_records(topic: Topic) -> int:
    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": "ends", "broker.address.family": "v4"})
    try:
        tps = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        return sum(consumer.get_watermark_offsets(tp, TIMEOUT_S)[1] for tp in tps)
    finally:
        consumer.close()
