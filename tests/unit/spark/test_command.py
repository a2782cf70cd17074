"""`kctl export --engine spark` before it reaches a cluster or Spark: usage errors, missing packages, start-up cost."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.cli import main
from kctl.tables.engines.session import JVM_FLAGS
from kctl.tables.engines.submission import PROGRAM
from tests.peers.probe import free_port
from tests.rows import for_rows


def command(*words: str) -> list[str]:
    return ["export", "--engine", "spark", "orders", *words]


@pytest.mark.long
def test_help_does_not_load_spark() -> None:
    verbs = ("verify", "status", "import", "compact", "maintain", "profile")
    commands = [["export"], *(["tables", verb] for verb in verbs)]
    code = (
        "import sys\n"
        "from kctl.cli import main\n"
        f"for words in {commands}:\n"
        "    assert main([*words, '--help']) == 0\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_without_pyspark_one_line_explains_how_to_install_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    folder = tmp_path / "new"
    assert main(command("--to", str(folder), "--format", "json")) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "SPARK_MISSING"
    assert err == "kctl: pyspark missing: pip install 'kctl-kafka[spark]'\n"
    assert not folder.exists()


def test_without_java_one_line_explains_how_to_install_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(command("--to", str(tmp_path / "new"))) == 1
    err = capsys.readouterr().err
    assert "Spark needs Java 17 or newer" in err
    assert err.count("\n") == 1


def test_a_wrong_home_of_spark_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "moved"))
    assert main(command("--to", str(tmp_path / "new"))) == 1
    expected = f"kctl: SPARK_HOME is '{tmp_path / 'moved'}', where no bin/spark-submit is: correct or unset it\n"
    assert capsys.readouterr().err == expected


@for_rows(
    "words, complaint",
    [
        (("--to", "hdfs://name/orders"), "is neither a folder nor a URL of an object store (s3://, gs://, az://)"),
        (("--to", "s3://bucket"), "write s3://BUCKET/PATH"),
        (("--to", "s3://bucket/a//b"), "write s3://BUCKET/PATH"),
        (("--to", "s3://bucket/a/../b"), "write s3://BUCKET/PATH"),
        (("--to", "s3://key:secret@bucket/orders"), "set credentials in the environment"),
        (("--to", "s3://bucket/orders?region=x"), "has a query"),
        (("--to", "out", "--compression", "lzma"), "lzma"),
        (("--to", "out", "--value", "variant", "--table", "iceberg"), "use --table parquet, or --value json"),
        (("--to", "out", "--key", "variant", "--table", "delta"), "use --table parquet, or --key json"),
        (("--to", "out", "--value", "variant", "--value-schema", "registry"), "--value-schema is an option of --value"),
        (("--to", "out", "--from", "yesterday"), "is not a valid offset"),
        (("--to", "out", "--partitions", "a"), "a"),
        (("--to", "out", "--target-file-size", "0"), "--target-file-size: must be at least 1, not '0'"),
        (("--to", "out", "--conf", "spark.executor.memory"), "NAME=VALUE"),
        (("--to", "out", "--master", "sprak://h:7077"), "is not a Spark master"),
        (("--to", "out", "--deploy-mode", "cluster"), "'local[*]' has no cluster"),
        (("--to", "out", "--deploy-mode", "cluster", "--master", "spark://h:7077"), "in client mode only"),
        (("--to", "out", "--py-files", "a.py,b.py"), "--py-files a.py: there is no such file"),
        (("--to", "out", "--archives", "file:/none.zip#env"), "--archives file:/none.zip#env: there is no such file"),
        (("--to", "out", "--packages", "group:name"), "--packages takes GROUP:NAME:VERSION, not 'group:name'"),
        (("--to", "out", "--from", "latest", "--until", "earliest"), "there is nothing between them"),
        (("--to", "out", "--engine", "local", "--archives", "a.zip"), "--archives is an option of --engine spark"),
        (("--to", "out", "--engine", "local", "--deploy-mode", "client"), "--deploy-mode is an option"),
        (("--to", "out", "--follow", "--dry-run"), "exclude each other"),
        (("--to", "out", "--every", "5m"), "--every is an option of --follow"),
        (("--to", "out", "--metrics-listen", "::"), "--metrics-listen is an option of --follow"),
        (("--to", "out", "--follow", "--every", "1ms"), "--every: must be between 100ms and 1d"),
        (("--to", "out", "--follow", "--format", "json"), "use --format jsonl"),
        (("--to", "out", "--metrics-port", "0"), "--metrics-port is an option of --follow"),
        ((), "--to"),
    ],
)
def test_invalid_options_are_usage_errors(
    words: tuple[str, ...],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command(*words)) == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_dry_run_prints_the_spark_submit_command_of_a_cluster_driver(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver finds the files in its working folder; secrets of Spark are not printed."""
    monkeypatch.chdir(tmp_path)
    server = f"127.0.0.1:{free_port()}"
    target = str(tmp_path / "lake")
    Path("settings").mkdir()
    Path("settings/client.properties").write_text(f"bootstrap.servers={server}\n")
    Path("order.avsc").write_text("{}")
    Path("env.tar.gz").touch()
    words = [*("--to", target, "--master", "yarn", "--deploy-mode", "cluster", "--dry-run")]
    words += ("--conf", "spark.authenticate.secret=k7", "--archives", "env.tar.gz#env", "--packages", "g:a:1")
    words += ("--command-config", "settings/client.properties", "--value", "avro", "--value-schema", "order.avsc")
    assert main(command(*words, "--include-headers", "--timeout", "1s")) == 4
    line = capsys.readouterr().err.splitlines()[0].removeprefix("kctl: ")
    assert shlex.split(line) == [
        *("spark-submit", "--master", "yarn", "--deploy-mode", "cluster", "--name", "kctl export"),
        *("--conf", f"spark.executor.defaultJavaOptions={JVM_FLAGS}"),
        *("--conf", "spark.authenticate.secret=[hidden]", "--conf", "spark.jars.packages=g:a:1"),
        *("--conf", "spark.archives=env.tar.gz#env", "--files", "order.avsc,settings/client.properties"),
        *(str(PROGRAM), "export", "--engine", "spark", "orders", "--include-headers", "--value", "avro"),
        *("--value-schema", "order.avsc", "--master", "yarn", "--bootstrap-server", server),
        *("--command-config", "client.properties", "--timeout", "1000ms", "--to", target, "--no-progress"),
    ]


