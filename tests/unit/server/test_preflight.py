"""What `kctl broker check` finds; the data folder and the ports are real."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.server.process.data_folder import DataFolder, RunningBroker
from kctl.server.process.preflight import Severity, findings
from kctl.server.process.starting import StartOptions
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper
from kctl.zookeeper.session import ZooKeeperSession
from kctl.zookeeper.znodes import encode_cluster_id
from tests.peers.certificates import CertificateAuthority

SECRET = "correct horse battery staple"
NOBODY = 65534
FREE_PORT = "PLAINTEXT://127.0.0.1:0"


def found(folder: Path, properties: dict[str, str], *, connects: bool = False) -> list[tuple[str, str, str]]:
    options = StartOptions(DataFolder(folder), file_properties={"listeners": FREE_PORT, **properties}, overrides={})

    async def collect() -> list[tuple[str, str, str]]:
        return [
            (finding.severity.value, finding.subject, finding.message)
            async for finding in findings(options, connects=connects)
        ]

    return asyncio.run(collect())


def subjects(folder: Path, properties: dict[str, str], severity: Severity = Severity.ERROR) -> list[str]:
    return [subject for kind, subject, _ in found(folder, properties) if kind == severity.value]


def tree(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def write_meta(directory: Path, broker_id: int, cluster_id: str) -> None:
    directory.mkdir()
    (directory / "meta.properties").write_text(f"version=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n")


def test_broker_without_properties_has_no_problem_and_nothing_is_written(tmp_path: Path) -> None:
    assert found(tmp_path / "data", {}) == []
    assert tree(tmp_path) == []


def test_all_kinds_of_problems_are_listed_at_once(tmp_path: Path) -> None:
    write_meta(tmp_path / "one", 3, "abc")
    properties = {
        "broker.id": "7",
        "num.partitions": "many",
        "log.retention.ms": "0",
        "log.dirs": f"{tmp_path}/one,{tmp_path}/./one,{tmp_path}/one/inner",
        "listeners": "SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": "/no/such/store",
        "ssl.keystore.password": SECRET,
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER,NONE",
        "sasl.oauthbearer.jwks.endpoint.url": "file:///no/such/keys",
        "authorizer.class.name": "com.example.Authorizer",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "/no/such/store",
    }
    all_of_them = found(tmp_path / "data", properties)
    assert [subject for severity, subject, _ in all_of_them if severity == "error"] == [
        "num.partitions",
        "log.retention.ms",
        "ssl.keystore.location",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.enabled.mechanisms",
        "ssl.keystore.location",  # for connections to other brokers
        "authorizer.class.name",
        "log.dirs",
        "log.dirs",
        "broker.id",
        "zookeeper.ssl.truststore.location",
    ]
    assert SECRET not in str(all_of_them)
    assert [path.name for path in tree(tmp_path)] == ["one", "meta.properties"]


def test_unusable_cipher_suites_are_reported(tmp_path: Path) -> None:
    identity = CertificateAuthority.create(tmp_path).issue("server")
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(identity.pem),
        "ssl.truststore.location": str(identity.certificate_pem),
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_KRB5_WITH_DES_CBC_SHA",
    }
    problems = [(subject, text) for kind, subject, text in found(tmp_path / "data", properties) if kind == "error"]
    assert {subject for subject, _ in problems} == {"ssl.cipher.suites"}
    assert all("OpenSSL cannot offer TLS_KRB5_WITH_DES_CBC_SHA" in text for _, text in problems)


@pytest.mark.parametrize("listeners", ["SSL://127.0.0.1:0,INNER://127.0.0.1:0", "SSL://127.0.0.1:0,nonsense"])
def test_every_key_store_and_trust_store_that_is_wrong_is_named(tmp_path: Path, listeners: str) -> None:
    properties = {
        "listeners": listeners,
        "listener.security.protocol.map": "SSL:SSL,INNER:SSL,PLAINTEXT:PLAINTEXT",
        "ssl.keystore.location": "/no/such/key",
        "ssl.truststore.location": "/no/such/trust",
        "listener.name.inner.ssl.keystore.location": "/no/such/inner/key",
        "security.inter.broker.protocol": "SSL",
    }
    named = {
        message.partition(":")[0] for _, subject, message in found(tmp_path / "data", properties) if "ssl." in subject
    }
    assert named >= {"/no/such/key", "/no/such/trust", "/no/such/inner/key"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num.partitons", "num.partitions"),
        ("listener.name.plaintext.sasl.enabled.mechanism", "sasl.enabled.mechanisms"),
        ("listener.name.plantext.sasl.enabled.mechanisms", "plaintext"),
    ],
)
def test_misspelled_names_have_a_hint(tmp_path: Path, name: str, hint: str) -> None:
    ((severity, subject, message),) = found(tmp_path / "data", {name: "3"})
    assert (severity, subject) == ("warning", name)
    assert f"did you mean {hint}?" in message


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.plaintext.plain.sasl.jaas.config",
        "listener.name.ssl.ssl.keystore.location",
        "listener.name.plaintext.max.connections",
    ],
)
def test_properties_of_listeners_are_known(tmp_path: Path, name: str) -> None:
    assert subjects(tmp_path / "data", {name: "1"}, Severity.WARNING) == []


@pytest.mark.parametrize("name", ["num.network.threads", "zookeeper.sync.time.ms"])
def test_properties_without_effect_are_warnings(tmp_path: Path, name: str) -> None:
    ((severity, subject, message),) = found(tmp_path / "data", {name: "9"})
    assert (severity, subject) == ("warning", name)
    assert "did you mean" not in message


def test_contradiction_to_an_unusable_value_is_not_reported(tmp_path: Path) -> None:
    properties = {"group.max.session.timeout.ms": "long", "group.min.session.timeout.ms": "3600000"}
    assert subjects(tmp_path / "data", properties) == ["group.max.session.timeout.ms"]


def test_used_ports_are_reported_and_free_ones_stay_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        port, free = taken.getsockname()[1], other.getsockname()[1]
        other.close()
        listeners = f"PLAINTEXT://127.0.0.1:{free},INSIDE://127.0.0.1:{port}"
        properties = {"listeners": listeners, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"}
        assert subjects(tmp_path / "data", properties) == [f"127.0.0.1:{port}"]
        ((_, subject, message),) = found(tmp_path / "data", {"metrics.port": str(port)})
        assert (subject, "--metrics-port" in message) == (f"127.0.0.1:{port}", True)
        # Another property of listeners that is wrong hides neither port.
        properties |= {"advertised.listeners": "OUTSIDE://host:1", "metrics.port": str(port)}
        assert subjects(tmp_path / "data", properties)[1:] == [f"127.0.0.1:{port}"] * 2
        # Each is free, but not for both.
        same = {"listeners": f"PLAINTEXT://127.0.0.1:{free}", "metrics.port": str(free)}
        assert subjects(tmp_path / "data", same) == [f"127.0.0.1:{free}"]
    with socket.create_server(("127.0.0.1", free)):
        pass


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        assert subjects(tmp_path / "data", {"log.dirs": str(directory)}) == [str(directory)]
    assert subjects(tmp_path / "file" / "data", {"log.dirs": str(tmp_path / "logs")}) == [str(tmp_path / "file/data")]


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may write everywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_directory_without_permission_is_reported() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        directory = Path(name) / "logs"
        directory.mkdir(mode=0o500)
        with ordinary_user():
            assert str(directory) in subjects(Path(name) / "data", {"log.dirs": str(directory)})


def test_log_directory_of_another_process(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    with (directory / ".lock").open("w") as lock:
        assert subjects(tmp_path / "data", {"log.dirs": str(directory)}) == []
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert subjects(tmp_path / "data", {"log.dirs": str(directory)}) == [str(directory)]


def test_directories_of_different_brokers_and_clusters(tmp_path: Path) -> None:
    write_meta(tmp_path / "one", 3, "abc")
    write_meta(tmp_path / "two", 4, "abd")
    both = {"log.dirs": f"{tmp_path}/one,{tmp_path}/two", "broker.id": "-1", "broker.id.generation.enable": "true"}
    assert subjects(tmp_path / "data", both) == ["log.dirs", "log.dirs"]
    assert subjects(tmp_path / "data", {"log.dirs": f"{tmp_path}/one", "broker.id": "3"}) == []


def test_broken_meta_properties_are_reported(tmp_path: Path) -> None:
    write_meta(tmp_path / "one", 3, "abc")
    path = tmp_path / "one" / "meta.properties"
    path.write_text("version=1\nnode.id=3\n")
    assert subjects(tmp_path / "data", {"log.dirs": f"{tmp_path}/one"}) == [str(path)]


def test_ports_and_locks_of_the_running_broker_are_not_problems(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.acquire()
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        folder.announce(RunningBroker(1, "127.0.0.1", port, 0, "127.0.0.1:2181", 0))
        ((severity, subject, _),) = found(folder.path, {"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    assert (severity, subject) == ("warning", str(folder.path))
    folder.release()


def test_zookeeper_is_compared_only_if_wanted(tmp_path: Path) -> None:
    write_meta(tmp_path / "one", 3, "abc")

    async def run() -> list[tuple[str, str]]:
        server = EmbeddedZooKeeper(tmp_path / "zookeeper", host="127.0.0.1", port=0)
        await server.start()
        session = ZooKeeperSession(server.connect)
        await session.start(60_000)
        await session.create("/cluster/id", encode_cluster_id("other"), make_parents=True)
        properties = {
            "listeners": FREE_PORT,
            "log.dirs": f"{tmp_path}/one",
            "broker.id": "3",
            "zookeeper.connect": server.connect,
        }
        options = StartOptions(DataFolder(tmp_path / "data"), file_properties=properties, overrides={})
        without = [finding async for finding in findings(options, connects=False)]
        found_there = [(finding.subject, finding.message) async for finding in findings(options, connects=True)]
        await session.close()
        await server.stop()
        assert without == []
        return found_there

    ((subject, message),) = asyncio.run(run())
    assert subject == "log.dirs"
    assert "belongs to cluster abc" in message
    assert "cluster other" in message


def test_a_property_with_an_error_is_not_a_warning_too(tmp_path: Path) -> None:
    findings = found(tmp_path / "data", {"process.roles": "broker", "node.id": "1"})
    assert [subject for _, subject, _ in findings] == ["process.roles", "node.id"]


@pytest.mark.parametrize("connects", [False, True])
def test_addresses_of_zookeeper_are_checked_without_connecting(tmp_path: Path, *, connects: bool) -> None:
    properties = {"zookeeper.connect": "zk1:2181,zk2:port/kafka"}
    [(_, subject, message)] = found(tmp_path / "data", properties, connects=connects)
    assert subject == "zookeeper.connect"
    assert "zk2:port" in message


def test_a_message_about_a_missing_value_begins_with_the_reason(tmp_path: Path) -> None:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
    }
    messages = {subject: message for _, subject, message in found(tmp_path / "data", properties)}
    assert messages["sasl.kerberos.service.name"].startswith("for connections to other brokers: GSSAPI needs")
    assert messages["listener.name.sasl_plaintext.plain.sasl.jaas.config"] == "the login module is missing"


def test_unreachable_zookeeper_is_reported_if_connections_are_tried(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = f"127.0.0.1:{bound.getsockname()[1]}"
    properties = {"zookeeper.connect": address, "zookeeper.connection.timeout.ms": "50", "broker.id": "1"}
    assert [subject for _, subject, _ in found(tmp_path / "data", properties)] == []
    assert [subject for _, subject, _ in found(tmp_path / "data", properties, connects=True)] == ["zookeeper.connect"]
