"""`kctl broker zookeeper-ls`, `-get` and `-stat` print znodes in every format, and one line on errors."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests.peers import probe, zookeeper_wire
from tests.peers.forked_kctl import run_kctl
from tests.peers.zookeeper_wire import WireClient
from tests.rows import for_rows


def kctl(*words: str) -> subprocess.CompletedProcess[str]:
    verb, *arguments = words
    return run_kctl("broker", f"zookeeper-{verb}", *arguments)


@pytest.fixture(scope="module")
def filled(shared_embedded: str) -> str:
    client = WireClient(shared_embedded)
    for path, data in (("/app", None), ("/app/text", "zweiundvierzig ü".encode()), ("/app/bytes", b"\xff\0")):
        client.call(zookeeper_wire.CREATE, zookeeper_wire.create(path, data))
    client.call(zookeeper_wire.CLOSE)
    client.close()
    return shared_embedded


def test_ls_lists_children_sorted(filled: str) -> None:
    assert kctl("ls", "/app", "--zookeeper", filled).stdout == "bytes\t/app/bytes\ntext\t/app/text\n"
    rows = json.loads(kctl("ls", "/", "--zookeeper", filled, "--format", "json").stdout)
    assert {"name": "app", "path": "/app"} in rows
    assert kctl("ls", "/app/text", "--zookeeper", filled, "--format", "json").stdout == "[]\n"


def test_a_chroot_is_the_root(filled: str) -> None:
    assert kctl("ls", "/", "--zookeeper", f"{filled}/app").stdout == "bytes\t/bytes\ntext\t/text\n"


def test_get_prints_text_and_json_contains_the_encoding(filled: str) -> None:
    assert kctl("get", "/app/text", "--zookeeper", filled).stdout == "zweiundvierzig ü\n"
    text = json.loads(kctl("get", "/app/text", "--zookeeper", filled, "--format", "json").stdout)
    assert (text["data"], text["encoding"], text["version"]) == ("zweiundvierzig ü", "utf-8", 0)
    binary = json.loads(kctl("get", "/app/bytes", "--zookeeper", filled, "--format", "jsonl").stdout)
    assert (binary["data"], binary["encoding"], binary["data_length"]) == ("/wA=", "base64", 2)


def test_stat_shows_versions(filled: str) -> None:
    shown = kctl("stat", "/app", "--zookeeper", filled, "--format", "json").stdout
    stat = json.loads(shown)
    assert (stat["num_children"], stat["cversion"], stat["ephemeral_owner"]) == (2, 2, None)
    (row,) = kctl("stat", "/app", "--zookeeper", filled).stdout.splitlines()
    assert len(row.split("\t")) == len(stat)


@pytest.mark.parametrize("verb", ["ls", "get", "stat"])
def test_a_missing_znode_is_one_line_and_status_1(filled: str, verb: str) -> None:
    result = kctl(verb, "/nowhere", "--zookeeper", filled)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "kctl: znode /nowhere does not exist\n"


def test_an_invalid_path_is_a_usage_error(filled: str) -> None:
    result = kctl("ls", "app", "--zookeeper", filled)
    assert (result.returncode, result.stdout) == (2, "")


def test_an_unreachable_server_is_status_4_and_names_the_option() -> None:
    connect = f"127.0.0.1:{probe.free_port()}"
    result = kctl("ls", "/", "--zookeeper", connect)
    assert (result.returncode, result.stdout) == (4, "")
    assert result.stderr.count("\n") == 1
    assert f"does not respond at {connect}" in result.stderr
    assert "--zookeeper" in result.stderr


def test_a_busy_port_is_one_line_and_status_1(filled: str, tmp_path: Path) -> None:
    port = filled.rpartition(":")[2]
    result = kctl("start", "--port", port, "--data-dir", str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    advice = "stop its process or choose another port with --port"
    assert result.stderr == f"kctl: port {port} of 127.0.0.1 is in use; {advice}\n"


@for_rows(
    "word, output",
    [
        ("ruok", "imok"),
        ("isro", "rw"),
        ("srvr", "Mode: standalone"),
        ("stat", "Clients:"),
        ("mntr", "zk_znode_count\t"),
        ("conf", "maxSessionTimeout=40000"),
        ("envi", "zookeeper.version=3.8.0"),
        ("cons", "recved="),
        ("dirs", "datadir_size"),
        ("dump", "Sessions with Ephemerals"),
        ("wchs", "Total watches:"),
        ("wchp", "not in the whitelist"),
        ("crst", "crst is not executed because it is not in the whitelist."),
    ],
)
def test_read_only_four_letter_words_get_a_response(filled: str, word: str, output: str) -> None:
    with socket.create_connection(probe.address(filled), timeout=60) as connection:
        connection.sendall(word.encode())
        response = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    assert output in response
