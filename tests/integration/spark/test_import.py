"""`kctl tables import`: interrupted after each batch, with and without an abort, and read back."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kctl.cli import main
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.producing.transaction import Transaction
from kctl.client.settings import ClientSettings, parse_servers
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.tables.commits.existing import ExistingExport
from kctl.tables.exec.targets.files import DiskFiles
from kctl.tables.exports import importing
from kctl.tables.exports.importing import ImportRequest, import_export, import_group
from kctl.tables.verification import data_files
from tests.integration.spark.killed_command import run_killed
from tests.integration.spark.peer import RUN_TIMEOUT_S, Row, Topic, export, read_rows, run_export

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeTopic = Callable[[str, int], Topic]
LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)


class Stopped(KctlError):
    """Ends a run."""


def contents(rows: list[Row]) -> list[tuple[Any, ...]]:
    """The records of each partition in their order, without offsets."""
    return [(row[0], *row[2:]) for row in sorted(rows, key=lambda row: row[:2])]


@LOCAL
def test_an_import_whose_process_is_killed_continues(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source = make_topic(kctl_bootstrap, 2)
    source.produce({"value": b"%d" % n, "partition": n % 2, "timestamp": 1_700_000_000_000 + n} for n in range(200))
    export(source, tmp_path / "first")
    restored = Topic(kctl_bootstrap, f"{source.name}-restored", 2, "local")
    words = ("tables", "import", str(tmp_path / "first"), restored.name, "--bootstrap-server", kctl_bootstrap)
    for moment, status in (
        ("before 1", -signal.SIGKILL),
        ("after 2", -signal.SIGKILL),
        ("before 4", -signal.SIGKILL),
        ("never", 0),
    ):
        done = run_killed(moment, *words, "--timeout", "60s")
        assert done.returncode == status, (moment, done.stderr)
    export(restored, tmp_path / "second")
    assert contents(read_rows(tmp_path / "second", topics=[restored.name])) == contents(source.rows)


@LOCAL
def test_a_delta_table_can_be_imported_after_a_compaction_by_another_program(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake merges files in the order of their sizes."""
    source = make_topic(kctl_bootstrap, 2)
    for count in (10, 300, 100):
        source.produce(
            {"value": b"%d" % n, "partition": n % 2, "timestamp": 1_700_000_000_000 + n} for n in range(count)
        )
        export(source, tmp_path / "first", "--table", "delta")
    DeltaTable(tmp_path / "first" / source.name).optimize.compact()
    restored = Topic(kctl_bootstrap, f"{source.name}-restored", 2, "local")
    words = ["tables", "import", str(tmp_path / "first"), restored.name, "--bootstrap-server", kctl_bootstrap]
    with monkeypatch.context() as small:
        small.setattr(data_files, "SORTED_BYTES_MAX", 100)
        assert main(words) == 1
    assert main(words) == 0
    export(restored, tmp_path / "second")
    assert contents(read_rows(tmp_path / "second", topics=[restored.name])) == contents(source.rows)


