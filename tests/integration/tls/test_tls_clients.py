"""Clients of other projects over TLS, one-way and mutual, and the addresses that the listeners return."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from tests.integration.clients.confluent import Confluent
from tests.integration.clients.kafka_python import KafkaPython
from tests.integration.tls.conftest import LISTENERS, TLS_LISTENERS, SecureBroker
from tests.peers import apache_kafka
from tests.peers.apache_kafka import NEWEST, OLDEST_JUDGE, run_java_tool
from tests.peers.certificates import PASSWORD
from tests.peers.probe import wait_until

pytestmark = pytest.mark.clients

RECORDS = [(b"k%d" % number, b"v" * 1000) for number in range(300)]
LARGE = [(b"large", b"x" * 900_000)]


def _librdkafka(secure: SecureBroker, listener: str) -> dict[str, Any]:
    if listener not in TLS_LISTENERS:
        return {"broker.address.family": "any"}
    settings = {"security.protocol": "ssl", "ssl.ca.location": str(secure.authority.pem)}
    if listener == "MUTUAL":
        settings |= {"ssl.keystore.location": str(secure.client.pkcs12), "ssl.keystore.password": PASSWORD}
    return settings


def _kafka_python(secure: SecureBroker, listener: str) -> dict[str, Any]:
    settings = {"security_protocol": "SSL", "ssl_cafile": str(secure.authority.pem)}
    if listener == "MUTUAL":
        settings["ssl_certfile"] = settings["ssl_keyfile"] = str(secure.client.pem)
    return settings


FAMILIES: dict[str, tuple[type[Any], Callable[[SecureBroker, str], dict[str, Any]]]] = {
    "librdkafka": (Confluent, _librdkafka),
    "kafka-python": (KafkaPython, _kafka_python),
}


@pytest.mark.parametrize("listener", TLS_LISTENERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_records_make_a_round_trip(secure: SecureBroker, family: str, listener: str) -> None:
    base, settings_of = FAMILIES[family]
    client = type("Tls", (base,), {"settings": settings_of(secure, listener)})(secure.bootstrap(listener))
    topic = f"{family}-{listener}"
    client.create_topic(topic, 1)
    client.produce(topic, RECORDS)
    client.produce(topic, LARGE)
    entries = client.consume(topic, len(RECORDS) + 1, group=topic)
    assert [(entry.key, entry.value) for entry in entries] == RECORDS + LARGE


@pytest.mark.parametrize("listener", LISTENERS)
def test_every_listener_returns_its_own_endpoint(secure: SecureBroker, listener: str) -> None:
    settings = {"bootstrap.servers": secure.bootstrap(listener), **_librdkafka(secure, listener)}
    admin = AdminClient(settings)
    (broker,) = admin.list_topics(timeout=60).brokers.values()
    described = admin.describe_cluster(request_timeout=60).result()
    expected = ("::1" if listener == "SIX" else "localhost", secure.ports[listener])
    assert (str(broker.host).strip("[]"), broker.port) == expected
    assert [(node.host.strip("[]"), node.port) for node in described.nodes] == [expected]


def _properties(secure: SecureBroker, listener: str, version: str, path: Path) -> Path:
    lines = ["security.protocol=SSL"]
    if version == OLDEST_JUDGE:
        lines += [f"ssl.truststore.location={secure.authority.jks}", f"ssl.truststore.password={PASSWORD}"]
    else:
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={secure.authority.pem}"]
    if listener == "MUTUAL":
        lines += [
            "ssl.keystore.type=PKCS12",
            f"ssl.keystore.location={secure.client.pkcs12}",
            f"ssl.keystore.password={PASSWORD}",
            f"ssl.key.password={PASSWORD}",
        ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.jvm
@pytest.mark.parametrize("version", [NEWEST, pytest.param(OLDEST_JUDGE, marks=pytest.mark.matrix)])
def test_java_clients_write_one_way_and_read_mutually(secure: SecureBroker, version: str, tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    topic = f"java-{version}"
    one_way = _properties(secure, "ONEWAY", version, tmp_path / "one-way.properties")
    mutual = _properties(secure, "MUTUAL", version, tmp_path / "mutual.properties")
    common: list[str | Path] = ["--topic", topic, "--max-messages", "200"]
    written = run_java_tool(
        version,
        "org.apache.kafka.tools.VerifiableProducer",
        ["--bootstrap-server", secure.bootstrap("ONEWAY"), "--producer.config", one_way, *common],
    )
    assert written.stdout.count("producer_send_success") == 200, written.stdout[-500:] + written.stderr[-2000:]
    options: list[str | Path] = ["--consumer.config", mutual, "--group-id", topic, "--reset-policy", "earliest"]
    read = run_java_tool(
        version,
        "org.apache.kafka.tools.VerifiableConsumer",
        ["--bootstrap-server", secure.bootstrap("MUTUAL"), *common, *options],
    )
    counts = [json.loads(line)["count"] for line in read.stdout.splitlines() if '"records_consumed"' in line]
    assert sum(counts) == 200, read.stdout[-500:] + read.stderr[-2000:]


def _subject(secure: SecureBroker, listener: str) -> str:
    context = ssl.create_default_context(cafile=secure.authority.pem)
    with (
        socket.create_connection(("localhost", secure.ports[listener]), 30) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as tls,
    ):
        certificate = tls.getpeercert()
    assert certificate is not None
    names: Any = certificate["subject"]
    return str(dict(entry[0] for entry in names)["commonName"])


KEY_STORE = "listener.name.oneway.ssl.keystore.location"


def _alter(secure: SecureBroker, operation: AlterConfigOpType, value: str | None, name: str = KEY_STORE) -> None:
    admin = AdminClient({"bootstrap.servers": secure.bootstrap("PLAINTEXT")})
    entry = ConfigEntry(
        name,
        value,
        source=ConfigSource.DYNAMIC_BROKER_CONFIG,
        incremental_operation=operation,
    )
    (future,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])]
    ).values()
    future.result(30)


def test_a_key_store_is_replaced_dynamically_and_a_bad_one_is_refused(secure: SecureBroker, tmp_path: Path) -> None:
    assert _subject(secure, "ONEWAY") == "server"
    with pytest.raises(KafkaException, match=r"cannot be read .No such file or directory.: correct the path"):
        _alter(secure, AlterConfigOpType.SET, str(tmp_path / "none.jks"))
    expired = secure.authority.issue("expired", valid_days=(-10, -1))
    with pytest.raises(KafkaException, match="the certificate expired at"):
        _alter(secure, AlterConfigOpType.SET, str(expired.jks))
    assert _subject(secure, "ONEWAY") == "server"
    _alter(secure, AlterConfigOpType.SET, str(secure.authority.issue("renewed").jks))
    wait_until(lambda: _subject(secure, "ONEWAY") == "renewed", what="the new certificate", timeout_s=60)
    assert _subject(secure, "MUTUAL") == "server"
    _alter(secure, AlterConfigOpType.DELETE, None)
    wait_until(lambda: _subject(secure, "ONEWAY") == "server", what="the first certificate", timeout_s=60)


def _version(secure: SecureBroker) -> str | None:
    context = ssl.create_default_context(cafile=secure.authority.pem)
    with (
        socket.create_connection(("localhost", secure.ports["ONEWAY"]), 30) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as tls,
    ):
        return tls.version()


def test_versions_of_tls_change_for_all_listeners_while_the_broker_runs(secure: SecureBroker) -> None:
    assert _version(secure) == "TLSv1.3"
    _alter(secure, AlterConfigOpType.SET, "TLSv1.2", "ssl.enabled.protocols")
    wait_until(lambda: _version(secure) == "TLSv1.2", what="the older version", timeout_s=60)
    _alter(secure, AlterConfigOpType.DELETE, None, "ssl.enabled.protocols")
    wait_until(lambda: _version(secure) == "TLSv1.3", what="the newer version", timeout_s=60)


def test_a_broker_with_a_bad_key_store_does_not_start(secure: SecureBroker, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kctl", "broker", "start", "--data-dir", str(tmp_path / "data")]
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(secure.server.pkcs12),
        "ssl.keystore.password": "a-wrong-one",
    }
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 2
    last = finished.stderr.splitlines()[-1]
    assert last.startswith("kctl: ")
    assert "server.p12: cannot be decrypted: correct the password" in last
    assert "a-wrong-one" not in finished.stdout + finished.stderr
