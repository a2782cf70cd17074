"""Commands refuse to read from files that are not regular instead of waiting for them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.dump.kinds import files_of
from kctl.system.user_files import NAMED_FILE_BYTES_MAX
from tests.peers.forked_kctl import run_kctl

ROOT = Path(__file__).parent.parent.parent
NAME = "00000000000000000000.log"
TIMEOUT_S = 60
READERS = {
    "dump-log": ["dump-log"],
    "dump-log --compat": ["dump-log", "--compat", "kafka-4", "--files"],
    "dump-log --rebuild-index": ["dump-log", "--rebuild-index"],
    "dump-log --index-sanity-check": ["dump-log", "--index-sanity-check"],
    "broker start": ["broker", "start", "--config"],
    "--command-config": ["topics", "list", "--command-config"],
    "reassign": ["reassign", "execute", "--reassignment-json-file"],
    "registry serve": ["registry", "serve", "--port", "0", "--user-file"],
    "elect": ["elect", "--preferred", "--path-to-json-file"],
    "reset-offsets": ["groups", "reset-offsets", "g", "--dry-run", "--from-file"],
}
NOBODY = "127.0.0.1:1"


def kctl(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a separate process, because it would wait for ever if it failed the test."""
    return run_kctl(*words, environment={**os.environ, "KCTL_BOOTSTRAP_SERVER": NOBODY})


@pytest.mark.parametrize("command", READERS)
def test_fifo_is_refused_by_its_name(tmp_path: Path, command: str) -> None:
    fifo = tmp_path / NAME
    os.mkfifo(fifo)
    ran = kctl(*READERS[command], fifo)
    assert ran.returncode in {1, 2}
    assert f"{fifo}" in ran.stderr
    assert "is a FIFO, not a regular file" in ran.stderr


def test_files_of_other_kinds_are_refused_by_name(tmp_path: Path) -> None:
    named = tmp_path / NAME
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(named))
        assert "is a socket, not a regular file" in kctl("dump-log", named).stderr
    named.unlink()
    named.symlink_to("/dev/zero")
    assert "is a device, not a regular file" in kctl("dump-log", named).stderr
    assert "is a directory, not a regular file" in kctl("topics", "list", "--command-config", tmp_path).stderr


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_fifo_in_the_folder_of_a_partition_is_a_row_and_the_other_files_are_read(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    os.mkfifo(folder / f"{'0' * 20}{suffix}")
    (folder / "partition.metadata").write_text("version: 0\n")
    rows = [json.loads(line) for line in kctl("dump-log", "--format", "jsonl", folder).stdout.splitlines()]
    refused = [row for row in rows if row["error"]]
    assert {(row["error"], row["message"]) for row in refused} == {("OS_ERROR", "is a FIFO, not a regular file")}
    assert [row["value"] for row in rows if row["type"] == "property"] == ["0"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_fifo_in_place_of_an_index_is_not_read_when_indexes_are_built_anew(tmp_path: Path, suffix: str) -> None:
    (tmp_path / NAME).write_bytes(b"")
    os.mkfifo(tmp_path / f"{'0' * 20}{suffix}")
    ran = kctl("dump-log", "--rebuild-index", tmp_path)
    assert (ran.returncode, "is a FIFO, not a regular file" in ran.stderr) == (1, True)


@pytest.mark.parametrize("command", ["--command-config", "reassign", "elect"])
def test_process_substitution_is_read_once_and_whole(command: str) -> None:
    document = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}
    text = "client.id=substituted\n" if command == "--command-config" else json.dumps(document)
    reading, writing = os.pipe()
    with open(reading, "rb"):
        with open(writing, "w") as pipe:
            pipe.write(text)
        words = [*READERS[command], f"/dev/fd/{reading}", "--timeout", "1s", "--bootstrap-server", NOBODY]
        ran = subprocess.run(
            [sys.executable, "-m", "kctl", *words],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=False,
            pass_fds=(reading,),
        )
    assert ran.returncode == 4, ran.stderr  # the file was accepted: only the cluster is missing


def test_circular_links_are_followed_once(tmp_path: Path) -> None:
    """Two of them would double the number of files at each level."""
    for name in ("a-0", "b-0"):
        (tmp_path / name).symlink_to(tmp_path)
    (tmp_path / "meta.properties").write_text("version=0\n")
    assert len(files_of(str(tmp_path))) == 3


def test_file_that_is_too_large_to_be_read_whole_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "leader-epoch-checkpoint"
    with large.open("wb") as file:
        file.truncate(NAMED_FILE_BYTES_MAX + 1)
    ran = kctl("dump-log", "--format", "jsonl", large)
    row = json.loads(ran.stdout)
    assert (ran.returncode, row["error"], row["message"]) == (
        1,
        "OS_ERROR",
        f"has more than {NAMED_FILE_BYTES_MAX} bytes",
    )
