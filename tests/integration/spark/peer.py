"""Helpers of export tests: produce with librdkafka, run `kctl`, and read the files with pyarrow."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.cli import main
from kctl.tables.engines import session
from tests.peers.markers import wait_for_markers
from tests.peers.probe import wait_until

TIMEOUT_S = 60
RUN_TIMEOUT_S = 250
"""A start of Spark takes ten seconds of processor time, and a busy machine may give it a tenth of a core."""

ENGINES = {"local": ("export", "--processes", "2"), "spark": ("export", "--engine", "spark", "--master", "local[2]")}
"""The command of each engine."""

Row = tuple[int, int, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""Partition, offset, key, value, timestamp in ms, headers."""


class Topic:
    """A topic, all records that were delivered to it, and the engine that exports it."""

    def __init__(self, bootstrap: str, name: str, partitions: int, engine: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.partitions = partitions
        self.engine = engine
        self.rows: list[Row] = []
        self._common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "broker.address.family": "v4",
        }
        self._admin = AdminClient(self._common)
        self.create()

    def create(self) -> None:
        # The records have timestamps of 2023, and the default retention would delete them.
        new = NewTopic(self.name, self.partitions, 1, config={"retention.ms": "-1"})
        # Apache Kafka deletes a topic completely some time after it is gone from the metadata.
        wait_until(lambda: self._is_created(new), what=f"creating {self.name}", timeout_s=TIMEOUT_S, interval_s=0.2)
        wait_until(self._has_leaders, what=f"leaders of {self.name}", timeout_s=TIMEOUT_S)

    def _is_created(self, new: NewTopic) -> bool:
        try:
            self._admin.create_topics([new])[self.name].result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(TIMEOUT_S)
        gone = lambda: self.name not in self._admin.list_topics(timeout=TIMEOUT_S).topics  # noqa: E731
        wait_until(gone, what=f"{self.name} to be gone", timeout_s=TIMEOUT_S, interval_s=0.2)
        self.rows.clear()

    def delete_records(self, partition: int, before: int) -> None:
        tp = TopicPartition(self.name, partition, before)
        self._admin.delete_records([tp])[tp].result(TIMEOUT_S)
        self.rows = [row for row in self.rows if row[0] != partition or row[1] >= before]

    def produce(self, entries: Iterable[dict[str, Any]], *, codec: str = "none", transactional_id: str = "") -> None:
        """Entries are arguments of Producer.produce; with a transactional id they are one committed transaction."""
        producer = self._producer(codec, transactional_id)
        if transactional_id:
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
        for entry in entries:
            # The delivery report contains everything about the record except its headers.
            delivered = partial(self._on_delivery, tuple(entry.get("headers") or ()))
            producer.produce(self.name, **entry, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        if transactional_id:
            producer.commit_transaction(TIMEOUT_S)
            wait_for_markers(self.bootstrap, self.name)

    def produce_aborted(self, entries: Iterable[dict[str, Any]], transactional_id: str) -> None:
        producer = self._producer("none", transactional_id)
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for entry in entries:
            producer.produce(self.name, **entry)
        assert producer.flush(TIMEOUT_S) == 0
        producer.abort_transaction(TIMEOUT_S)
        wait_for_markers(self.bootstrap, self.name)

    def _producer(self, codec: str, transactional_id: str) -> Producer:
        extra = {"transactional.id": transactional_id} if transactional_id else {}
        return Producer({**self._common, "compression.type": codec, "linger.ms": 5, **extra})

    def _on_delivery(
        self, headers: tuple[tuple[str, bytes | None], ...], error: KafkaError | None, message: Message
    ) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.rows.append((partition, offset, message.key(), message.value(), message.timestamp()[1], headers))

    def _has_leaders(self) -> bool:
        topic = self._admin.list_topics(self.name, timeout=TIMEOUT_S).topics[self.name]
        return len(topic.partitions) == self.partitions and all(p.leader >= 0 for p in topic.partitions.values())


def export_command(topic: Topic, folder: Path | str, *options: str) -> list[str]:
    """The command line of an export, for a process of its own."""
    return [sys.executable, "-m", "kctl", *export_words(topic, folder, *options)]


def export_words(topic: Topic, folder: Path | str, *options: str) -> list[str]:
    """The arguments of an export."""
    return [
        *(*ENGINES[topic.engine], topic.name, "--to", str(folder)),
        *("--bootstrap-server", topic.bootstrap, "--format", "json", *options),
    ]


def run_export(topic: Topic, folder: Path | str, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, the document on stdout, and stderr."""
    status, printed, output = run_engine(topic.engine, *export_words(topic, folder, *options))
    assert "Traceback" not in output, output
    return status, json.loads(printed), output


def run_engine(engine: str, *words: str) -> tuple[int, str, str]:
    """Runs the command of an engine; exit status, stdout and stderr.

    The local engine runs in this process, which has imported numpy and pyarrow already, and keeps the process that its
    tasks are forked from.
    """
    if engine == "local":
        printed, output = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(output):
            status = main(words)
        return status, printed.getvalue(), output.getvalue()
    done = subprocess.run(
        [sys.executable, "-m", "kctl", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


def export(topic: Topic, folder: Path | str, *options: str) -> dict[str, Any]:
    """An export that must succeed; returns the document that it printed."""
    status, document, output = run_export(topic, folder, *options)
    assert status == 0, output
    return document


def write_archive(cache: Path) -> Path:
    """Runs `kctl tables spark-warmup` with this cache; returns the path of the archive that it prints.

    On a loaded machine writing the archive takes longer than any export waits for the end of the JVM.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setattr(session, "JVM_END_TIMEOUT_S", 0.001)
        status, printed, output = run_engine("local", "tables", "spark-warmup", "--format", "json")
    assert status == 0, output
    return Path(json.loads(printed)["archive"])


def read_rows(folder: Path, *, topics: Sequence[str]) -> list[Row]:
    """Every row of every file that a reader of Parquet folders finds, in order of partition and offset."""
    rows: list[Row] = []
    for path in sorted(folder.rglob("[!._]*.parquet")):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            assert row["topic"] in topics
            headers = tuple((header["key"], header["value"]) for header in row.get("headers") or ())
            timestamp_ms = round(row["timestamp"].timestamp() * 1000)
            rows.append((row["partition"], row["offset"], row["key"], row["value"], timestamp_ms, headers))
    return sorted(rows, key=lambda row: row[:2])


def assert_exact(topic: Topic, folder: Path) -> None:
    """The folder contains exactly the delivered records, and no other files are left."""
    assert read_rows(folder, topics=[topic.name]) == sorted(topic.rows, key=lambda row: row[:2])
    assert not list(folder.rglob(".*.tmp"))
