"""Secured listeners of brokers for tests, as clients of Python and Java use them."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaProducer

from kctl.admin import AdminClient, AdminConfig, NewTopic
from kctl.config.properties import format_properties
from kctl.server.process.test_control.failures import KIT_CLIENT_ID
from kctl.testing import KafkaBroker, KafkaCluster, sign_token
from kctl.testing.brokers.control import ControlRefused
from kctl.testing.brokers.security import SECURITIES
from kctl.testing.brokers.warm_process import WarmProcess
from tests.integration.testing.applications import TIMEOUT_S
from tests.peers.apache_kafka import NEWEST, java_command, why_not
from tests.peers.probe import free_port

USUAL = ("mutual-tls", "scram-tls", "oauthbearer")
"""Together they have all protocols but PLAIN."""
EACH = [pytest.param(name, marks=() if name in USUAL else pytest.mark.matrix) for name in SECURITIES]
JAVA_PROGRAM = Path(__file__).parents[1] / "security" / "SaslClient.java"


@pytest.fixture(scope="module")
def secured() -> Iterator[Callable[[str], KafkaBroker]]:
    """Starts a broker with a security, once."""
    warm = WarmProcess()
    brokers: list[KafkaBroker] = []

    @cache
    def start(name: str) -> KafkaBroker:
        brokers.append(KafkaBroker(security=name, warm=warm, unsigned_tokens=name == "oauthbearer"))
        return brokers[-1].__enter__()

    yield start
    for broker in brokers:
        broker.close()
    warm.close()


def produce(arguments: dict[str, Any], topic: str = "orders") -> KafkaError | None:
    """Produces with confluent-kafka; returns the error of the login, or None for a record that was written."""
    errors: list[KafkaError] = []
    producer = Producer({**arguments, "error_cb": errors.append, "log_level": 0})
    producer.produce(topic, b"confluent")
    deadline_s = time.monotonic() + TIMEOUT_S
    while producer.flush(0.1):
        refused = [error for error in errors if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}]
        if refused or time.monotonic() > deadline_s:
            producer.purge()
            return refused[0] if refused else KafkaError(KafkaError._TIMED_OUT)
    return None


@pytest.mark.clients
@pytest.mark.parametrize("name", EACH)
def test_clients_of_each_library_connect_with_the_settings_for_it(
    secured: Callable[[str], KafkaBroker], name: str
) -> None:
    broker = secured(name)
    assert broker.secure_bootstrap_servers != broker.bootstrap_servers == broker.listeners["PLAINTEXT"]
    assert produce(broker.librdkafka_properties) is None
    producer = KafkaProducer(**broker.kafka_python_arguments)
    producer.send("orders", b"kafka-python").get(TIMEOUT_S)
    producer.close()

    async def send() -> None:
        async with AIOKafkaProducer(**broker.aiokafka_arguments) as producer:
            await producer.send_and_wait("orders", b"aiokafka")

    asyncio.run(send())
    # With kctl's own client, over the secured listener too.
    assert {record.value for record in broker.records("orders")} == {b"confluent", b"kafka-python", b"aiokafka"}
    assert produce({"bootstrap.servers": broker.bootstrap_servers}) is None


@pytest.mark.jvm
def test_java_clients_connect_with_pkcs12_and_with_pem_files(
    secured: Callable[[str], KafkaBroker], tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    files = []
    for name in USUAL:
        broker = secured(name)
        files += [broker.java_properties_file, broker.client_properties_file]
        # Java takes a PKCS12 file for a JKS file too.
        as_jks = {key: "JKS" if key.endswith("store.type") else value for key, value in broker.java_properties.items()}
        files.append(tmp_path / f"{name}.properties")
        files[-1].write_text(format_properties(as_jks))
    oauth = secured("oauthbearer")
    unsigned = {
        "bootstrap.servers": oauth.secure_bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice";',
    }
    files.append(tmp_path / "unsigned.properties")
    files[-1].write_text(format_properties(unsigned))
    java, *rest = java_command(NEWEST, str(JAVA_PROGRAM), ["check", *files])
    token = oauth.java_properties["sasl.oauthbearer.token.endpoint.url"]
    flags = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token}"]
    finished = subprocess.run([java, *flags, *rest], check=False, capture_output=True, text=True, timeout=180)
    assert finished.stdout.splitlines() == ["ok"] * len(files), finished.stdout + finished.stderr


@pytest.mark.clients
def test_clients_without_the_certificate_or_the_password_are_refused(secured: Callable[[str], KafkaBroker]) -> None:
    broker = secured("mutual-tls")
    context = ssl.create_default_context(cafile=broker.ca_file)
    host, _, port = broker.secure_bootstrap_servers.partition(":")
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection,
        context.wrap_socket(connection, server_hostname=host) as encrypted,
        pytest.raises(ssl.SSLError, match="certificate required"),  # TLS 1.3: with the first read.
    ):
        encrypted.recv(1)
    refused = produce({**secured("scram-tls").librdkafka_properties, "sasl.password": "other"})
    assert refused is not None
    assert refused.code() == KafkaError._AUTHENTICATION


def with_token(broker: KafkaBroker, token: str) -> dict[str, Any]:
    return {**broker.librdkafka_properties, "oauth_cb": lambda _: (token, time.time() + 600)}


def unsigned(subject: str, **claims: Any) -> str:
    now_s = int(time.time())
    return jwt.encode({"sub": subject, "iat": now_s, "exp": now_s + 600, **claims}, "", algorithm="none")


@pytest.mark.clients
def test_tokens_are_signed_for_any_user_and_any_lifetime(secured: Callable[[str], KafkaBroker]) -> None:
    broker = secured("oauthbearer")
    broker.forget_requests()
    assert produce(with_token(broker, sign_token(broker, "alice"))) is None
    assert produce(with_token(broker, broker.sign_token("alice", claims={"sub": "bob", "scope": ["a"]}))) is None
    assert produce(with_token(broker, unsigned("carol"))) is None
    for token in (
        broker.sign_token("alice", lifetime_s=-3_600),
        broker.sign_token("alice", claims={"exp": None}),
        unsigned("carol", exp=1),
        unsigned(""),
        unsigned("carol") + "signature",
        jwt.encode({"sub": "carol", "exp": time.time() + 600}, "0" * 64, algorithm="HS256"),
    ):
        refused = produce(with_token(broker, token))
        assert refused is not None
        assert refused.code() == KafkaError._AUTHENTICATION
    with pytest.raises(ValueError, match="only brokers with"):
        secured("scram-tls").sign_token("alice")


@pytest.mark.clients
def test_tokens_need_a_signature_unless_a_test_says_otherwise_and_beyond_loopback() -> None:
    with KafkaBroker(security="oauthbearer", plaintext=False, control=True) as broker:
        assert set(broker.listeners) == {"SASL_PLAINTEXT"}
        assert produce(with_token(broker, broker.sign_token("alice"))) is None
        refused = produce(with_token(broker, unsigned("carol")))
        assert refused is not None
        assert refused.code() == KafkaError._AUTHENTICATION
        broker.ask("accept_unsigned_tokens")
        assert produce(with_token(broker, unsigned("carol"))) is None
        # A listener that is added later, on all interfaces, still needs signatures.
        port = free_port()
        opened = {
            "listeners": f"SASL_PLAINTEXT://{broker.bootstrap_servers},OPEN://0.0.0.0:{port}",
            "advertised.listeners": f"SASL_PLAINTEXT://{broker.bootstrap_servers},OPEN://127.0.0.1:{port}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,OPEN:SASL_PLAINTEXT",
        }
        resource = ConfigResource(
            ResourceType.BROKER,
            "0",
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in opened.items()
            ],
        )
        admin = ConfluentAdmin(broker.librdkafka_properties)
        [altered] = admin.incremental_alter_configs([resource]).values()
        altered.result(TIMEOUT_S)
        address = {"bootstrap.servers": f"127.0.0.1:{port}"}
        assert produce({**with_token(broker, broker.sign_token("alice")), **address}) is None
        refused = produce({**with_token(broker, unsigned("carol")), **address})
        assert refused is not None
        assert refused.code() == KafkaError._AUTHENTICATION
        with pytest.raises(ControlRefused, match="listener OPEN is not on a loopback address"):
            broker.ask("accept_unsigned_tokens")


@pytest.mark.long
def test_brokers_of_a_cluster_replicate_over_a_secured_listener() -> None:
    with KafkaCluster(2, security="scram-tls", plaintext=False) as cluster:
        assert all(set(broker.listeners) == {"SASL_SSL"} for broker in cluster.brokers)
        with AdminClient(AdminConfig.from_properties(cluster.client_properties, client_id=KIT_CLIENT_ID)) as admin:
            admin.create_topics([NewTopic("orders", 1, 2, configs={"min.insync.replicas": "2"})]).require()
        assert produce({**cluster.librdkafka_properties, "acks": "all"}) is None
        cluster.assert_records("orders", [b"confluent"])


def test_securities_that_contradict_other_arguments_are_refused(tmp_path: Path) -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"security": "kerberos"}, "security must be one of tls, mutual-tls, scram, scram-tls, plain, "),
        ({"security": "tls", "secure": True}, "it cannot be combined with secure"),
        ({"security": "tls", "properties": {"listeners": "PLAINTEXT://127.0.0.1:0"}}, "cannot be combined"),
        ({"plaintext": False}, "plaintext=False needs security"),
        ({"security": "tls", "unsigned_tokens": True}, 'unsigned_tokens needs security="oauthbearer"'),
    ]
    for arguments, problem in refusals:
        with pytest.raises(ValueError, match=problem):
            KafkaBroker(data_dir=tmp_path / "data", **arguments)
    with pytest.raises(TypeError, match="securty is not an argument of brokers; they are port, security, plaintext"):
        KafkaBroker(data_dir=tmp_path / "data", securty="tls")  # type: ignore[call-arg]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="no secured listener"):
        _ = KafkaBroker(data_dir=tmp_path).password
