"""`kctl registry serve` as a process: users, the commands of `kctl registry`, a second writer, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.integration.cli.conftest import ON_OURS, Kctl
from tests.peers import probe
from tests.peers.forked_kctl import program
from tests.peers.process import Process

pytestmark = pytest.mark.long
TIMEOUT_S = 60
SCHEMA = json.dumps({"schema": '"int"'}).encode()


class Served(NamedTuple):
    url: str
    process: Process

    def request(self, method: str, path: str, body: bytes | None = None, user: str | None = None) -> tuple[int, Any]:
        headers = {} if user is None else {"Authorization": f"Basic {user}"}
        asked = urllib.request.Request(f"{self.url}{path}", data=body, method=method, headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@contextmanager
def served(bootstrap: str, folder: Path, topic: str, *more: str) -> Iterator[Served]:
    ready, log = folder / "ready.json", folder / "registry.log"
    words = ["registry", "serve", "--port", "0", "--topic", topic, "--ready-file", str(ready), *more]
    with Process("registry", [*program(), *words, "--bootstrap-server", bootstrap], log=log) as process:
        process.wait_until(ready.exists, timeout_s=TIMEOUT_S)
        yield Served(json.loads(ready.read_text())["url"], process)


@ON_OURS
def test_requests_need_a_user_of_the_file(bootstrap: str, tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_text("# who may\nann:secret\nbob:x:y\n")
    with served(bootstrap, tmp_path, "users-schemas", "--user-file", str(users)) as registry:
        unauthorized = (401, {"error_code": 401, "message": "Unauthorized"})
        assert registry.request("GET", "/subjects") == unauthorized
        for wrong in ("YW5uOndyb25n", "YW5uOg==", "!", ""):  # ann:wrong, ann:
            assert registry.request("POST", "/subjects/a/versions", SCHEMA, wrong) == unauthorized
        for right in ("YW5uOnNlY3JldA==", "Ym9iOng6eQ=="):  # ann:secret, bob:x:y
            assert registry.request("GET", "/subjects", user=right) == (200, [])
        assert "secret" not in registry.process.log_text


@ON_OURS
def test_the_commands_of_registry_work_with_it(bootstrap: str, tmp_path: Path, kctl: Kctl) -> None:
    (tmp_path / "a.avsc").write_text('"int"')
    (tmp_path / "b.proto").write_text('syntax = "proto3"; message B { string s = 1; }')
    with served(bootstrap, tmp_path, "commands-schemas") as registry:
        at = f"--schema-registry {registry.url} --format json"
        assert kctl(f"registry register a {tmp_path}/a.avsc {at}").document[0]["status"] == "registered"
        assert kctl(f"registry register b {tmp_path}/b.proto {at}").document[0]["id"] == 2
        rows = kctl(f"registry list {at}").document
        assert [(row["subject"], row["versions"], row["type"]) for row in rows] == [
            ("a", [1], "AVRO"),
            ("b", [1], "PROTOBUF"),
        ]
        assert kctl(f"registry compatibility a --set FULL {at}").document[0]["status"] == "changed"
        (tmp_path / "a.avsc").write_text('"long"')
        refused = kctl(f"registry check a {tmp_path}/a.avsc {at}")
        assert refused.status == 3
        assert "TYPE_MISMATCH" in refused.document[0]["messages"][0]
        assert kctl(f"registry delete a --yes {at}").document[0]["status"] == "deleted"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    description = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "commands-schemas")])
    ((configs),) = (future.result(TIMEOUT_S) for future in description.values())
    assert configs["cleanup.policy"].value == "compact"


@ON_OURS
def test_a_registry_ends_when_another_program_writes_to_its_topic(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with (
        served(bootstrap, tmp_path, "shared-schemas") as first,
        served(bootstrap, tmp_path / "second", "shared-schemas") as second,
    ):
        assert first.request("POST", "/subjects/a/versions", SCHEMA) == (200, {"id": 1})
        # It follows the topic, so that one after the other is noticed by neither.
        second.process.wait_until(lambda: second.request("GET", "/subjects") == (200, ["a"]), timeout_s=TIMEOUT_S)
        assert second.request("GET", "/schemas/ids/1") == (200, {"schema": '"int"'})
        producer = Producer({"bootstrap.servers": bootstrap})
        stopped = False

        def write_until_noticed() -> bool:
            """Records of another program arrive while the registry changes something."""
            for _ in range(50):
                producer.produce("shared-schemas", b"", key=b'{"keytype":"NOOP","magic":0}', partition=0)
            producer.poll(0)
            level = json.dumps({"compatibility": "FULL"}).encode()
            try:
                status, document = first.request("PUT", "/config", level)
            except OSError:
                return True  # It has ended after an earlier request.
            assert status == 200 or document["error_code"] == 50001
            return status != 200

        for _ in range(200):
            stopped = stopped or write_until_noticed()
        producer.flush(TIMEOUT_S)
        assert stopped
        assert "another program writes to the topic shared-schemas" in first.process.log_text
        assert second.request("GET", "/config") == (200, {"compatibilityLevel": "FULL"})


@ON_OURS
def test_wrong_arguments_say_what_is_wrong(bootstrap: str, tmp_path: Path, kctl: Kctl) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("two", 2, 1)])["two"].result(TIMEOUT_S)
    users = tmp_path / "users.txt"
    users.write_text("ann\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for options, status, message in (
            ("--port 0 --topic two", 1, "the topic two has 2 partitions"),
            (f"--port {port}", 1, f"cannot listen on 127.0.0.1:{port}"),
            (f"--port 0 --user-file {users}", 2, "line 1: expected USER:PASSWORD"),
            (f"--port 0 --user-file {tmp_path}/none", 2, "No such file"),
            ("--port 0 --topic a/b", 2, "--topic a/b"),
            (f"--port 0 --ready-file {tmp_path}/none/x", 2, "--ready-file"),
            ("--port 0 --stop-with 2147483647", 2, "there is no such process"),
        ):
            ran = kctl(f"registry serve {options}")
            assert (ran.status, message in ran.err) == (status, True), (options, ran.err)
            assert "Traceback" not in ran.err


def test_a_broker_stops_with_its_registry_and_says_why(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready.json", tmp_path / "broker.log"
    words = ["broker", "start", "--data-dir", str(tmp_path / "data"), "--port", "0", "--schema-registry-port", "0"]
    with Process("broker", [*program(), *words, "--ready-file", str(ready)], log=log) as process:
        process.wait_until(ready.exists, timeout_s=TIMEOUT_S)
        url = json.loads(ready.read_text())["schema_registry_url"]
        registry = Served(url, process)
        assert registry.request("POST", "/subjects/a/versions", SCHEMA) == (200, {"id": 1})
        announced = json.loads((tmp_path / "data" / "schema-registry.json").read_text())
        assert announced["url"] == url
        os.kill(announced["pid"], signal.SIGKILL)
        probe.wait_until(lambda: not process.is_running, what="the end of the broker", timeout_s=TIMEOUT_S)
        assert "the schema registry has ended with status -9" in process.log_text
        assert not (tmp_path / "data" / "schema-registry.json").exists()


@ON_OURS
def test_a_registry_beside_several_brokers_is_refused(kctl: Kctl, tmp_path: Path) -> None:
    for option in ("--detach", "--processes 2"):
        ran = kctl(f"broker start --data-dir {tmp_path}/data --schema-registry-port 0 {option}")
        assert ran.status == 2
        assert "run 'kctl registry serve'" in ran.err
        assert not (tmp_path / "data").exists()