@LOCAL
@pytest.mark.parametrize(
    "damage",
    [
        "page",
        "twice",
        "records",
        *(pytest.param(damage, marks=pytest.mark.matrix) for damage in ("overlap", "columns")),
    ],
)
def test_an_import_that_is_refused_has_not_written_and_fences_no_other(
    kctl_bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    damage: str,
) -> None:
    """The last file is bad, and another import, whose transaction is open, can commit afterwards."""
    source = make_topic(kctl_bootstrap, 1)
    decoding = ("--value", "json") if damage == "columns" else ()
    for _ in range(2):
        source.produce({"value": b'{"n": %d}' % n, "partition": 0} for n in range(500))
        export(source, tmp_path / "first", "--table", "delta", *decoding)
    restored = Topic(kctl_bootstrap, f"{source.name}-restored", 1, "local")
    table = DeltaTable(tmp_path / "first" / source.name)
    if damage == "page":
        last = max((tmp_path / "first" / source.name / "data").rglob("*.parquet"))
        whole = last.read_bytes()
        last.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    elif damage in {"twice", "overlap"}:
        rows = table.to_pyarrow_table()
        write_deltalake(table, pa.concat_tables([rows, rows]) if damage == "twice" else rows, mode="append")
    elif damage == "records":
        restored.produce([{"value": b"other", "partition": 0}])
    words = ("tables", "import", str(tmp_path / "first"), restored.name, "--bootstrap-server", kctl_bootstrap)
    command = [sys.executable, "-m", "kctl", *words]
    position = ExistingExport(DiskFiles(tmp_path / "first")).topic(source.name).position
    before = len(restored.rows)

    async def refused() -> subprocess.CompletedProcess[str]:
        async with ClusterClient(ClientSettings(parse_servers(kctl_bootstrap)), AsyncioTransport()) as client:
            other = await Transaction.begin(client, import_group(restored.name, position))
            await other.add([TopicPartition(restored.name, 0)])
            run = partial(subprocess.run, command, check=False, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
            done = await asyncio.to_thread(run)
            await other.commit()
            return done

    done = asyncio.run(refused())
    assert (done.returncode, done.stderr.count("\n")) == (1 if damage == "page" else 5, 1), done.stderr
    export(restored, tmp_path / "second")
    assert len(read_rows(tmp_path / "second", topics=[restored.name])) == before


@LOCAL
def test_texts_are_imported_as_they_were(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    source = make_topic(kctl_bootstrap, 2)
    values = ["\u00e9".encode(), b"", None]
    source.produce(
        {"value": values[n // 2 % 3], "key": b"k" if n % 3 else None, "partition": n % 2, "timestamp": 1_000 + n}
        for n in range(16)
    )
    export(source, tmp_path / "first", "--value", "string", "--key", "string")
    restored = Topic(kctl_bootstrap, f"{source.name}-restored", 2, "local")
    words = ["tables", "import", str(tmp_path / "first"), restored.name, "--bootstrap-server", kctl_bootstrap]
    assert main(words) == 0
    export(restored, tmp_path / "second")
    assert contents(read_rows(tmp_path / "second", topics=[restored.name])) == contents(source.rows)


@LOCAL
def test_headers_are_imported_as_far_as_the_export_has_them(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_topic(kctl_bootstrap, 1)
    given = [("a", b"1"), ("b", b"2"), ("a", None)]
    source.produce({"value": b"%d" % n, "partition": 0, "headers": given[:n]} for n in range(4))
    for form, expected in (
        ("map", [(), given[:1], given[:2], given[1:]]),
        ("columns:b,a", [(), given[:1], [given[1], given[0]], given[1:2]]),
    ):
        folder, name = tmp_path / form[:3], f"{source.name}-{form[:3]}"
        export(source, folder, "--headers", form)
        restored = Topic(kctl_bootstrap, name, 1, "local")
        words = ["tables", "import", str(folder), restored.name, "--bootstrap-server", kctl_bootstrap]
        capsys.readouterr()
        assert main(words) == 0
        assert f"headers are imported as far as the export has them ({form})" in capsys.readouterr().err
        export(restored, tmp_path / name, "--include-headers")
        assert [row[5] for row in read_rows(tmp_path / name, topics=[name])] == [tuple(headers) for headers in expected]


@LOCAL
@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_decoded_records_are_imported_byte_for_byte(
    kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Except those that could not be decoded, which are counted."""
    source = make_topic(kctl_bootstrap, 2)
    values = [b'{"a": 1.10000000000000000001,  "b": -0}', b'{"b": 1, "b": 2}', b' {"a": null}', b"not json", None]
    source.produce(
        {"value": values[n // 2 % 5], "key": b'{ "k":1}' if n % 3 else None, "partition": n % 2} for n in range(20)
    )
    options = ("--value", "json", "--key", "json", "--table", kind)
    export(source, tmp_path / "without", *options)
    export(source, tmp_path / "first", *options, "--keep-raw")
    restored = Topic(kctl_bootstrap, f"{source.name}-restored", 2, "local")
    words = [restored.name, "--bootstrap-server", kctl_bootstrap]
    assert main(["tables", "import", str(tmp_path / "without"), *words]) == 5
    assert "export with --keep-raw" in capsys.readouterr().err
    assert main(["tables", "import", str(tmp_path / "first"), *words]) == 0
    assert f"4 records in {tmp_path}/first/_dead_letters are not imported" in capsys.readouterr().err
    export(restored, tmp_path / "second")
    expected = [row for row in contents(source.rows) if row[2] != b"not json"]
    assert contents(read_rows(tmp_path / "second", topics=[restored.name])) == expected
    status, _, output = run_export(source, tmp_path / "first", *options)
    assert status == 2
    assert "--keep-raw" in output


@LOCAL
def test_variants_are_imported_as_json(kctl_bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    source = make_topic(kctl_bootstrap, 2)
    values = [b'{"b": [1.50, null], "a": 2e0}', b'"text"', b"null", None]
    source.produce(
        {"value": values[n // 2 % 4], "key": b'{"k": 1}' if n % 3 else None, "partition": n % 2, "timestamp": 1_000 + n}
        for n in range(16)
    )
    export(source, tmp_path / "first", "--value", "variant", "--key", "variant")
    restored = Topic(kctl_bootstrap, f"{source.name}-restored", 2, "local")
    words = ["tables", "import", str(tmp_path / "first"), restored.name, "--bootstrap-server", kctl_bootstrap]
    assert main(words) == 0
    export(restored, tmp_path / "second")
    texts = {values[0]: b'{"a":2.0,"b":[1.50,null]}', b'{"k": 1}': b'{"k":1}'}
    expected = [
        tuple(texts.get(cell, cell) if isinstance(cell, bytes) else cell for cell in row)
        for row in contents(source.rows)
    ]
    assert contents(read_rows(tmp_path / "second", topics=[restored.name])) == expected


@LOCAL
@pytest.mark.parametrize(("bootstrap", "kind"), [("kctl", "parquet"), ("apache", "delta")], indirect=["bootstrap"])
def test_an_import_that_is_interrupted_after_any_batch_is_exact(
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = make_topic(bootstrap, 2)
    source.produce(
        {
            "value": None if n % 7 == 0 else b"%d" % n,
            "key": b"k%d" % (n % 3) if n % 5 else None,
            "partition": n % 2,
            "timestamp": 1_700_000_000_000 + n,
            "headers": [("a", b"1"), ("a", None)] if n % 4 == 0 else [],
        }
        for n in range(120)
    )
    export(source, tmp_path / "first", "--table", kind, "--include-headers")
    restored = Topic(bootstrap, f"{source.name}-restored", 2, "local")

    def run(*words: str) -> tuple[int, Any]:
        options = ("--bootstrap-server", bootstrap, "--format", "json", "--timeout", "60s")
        status = main(["tables", "import", str(tmp_path / "first"), restored.name, *options, *words])
        return status, json.loads(capsys.readouterr().out)

    status, rows = run("--dry-run")
    assert (status, [(row["start"], row["records"], row["status"]) for row in rows]) == (0, [(0, 0, "planned")] * 2)
    # Four batches of 30 rows, each in a transaction of its own; the runs end in the first, second and third of theirs.
    monkeypatch.setattr(importing, "COMMIT_MS", 0)
    monkeypatch.setattr(data_files, "READ_ROWS_MAX", 30)
    abort = Transaction.abort

    async def no_abort(_: Transaction) -> None: ...

    for attempt in itertools.count():
        calls = itertools.count()

        def interrupt(_: int, calls: itertools.count[int] = calls, attempt: int = attempt) -> None:
            if next(calls) == attempt % 3:
                raise Stopped("stopped")

        async def interrupted(client: Any, files: Any, existing: Any, request: ImportRequest, _: Any) -> Any:
            return await import_export(client, files, existing, request, interrupt)

        with monkeypatch.context() as crashing:
            crashing.setattr("kctl.commands.tables.exports.import_export", interrupted)
            crashing.setattr(Transaction, "abort", no_abort if attempt % 2 else abort)
            status, rows = run()
        if status == 0:
            break
        assert attempt < 20
        assert (status, rows["error"]["message"]) == (1, "stopped")
    assert attempt > 2
    status, rows = run()
    assert (status, [(row["records"], row["status"]) for row in rows]) == (0, [(0, "complete")] * 2)
    export(restored, tmp_path / "second", "--include-headers")
    assert contents(read_rows(tmp_path / "second", topics=[restored.name])) == contents(source.rows)

    # What was exported since is added; other records in the topic are protected.
    source.produce([{"value": b"later", "partition": 0, "timestamp": 1_700_000_000_500}])
    export(source, tmp_path / "first", "--table", kind, "--include-headers")
    assert [row["records"] for row in run()[1]] == [1, 0]
    status = main(
        [
            *("tables", "import", str(tmp_path / "second"), source.name, "--from-topic", restored.name),
            *("--bootstrap-server", bootstrap, "--timeout", "60s"),
        ]
    )
    assert status == 5
    assert "has records, and group kctl-import." in capsys.readouterr().err
