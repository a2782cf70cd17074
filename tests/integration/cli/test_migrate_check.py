"""`kctl migrate check` beside real brokers: ours and Apache Kafka's, from 0.11 to the bridge release 3.9."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kctl.admin.cluster.opening import open_cluster
from kctl.client.connections.transport import Connection
from kctl.migration.check.release_rules import release_text
from kctl.migration.source.cluster import Znode
from kctl.migration.source.reading import read_znodes
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kctl.zookeeper.session import ZooKeeperSession
from tests.integration.cli.conftest import Kctl, command_line
from tests.peers import apache_kafka, probe
from tests.peers.kctl_broker import kctl_broker
from tests.rows import for_rows

T = TypeVar("T")
PASSWORD = b'{"version":1,"config":{"listener.name.ssl.ssl.keystore.password":"encoded:secret"}}'
ODD_ZNODES: Mapping[str, bytes] = {
    "/brokers/topics/broken": b"{",
    "/config/brokers/7": PASSWORD,
    "/config/clients/a%20b": b'{"version":1,"config":{"producer_byte_rate":"1000"}}',
    "/config/topics/gone": b'{"version":1,"config":{"retention.ms":"1"}}',
    "/consumers/old/offsets/orders/0": b"12",
    "/kafka-acl/Topic/orders": b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow",'
    b'"operation":"Read","host":"*"}]}',
    "/migration": b"{}",
    "/solr": b"",
}


def on_zookeeper(connect: str, work: Callable[[ZooKeeperSession], Awaitable[T]]) -> T:
    async def main() -> T:
        session = ZooKeeperSession(connect)
        await session.start(30_000)
        try:
            return await work(session)
        finally:
            await session.close()

    return asyncio.run(main())


async def write_odd_znodes(session: ZooKeeperSession) -> None:
    for path, data in ODD_ZNODES.items():
        await session.create(path, data, make_parents=True)


def persistent(znodes: Mapping[str, Znode]) -> dict[str, tuple[bytes, int]]:
    return {path: (znode.data, znode.version) for path, znode in znodes.items() if not znode.is_ephemeral}


def report(kctl: Kctl, words: str) -> dict[str, Any]:
    ran = kctl(f"migrate check --format json {words}")
    assert ran.status in {0, 3}, ran.err
    document: dict[str, Any] = json.loads(ran.out)
    path = "bridge" if "--path bridge" in words else "offline" if "--path offline" in words else None
    is_blocked = path in document["blocked"] if path else bool(document["blocked"])
    assert ran.status == (3 if is_blocked else 0)
    return document


def kinds(document: Mapping[str, Any]) -> set[str]:
    return {problem["kind"] for problem in document["problems"]}


def refusals(kctl: Kctl, topic: str, target: str) -> list[dict[str, Any]]:
    """The problems with values of this topic; other tests use the same brokers."""
    problems = report(kctl, f"--target {target}")["problems"]
    return [
        problem for problem in problems if problem["kind"] == "small-segments" and topic in str(problem["evidence"])
    ]


def test_segments_that_the_target_refuses_block_the_bridge(kctl: Kctl, topic: str) -> None:
    assert kctl(f"configs alter topic {topic} --set segment.bytes=65536").status == 0
    (refused,) = refusals(kctl, topic, "4.1")
    assert refused["blocks"] == ["bridge"]
    assert f"{topic}: segment.bytes=65536" in refused["evidence"]
    # The command of the finding shows the value.
    assert "65536" in kctl(refused["look"].removeprefix("kctl ")).out
    assert kctl(f"configs alter topic {topic} --delete segment.bytes").status == 0
    assert not refusals(kctl, topic, "4.1")


@pytest.fixture(scope="module")
def odd_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kctl, str, Path]]:
    """A broker of kctl with metrics, znodes that are in the way, and a log that the metadata does not know."""
    folder = tmp_path_factory.mktemp("odd")
    properties = {"metrics.port": str(probe.free_port()), "num.replica.fetchers": "1"}
    with kctl_broker(folder / "data", properties=properties) as broker:
        run = command_line({"KCTL_BOOTSTRAP_SERVER": broker.bootstrap, "XDG_STATE_HOME": str(folder / "state")})
        assert run("topics create orders --partitions 2").status == 0
        assert run("produce orders --partition 1", b"one\n").status == 0
        connect = json.loads((broker.data_dir / "broker.json").read_text())["zookeeper"]
        on_zookeeper(connect, write_odd_znodes)
        asyncio.run(send_old_request(broker.bootstrap))
        (broker.logs_dir / f"orders-0.{'0' * 32}-stray").mkdir()
        yield run, connect, broker.logs_dir


async def send_old_request(bootstrap: str) -> None:
    async def send(connection: Connection) -> None:
        await connection.send(DescribeConfigsRequest(resources=[]), DescribeConfigsResponse, version=0)

    async with open_cluster(bootstrap) as client:
        await client.on_any_broker(send)


def test_everything_that_znodes_directories_and_metrics_show_is_reported_and_nothing_is_changed(
    odd_cluster: tuple[Kctl, str, Path],
) -> None:
    kctl, connect, logs = odd_cluster
    before = persistent(on_zookeeper(connect, read_znodes))
    files = sorted(str(path) for path in logs.rglob("*"))
    document = report(kctl, f"--zookeeper {connect} --log-dirs {logs}")
    expected = {
        *("acls-without-authorizer", "bad-znode", "encrypted-passwords", "escaped-names", "kctl-broker"),
        *("left-over-directory", "migration-begun", "offsets-in-zookeeper", "old-clients"),
        *("orphan-properties", "security-contents", "unknown-znode"),
    }
    assert expected <= kinds(document)
    (old,) = [problem for problem in document["problems"] if problem["kind"] == "old-clients"]
    assert old["evidence"][0].startswith("DescribeConfigs version 0: 1 request")
    # All sources were read: nothing is left open.
    assert document["not_checked"] == []
    assert document["blocked"] == ["bridge", "offline"]
    assert "encoded:" not in json.dumps(document)
    assert persistent(on_zookeeper(connect, read_znodes)) == before
    assert sorted(str(path) for path in logs.rglob("*")) == files


def test_ways_are_judged_and_their_steps_listed_for_themselves(odd_cluster: tuple[Kctl, str, Path]) -> None:
    kctl, connect, _ = odd_cluster
    more = "".join(f" --silence {kind}" for kind in ("bad-znode", "old-clients"))
    bridge = report(kctl, f"--zookeeper {connect} --path bridge --controllers c1:9093 {more}")
    assert bridge["blocked"] == ["offline"]  # /migration exists
    assert bridge["steps"][0]["title"] == "Upgrade the brokers to 3.9"
    assert "3000@c1:9093" in json.dumps(bridge["steps"])
    page = kctl(f"migrate check --format table --zookeeper {connect} --path offline {more}")
    assert page.status == 3
    assert "  offline: 2 problems block it\n" in page.out  # /migration, and a password among dynamic properties
    assert f"kctl migrate plan --zookeeper {connect}" in page.out
    assert "not checked:" in page.out


def test_what_was_not_read_is_said_with_what_makes_it_readable(odd_cluster: tuple[Kctl, str, Path]) -> None:
    kctl, _, _ = odd_cluster
    document = report(kctl, "")
    skipped = {(item["check"], item["reason"].partition(":")[0]): item["remedy"] for item in document["not_checked"]}
    assert "--zookeeper" in skipped["metadata", "znodes"]
    assert "--log-dirs" in skipped["directories", "files in the log directories"]
    assert "--log-dirs" in skipped["formats", "formats of stored records"]
    plain = kctl("migrate check --path offline")
    assert "not checked: metadata: znodes: --zookeeper was not given" in plain.err
    assert "the steps of --path are shown with --format table" in plain.err


class Exporter(BaseHTTPRequestHandler):
    """Prometheus's JMX exporter, as far as its text goes."""

    text = ""

    def do_GET(self) -> None:
        body = self.text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on stderr, which the tests read."""


NAME = "kafka_network_requestmetrics_requestspersec"


@for_rows("text, found, reason", [
        (f'{NAME}{{request="Fetch",version="3",}} 7.0\n{NAME}{{request="Produce",version="9",}} 4.0\n', True, ""),
        (f'{NAME}{{request="Produce",version="9",}} 4.0\n', False, ""),
        # Before 2.0 the metric has no version: nothing can be said.
        (f'{NAME}{{request="Fetch",}} 7.0\n', False, "have no versions of requests"),
    ])  # fmt: skip
def test_endpoint_of_another_exporter_says_which_requests_are_refused(
    odd_cluster: tuple[Kctl, str, Path], text: str, found: bool, reason: str
) -> None:
    handler = type("OfRow", (Exporter,), {"text": text})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            document = report(odd_cluster[0], f"--endpoint 0=127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            serving.join()
    old = [row for row in document["problems"] if row["kind"] == "old-clients"]
    assert any("Fetch version 3: 7 requests" in line for row in old for line in row["evidence"]) is found
    skipped = [row["reason"] for row in document["not_checked"] if row["check"] == "clients"]
    assert len(skipped) == (1 if reason else 0)
    assert all(reason in line for line in skipped)


@for_rows("words, complaint", [
        ("--controllers c1:9093", "--controllers is for the steps of a way"),
        ("--endpoint 7071", "--endpoint 7071: write BROKER=HOST:PORT"),
        ("--endpoint 0=a:1,b:1", "--endpoint 0=a:1,b:1: write BROKER=HOST:PORT"),
        ("--endpoint x=a:1", "--endpoint: the broker"),
        ("--silence nothing", "there is no kind 'nothing'"),
        ("--log-dirs /nonexistent", "--log-dirs /nonexistent: No such file or directory"),
        ("--zookeeper {connect}/other", "/cluster/id"),
    ])  # fmt: skip
def test_wrong_options_are_named(odd_cluster: tuple[Kctl, str, Path], words: str, complaint: str) -> None:
    kctl, connect, _ = odd_cluster
    ran = kctl(f"migrate check {words.format(connect=connect)}")
    assert complaint in ran.err + ran.out
    assert ran.status != 0


@pytest.mark.jvm
@pytest.mark.matrix
@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.11.0.3", (0, 11)),
        ("1.1.1", (1, 1)),
        ("2.0.1", (2, 0)),
        ("2.4.1", (2, 4)),
        ("2.8.2", (2, 8)),
        ("3.9.1", (3, 9)),
    ],
)
def test_every_source_is_read(version: str, release: tuple[int, int], tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as running:
        connect = running.enter_context(apache_kafka.zookeeper_of(version, tmp_path / "zookeeper"))
        properties = {"log.message.timestamp.difference.max.ms": "3600000"}
        bootstrap = running.enter_context(
            apache_kafka.apache_kafka(version, tmp_path / "broker", zookeeper=connect, properties=properties)
        )
        kctl = command_line({"KCTL_BOOTSTRAP_SERVER": bootstrap, "XDG_STATE_HOME": str(tmp_path / "state")})
        is_format_kept = release < (3, 0)
        assert kctl("topics create new --set segment.bytes=65536").status == 0
        assert kctl("produce new", b"a\n").status == 0
        if is_format_kept:
            assert kctl("topics create old --set message.format.version=0.10.2").status == 0
            assert kctl("produce old --acks 1", b"a\n").status == 0
        document = report(kctl, f"--zookeeper {connect} --log-dirs {tmp_path}/broker/logs --target 4.4")
        online = report(kctl, "--path bridge --target 4.4")
    expected = {"small-segments", "changed-default", "forgotten-broker-property", "controller-listener"}
    if release < (3, 9):
        expected |= {"before-bridge"}
    if release < (2, 8):
        expected |= {"no-topic-id"}
    if release < (3, 0):
        # 2.8 writes it later than with the log.
        expected |= {"no-partition-metadata"}
    if is_format_kept:
        expected |= {"old-format-written", "old-format-stored", "forgotten-topic-property"}
    assert kinds(document) == expected
    assert {"old-format-stored"} & kinds(online) == {"old-format-stored"} & expected
    text = json.dumps(document)
    assert f"the APIs of {release_text(release)}" in text or release == (3, 9)
    assert "log.message.timestamp.difference.max.ms (broker 0)" in text
    unread = {item["reason"].partition(":")[0] for item in document["not_checked"]}
    assert unread == {
        "versions of requests of clients",
        *({"log directories, from the brokers"} if release < (1, 0) else ()),
        *({"open transactions"} if release < (3, 0) else ()),
    }
