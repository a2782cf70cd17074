"""`kctl export` with both engines end to end: a real broker, a real producer, files read back by pyarrow."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.integration.spark.peer import (
    RUN_TIMEOUT_S,
    Topic,
    assert_exact,
    export,
    export_command,
    read_rows,
    run_export,
    write_archive,
)
from tests.peers.probe import free_port, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[..., Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def entries(count: int, *, tag: str = "", partitions: int = 3) -> Iterator[dict[str, Any]]:
    """Records with and without keys, values and headers."""
    for index in range(count):
        yield {
            "key": None if index % 7 == 0 else f"key-{tag}-{index}".encode(),
            "value": None if index % 11 == 0 else f"value-{tag}-{index}-".encode() * (index % 50),
            "headers": [("tag", tag.encode()), ("null", None)][: index % 3],
            "timestamp": 1_700_000_000_000 + index,
            "partition": index % partitions,
        }


@LOCAL
def test_two_increments_hold_the_records_of_every_codec(bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(bootstrap, 3)
    for codec in CODECS:
        topic.produce(entries(600, tag=codec), codec=codec)
    first = export(topic, tmp_path, "--include-headers")
    assert_exact(topic, tmp_path)
    topic.produce(entries(500, tag="again"), codec="zstd")
    second = export(topic, tmp_path, "--include-headers")
    assert_exact(topic, tmp_path)
    assert (first["records"], second["records"]) == (3000, 500)
    assert [(partition["start"], partition["end"]) for partition in second["partitions"]] == [
        (1000, 1167),
        (1000, 1167),
        (1000, 1166),
    ]
    nothing = export(topic, tmp_path, "--include-headers")
    assert (nothing["batches"], nothing["records"], nothing["app_id"]) == ([], 0, None)


@LOCAL
def test_spark_reads_the_folder_and_the_topic_as_its_kafka_source_would(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kctl_bootstrap, 2)
    topic.produce(entries(200, partitions=2))
    target = tmp_path / "lake"
    export(topic, target, "--include-headers", "--compression", "snappy")
    orders = make_topic(kctl_bootstrap, 1, suffix="-orders")
    orders.produce({"value": b'{"id": %d, "price": {"amount": 1.5}, "note": "n"}' % n} for n in range(5))
    schema = tmp_path / "schema.json"
    price = {"type": "object", "properties": {"amount": {"type": "number"}}}
    schema.write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "price": price}}))
    events = make_topic(kctl_bootstrap, 1, suffix="-events")
    values = [b'{"id": 7, "price": {"amount": 1.50}}', b'[{"a": "\xc3\xa9"}, 1e1]', b"null", None, b"", b"2"]
    events.produce({"value": value, "key": b"7" if value == b"2" else None} for value in values)
    export(events, tmp_path / "variants", "--value", "variant", "--key", "variant", "--on-bad-record", "dead-letter")
    with subprocess.Popen(
        [*QUERIES, str(target), kctl_bootstrap, topic.name, orders.name, str(schema), str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    ) as process:
        assert process.stdout is not None
        before = json.loads(process.stdout.readline())
        topic.produce(entries(50, tag="later", partitions=2))
        printed, _ = process.communicate("\n", timeout=RUN_TIMEOUT_S)
    after = json.loads(printed)
    columns = (
        "topic string,partition int,offset bigint,timestamp timestamp,timestampType int,"
        "headers array<struct<key:string,value:binary>>"
    )
    assert before["folder"] == {"count": 200, "schema": f"key binary,value binary,{columns}"}
    assert before["batch"] == {"schema": f"key binary,value string,{columns}", "tasks": 6}
    assert before["typed"] == [[n, 1.5, '{"note": "n"}'] for n in range(5)]
    assert before["variants"]["schema"].startswith("key variant,value variant,topic string")
    shape = "OBJECT<id: BIGINT, price: OBJECT<amount: DECIMAL(2,1)>>"
    assert before["variants"]["rows"] == [
        [True, shape, 7, 1.5, None, '{"id":7,"price":{"amount":1.5}}'],
        [True, "ARRAY<VARIANT>", None, None, "é", '[{"a":"é"},10.0]'],
        [True, "VOID", None, None, None, "null"],
        [True, None, None, None, None, None],
        [False, "BIGINT", None, None, None, "2"],
    ]
    assert before["any kind"] == [[1.5]] * 5
    assert before["unknown"] == "format kctl has no option topics"
    rows = sorted((row[0], row[1], None if row[3] is None else row[3].decode()) for row in topic.rows)
    assert sorted(map(tuple, before["rows"])) == [row for row in rows if row[1] < 100]
    # The same checkpoint continues at its offsets: by Trigger.AvailableNow, and then by a processing-time trigger.
    assert before["streamed"] == 200
    assert after["offsets"][topic.name] == {"0": 125, "1": 125}
    assert sorted(map(tuple, after["rows"])) == rows


QUERIES = (sys.executable, "-m", "tests.integration.spark.spark_queries")


@LOCAL
@pytest.mark.parametrize("moment", ["planned", "first file"])
def test_a_driver_killed_in_the_middle_is_finished_by_the_next_run(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, moment: str
) -> None:
    topic = make_topic(kctl_bootstrap, 6)
    topic.produce(entries(30_000, partitions=6), codec="lz4")
    signs = {"planned": "_kctl/plans/*.json", "first file": "*/*.parquet"}
    many_files = ("--target-file-size", "32k")  # the first record is long before the last
    _interrupt(topic, tmp_path, signal.SIGKILL, *many_files, when=lambda: any(tmp_path.glob(signs[moment])))
    assert not list(tmp_path.glob("_kctl/commits/*.json"))
    topic.produce(entries(600, tag="later", partitions=6))
    document = export(topic, tmp_path)
    assert {partition["status"] for partition in document["partitions"]} == {"recovered", "exported"}
    rows = read_rows(tmp_path, topics=[topic.name])
    assert [row[:5] for row in rows] == sorted(row[:5] for row in topic.rows)
    assert not list(tmp_path.rglob(".*.tmp"))


@pytest.mark.parametrize("engine", ["local", "spark"], indirect=True)
def test_ctrl_c_ends_a_run_with_130_and_without_a_traceback(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kctl_bootstrap, 4)
    topic.produce(entries(4_000, partitions=4))
    planned = lambda: any(tmp_path.glob("_kctl/plans/*.json"))  # noqa: E731
    many_files = ("--target-file-size", "32k")  # the export lasts longer than this process may be delayed
    status, output = _interrupt(topic, tmp_path, signal.SIGINT, *many_files, when=planned)
    # CPython ends by the signal if the interrupt arrives while it creates a class; a shell reports 130 as well.
    assert status in {130, -signal.SIGINT}
    assert "Traceback" not in output
    topic.engine = "local"
    assert export(topic, tmp_path)["records"] == 4_000


def _interrupt(topic: Topic, folder: Path, number: int, *options: str, when: Callable[[], bool]) -> tuple[int, str]:
    scratch = folder.with_name(f"{folder.name}-scratch")  # a killed process leaves its temporary files there
    scratch.mkdir()
    with subprocess.Popen(
        export_command(topic, folder, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:
        moment = lambda: when() or process.poll() is not None  # noqa: E731
        wait_until(moment, what="the moment to interrupt", timeout_s=RUN_TIMEOUT_S, interval_s=0.005)
        process.send_signal(number)
        _, output = process.communicate(timeout=RUN_TIMEOUT_S)
        return process.returncode, output


@LOCAL
def test_aborted_transactions_are_left_out_unless_requested(
    apache_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(apache_bootstrap, 1)
    topic.produce(entries(50, tag="plain", partitions=1))
    topic.produce_aborted(entries(40, tag="aborted", partitions=1), f"{topic.name}-a")
    topic.produce(entries(30, tag="committed", partitions=1), transactional_id=f"{topic.name}-b")
    committed = export(topic, tmp_path / "committed", "--include-headers")
    assert_exact(topic, tmp_path / "committed")
    assert committed["partitions"][0]["end"] == 122  # both markers count as offsets
    everything = export(topic, tmp_path / "everything", "--isolation-level", "read_uncommitted")
    assert everything["records"] == 120


@LOCAL
def test_expired_records_end_a_run_with_3_unless_tolerated(
    apache_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(apache_bootstrap, 1)
    topic.produce(entries(100, partitions=1))
    export(topic, tmp_path, "--until", "40")
    topic.delete_records(0, before=60)
    status, document, output = run_export(topic, tmp_path)
    assert status == 3
    assert document["error"]["code"] == "DATA_LOSS"
    assert "offsets 40 to 59 are gone" in output
    assert "--on-data-loss=warn" in output
    document = export(topic, tmp_path, "--on-data-loss", "warn")
    assert (document["lost"], document["records"]) == (20, 40)
    assert [row[1] for row in read_rows(tmp_path, topics=[topic.name])] == [*range(40), *range(60, 100)]


@LOCAL
def test_a_recreated_topic_ends_a_run_with_3_unless_tolerated(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(bootstrap, 1)
    topic.produce(entries(20, tag="old", partitions=1))
    export(topic, tmp_path, "--include-headers")
    topic.delete()
    topic.create()
    topic.produce(entries(30, tag="new", partitions=1))
    status, _, output = run_export(topic, tmp_path, "--include-headers")
    assert status == 3
    assert "deleted and created again" in output
    assert export(topic, tmp_path, "--include-headers", "--on-data-loss", "warn")["records"] == 30
    assert len(read_rows(tmp_path, topics=[topic.name])) == 50


@LOCAL
def test_a_dry_run_plans_without_touching_anything(bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(bootstrap, 2)
    topic.produce(entries(20, partitions=2))
    document = export(topic, tmp_path / "new", "--dry-run")
    assert document["dry_run"]
    assert [(partition["start"], partition["end"], partition["records"]) for partition in document["partitions"]] == [
        (0, 10, None)
    ] * 2
    assert not (tmp_path / "new").exists()


def test_export_starts_at_a_time_and_takes_selected_partitions(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(bootstrap, 3)
    topic.produce(entries(300))
    document = export(topic, tmp_path, "--dry-run", "--from", "@1700000000150", "--partitions", "0,2")
    assert [(partition["partition"], partition["start"], partition["end"]) for partition in document["partitions"]] == [
        (0, 50, 100),
        (2, 50, 100),
    ]


def test_impossible_exports_fail_with_one_line(kctl_bootstrap: str, tmp_path: Path) -> None:
    missing = Topic.__new__(Topic)
    missing.engine = "spark"
    missing.bootstrap, missing.name = kctl_bootstrap, "no-such-topic"
    status, document, output = run_export(missing, tmp_path)
    assert (status, document["error"]["code"]) == (1, "UNKNOWN_TOPIC_OR_PARTITION")
    assert output.count("\n") == 1
    missing.bootstrap = f"127.0.0.1:{free_port()}"
    status, document, output = run_export(missing, tmp_path, "--timeout", "1s")
    assert (status, document["error"]["code"]) == (4, "CLUSTER_UNREACHABLE")
    assert output.count("\n") == 1


def test_a_warmup_leaves_nothing_but_an_archive_of_classes(written_archive: Path | None, tmp_path: Path) -> None:
    archive = written_archive or write_archive(tmp_path)
    assert archive.stat().st_size > 1 << 20
    assert list(archive.parent.iterdir()) == [archive]


GIVEN_TO_SPARK = {
    "spark.app.name": "nightly",
    "spark.ui.showConsoleProgress": "true",
    "spark.eventLog.compress": "false",
}
"""Properties of which kctl has others if they are not given."""


@LOCAL
@pytest.mark.matrix
def test_increments_may_alternate_between_engines_and_spark_submit(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(kctl_bootstrap, 3)
    for topic.engine in ("local", "spark", "local"):
        for codec in CODECS:
            topic.produce(entries(60, tag=f"{topic.engine}-{codec}"), codec=codec)
        if topic.engine == "local":
            assert export(topic, tmp_path, "--include-headers")["records"] == 300
        else:
            events = tmp_path / "_events"
            events.mkdir()
            given = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{events}"} | GIVEN_TO_SPARK
            given["spark.eventLog.compress"] = "false"
            words = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
            _submit(topic, tmp_path, "--include-headers", *words)
            assert _properties_of_application(events).items() >= given.items()
        assert_exact(topic, tmp_path)


def _submit(topic: Topic, folder: Path, *options: str) -> None:
    """Runs the spark-submit command that a dry run prints."""
    status, _, output = run_export(topic, folder, *options, "--dry-run")
    assert status == 0
    (line,) = [line for line in output.splitlines() if "spark-submit" in line]
    _, _, command = line.partition("spark-submit ")
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    subprocess.run([program, *shlex.split(command)], check=True, capture_output=True, timeout=RUN_TIMEOUT_S)


def _properties_of_application(events: Path) -> dict[str, str]:
    """The Spark properties in an event log."""
    lines = [line for path in events.rglob("events*") for line in path.read_text().splitlines()]
    updates = [event for line in lines if (event := json.loads(line))["Event"] == "SparkListenerEnvironmentUpdate"]
    properties: dict[str, str] = updates[-1]["Spark Properties"]
    return properties
