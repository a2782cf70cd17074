"""kctl's client and commands against Apache Kafka brokers that require TLS and SASL."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from kctl.cli import main
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.blocking_transport import BlockingTransport, run_blocking
from kctl.client.connections.security import ClientSecurity
from kctl.client.settings import ClientSettings
from kctl.commands.frame.exit_status import ExitStatus
from kctl.config.properties import format_properties
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE, apache_kafka, why_not
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.probe import free_port

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule required"
SCRAM = f"{MODULES}.scram.ScramLoginModule required"
OAUTH = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
SECRET = "correct horse=battery,staple"
REAUTH_MS = 1_300
"""Kafka accepts one re-authentication per second."""
MECHANISMS = {
    "PLAIN": f'{PLAIN} username="alice" password="{SECRET}";',
    "SCRAM-SHA-256": f'{SCRAM} username="al,ice=" password="{SECRET}";',
    "SCRAM-SHA-512": f'{SCRAM} username="al,ice=" password="{SECRET}";',
    "OAUTHBEARER": f'{OAUTH} unsecuredLoginStringClaim_sub="alice";',
}


@dataclass(frozen=True)
class Broker:
    """The listeners of a broker, as host:port by security protocol, and the issuer of its certificate."""

    listeners: dict[str, str]
    authority: CertificateAuthority
    unauthenticated: CertificateAuthority

    def properties(self, protocol: str, mechanism: str = "") -> dict[str, str]:
        """Client properties for a listener."""
        properties = {"security.protocol": protocol, "bootstrap.servers": self.listeners[protocol]}
        if mechanism:
            properties |= {"sasl.mechanism": mechanism, "sasl.jaas.config": MECHANISMS[mechanism]}
        if mechanism == "OAUTHBEARER":
            properties["sasl.login.callback.handler.class"] = "OAuthBearerUnsecuredLoginCallbackHandler"
        if protocol.endswith("SSL"):
            properties["ssl.truststore.location"] = str(self.authority.pem)
        if protocol == "SSL":
            client = self.authority.issue("client")
            properties |= {"ssl.keystore.location": str(client.pkcs12), "ssl.keystore.password": PASSWORD}
        return properties

    def settings(self, properties: dict[str, str]) -> ClientSettings:
        host, _, port = properties["bootstrap.servers"].rpartition(":")
        security = ClientSecurity.of(properties["security.protocol"], properties)
        return ClientSettings(((host, int(port)),), connect_timeout_ms=20_000, security=security)


@pytest.fixture(scope="module", params=[pytest.param(OLDEST_JUDGE, marks=pytest.mark.matrix), LAST_WITH_ZOOKEEPER])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("secure")
    authority = CertificateAuthority.create(folder)
    server = authority.issue("broker", hosts=("localhost",))
    ports = {protocol: free_port() for protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    listeners = {protocol: f"localhost:{port}" for protocol, port in ports.items()}
    listeners["PLAINTEXT"] = f"127.0.0.1:{ports['PLAINTEXT']}"
    properties = {
        "listeners": ",".join(f"{protocol}://{address}" for protocol, address in listeners.items()),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.location": str(server.pkcs12),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(authority.pkcs12),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": PASSWORD,
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        properties |= {
            f"{prefix}.plain.sasl.jaas.config": f'{PLAIN} user_alice="{SECRET}";',
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
            f"{prefix}.oauthbearer.sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="broker";',
            f"{prefix}.plain.connections.max.reauth.ms": str(REAUTH_MS),
        }
    with apache_kafka(request.param, folder / "kafka", port=ports["PLAINTEXT"], properties=properties):
        admin = AdminClient({"bootstrap.servers": listeners["PLAINTEXT"]})
        upsertions: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion("al,ice=", ScramCredentialInfo(mechanism, 4096), SECRET.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for future in admin.alter_user_scram_credentials(upsertions).values():
            future.result(30)
        yield Broker(listeners, authority, CertificateAuthority.create(folder, "Other authority"))


@pytest.mark.parametrize("transport", ["asyncio", "blocking"])
@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", "")]
    + [(protocol, sasl_mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for sasl_mechanism in MECHANISMS],
)
def test_kafka_accepts_the_client(broker: Broker, transport: str, protocol: str, mechanism: str) -> None:
    settings = broker.settings(broker.properties(protocol, mechanism))

    async def work(client: ClusterClient) -> list[tuple[str, int]]:
        async with client:
            return [(node.host, node.port) for node in (await client.metadata()).brokers.values()]

    if transport == "blocking":
        found = run_blocking(work(ClusterClient(settings, BlockingTransport())))
    else:

        async def on_loop() -> list[tuple[str, int]]:
            return await work(ClusterClient(settings, AsyncioTransport()))

        found = asyncio.run(on_loop())
    assert found == list(settings.bootstrap)


@pytest.mark.parametrize("transport", ["asyncio", "blocking"])
def test_connection_outlives_its_session(broker: Broker, transport: str) -> None:
    """Kafka closes a connection that sends a request after its session has ended (KIP-368)."""
    settings = broker.settings(broker.properties("SASL_SSL", "PLAIN"))
    (address,) = settings.bootstrap

    async def work(transport: AsyncioTransport | BlockingTransport) -> None:
        connection = await transport.connect(
            *address, client_id="long", connect_timeout_ms=20_000, timeout_ms=20_000, security=settings.security
        )
        end = time.monotonic() + 2.5 * REAUTH_MS / 1000
        while time.monotonic() < end:
            await connection.send(MetadataRequest(topics=[]), MetadataResponse)
            await transport.sleep(50)
        await connection.close()

    if transport == "blocking":
        run_blocking(work(BlockingTransport()))
    else:
        asyncio.run(work(AsyncioTransport()))


@pytest.fixture
def config(broker: Broker, tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(format_properties(broker.properties("SASL_SSL", "SCRAM-SHA-512")))
    path.chmod(0o600)
    return path


def kctl(config: Path, *words: str) -> int:
    return main([*words, "--command-config", str(config), "--timeout", "20s"])


def test_commands_work_with_a_command_config(config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.write_text("one\ntwo\n")
    assert kctl(config, "topics", "create", "orders", "--partitions", "2", "--replication-factor", "1") == 0
    assert kctl(config, "produce", "orders", "--file", str(records)) == 0
    capsys.readouterr()
    assert kctl(config, "consume", "orders", "--group", "readers", "-n", "2", "--format", "jsonl") == 0
    assert sorted(json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()) == ["one", "two"]
    # In a process of its own, because the engine starts others.
    export = [sys.executable, "-m", "kctl", "export", "orders", "--to", str(tmp_path / "lake"), "--processes", "1"]
    subprocess.run([*export, "--command-config", str(config)], check=True, timeout=120)
    rows = pq.read_table(tmp_path / "lake" / "orders", partitioning=None).column("value").to_pylist()
    assert sorted(rows) == [b"one", b"two"]
    assert kctl(config, "groups", "list") == 0
    assert "readers" in capsys.readouterr().out
    assert kctl(config, "cluster", "health") == 0
    assert kctl(config, "configs", "describe", "topic", "orders") == 0


@pytest.mark.parametrize(
    ("listener", "changes", "text", "status"),
    [
        ("SASL_SSL", {"sasl.jaas.config": f'{SCRAM} username="al,ice=" password="guess";'}, "sasl.jaas.config", 1),
        (
            "SASL_SSL",
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{PLAIN} username="x" password="y";'},
            "sasl.jaas.config",
            1,
        ),
        ("SASL_SSL", {"ssl.truststore.location": "OTHER_AUTHORITY"}, "ssl.truststore.location", 1),
        ("SASL_SSL", {"bootstrap.servers": "127.0.0.1:PORT"}, "ssl.endpoint.identification.algorithm", 1),
        ("SASL_SSL", {"security.protocol": "SASL_PLAINTEXT"}, "security.protocol", 1),
        ("SASL_SSL", {"security.protocol": "PLAINTEXT"}, "security.protocol", 1),
        ("SASL_PLAINTEXT", {"security.protocol": "PLAINTEXT"}, "security.protocol to SASL_PLAINTEXT", 4),
        ("SASL_PLAINTEXT", {}, "security.protocol to PLAINTEXT or SASL_PLAINTEXT", 4),
        ("PLAINTEXT", {}, "security.protocol to PLAINTEXT", 4),
        ("PLAINTEXT", {"security.protocol": "SASL_PLAINTEXT"}, "security.protocol to PLAINTEXT or SSL", 1),
        ("SSL", {"security.protocol": "SSL"}, "ssl.keystore.location", None),
    ],
)
def test_mismatch_is_one_line_with_the_property_to_change(
    broker: Broker,
    config: Path,
    capsys: pytest.CaptureFixture[str],
    listener: str,
    changes: dict[str, str],
    text: str,
    status: int | None,
) -> None:
    address = broker.listeners[listener]
    words = {"OTHER_AUTHORITY": str(broker.unauthenticated.pem), "PORT": address.split(":")[1]}
    changed = {
        name: functools.reduce(lambda text, word: text.replace(word, words[word]), words, value)
        for name, value in changes.items()
    }
    properties = broker.properties("SASL_SSL", "SCRAM-SHA-512") | {"bootstrap.servers": address} | changed
    config.write_text(format_properties(properties))
    # A command that waited for this time-out would exceed that of the test.
    found = kctl(config, "topics", "list", "--timeout", "10m")
    output = capsys.readouterr()
    assert found == (status if status is not None else found)
    assert found in (ExitStatus.FAILED, ExitStatus.UNREACHABLE)
    assert text in output.err
    assert output.err.count("\n") == 1
    assert "guess" not in output.err