def test_a_dry_run_without_a_cluster_is_unreachable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = f"127.0.0.1:{free_port()}"
    words = command("--to", str(tmp_path), "--dry-run", "--bootstrap-server", server, "--timeout", "300ms")
    assert main(words) == 4
    assert "cannot reach" in capsys.readouterr().err


TABLES = (["verify", "orders", "TARGET"], ["status", "TARGET"], ["import", "TARGET", "orders"])


@pytest.mark.parametrize("words", TABLES, ids=lambda words: words[0])
def test_a_target_without_an_export_is_a_usage_error(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target, complaint in ((str(tmp_path / "new"), "contains no export"), ("s3://bucket", "write s3://BUCKET/PATH")):
        assert main(["tables", *(target if word == "TARGET" else word for word in words)]) == 2
        err = capsys.readouterr().err
        assert complaint in err
        assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [TABLES[0], TABLES[2]], ids=lambda words: words[0])
def test_without_pyarrow_one_line_explains_how_to_install_it(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kctl.tables.exec.targets.target.find_spec", lambda _: None)
    assert main(["tables", *(str(tmp_path) if word == "TARGET" else word for word in words), "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "PACKAGE_MISSING"
    assert err == "kctl: pyarrow missing: pip install 'kctl-kafka[export]'\n"
