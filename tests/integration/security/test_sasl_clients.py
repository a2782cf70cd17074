"""Clients of other projects authenticate with every mechanism that they support, and are refused with wrong secrets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.integration.security.conftest import SCRAM_PASSWORD, SCRAM_USER, SIMPLE_USER, admin_settings
from tests.peers.apache_kafka import NEWEST, OLDEST_JUDGE, java_command, why_not
from tests.peers.probe import wait_until
from tests.peers.sasl_broker import PLAIN_PASSWORD, SaslBroker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TIMEOUT_S = 60
PROGRAM = Path(__file__).with_name("SaslClient.java")
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def collect_secrets(mechanism: str) -> tuple[str, str]:
    return ("alice", PLAIN_PASSWORD) if mechanism == "PLAIN" else (SCRAM_USER, SCRAM_PASSWORD)


def rdkafka(broker: SaslBroker, mechanism: str, *, token: str = "", wrong: bool = False) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (token or broker.issuer.token(), 4e9)
    else:
        settings["sasl.username"], settings["sasl.password"] = collect_secrets(mechanism)
        if wrong:
            settings["sasl.password"] += "-wrong"
    return settings


@pytest.mark.clients
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes(broker: SaslBroker, mechanism: str) -> None:
    topic = f"rdkafka-{mechanism}-{uuid.uuid4()}"
    producer = Producer(rdkafka(broker, mechanism))
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None]
    consumer = Consumer({**rdkafka(broker, mechanism), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"value"


@pytest.mark.clients
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_librdkafka_reports_a_wrong_password_as_that(broker: SaslBroker, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**rdkafka(broker, mechanism, wrong=True), "error_cb": errors.append})

    def is_reported() -> bool:
        producer.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    wait_until(is_reported, what="an authentication error", timeout_s=TIMEOUT_S)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.5)


class _Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class _AioProvider(AioTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def python_settings(broker: SaslBroker, mechanism: str, provider: Callable[[str], object]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**settings, "sasl_oauth_token_provider": provider(broker.issuer.token())}
    user, password = ("alice", PLAIN_PASSWORD) if mechanism == "PLAIN" else (SIMPLE_USER, SCRAM_PASSWORD)
    return {**settings, "sasl_plain_username": user, "sasl_plain_password": password}


@pytest.mark.clients
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces(broker: SaslBroker, mechanism: str) -> None:
    producer = KafkaProducer(**python_settings(broker, mechanism, _Provider))
    sent = producer.send(f"python-{mechanism}", b"value")
    producer.flush(TIMEOUT_S)
    assert sent.get(TIMEOUT_S).offset == 0
    producer.close()


@pytest.mark.clients
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces(broker: SaslBroker, mechanism: str) -> None:
    async def produce() -> int:
        producer = AIOKafkaProducer(**python_settings(broker, mechanism, _AioProvider))
        await producer.start()
        try:
            return int((await producer.send_and_wait(f"aio-{mechanism}", b"value")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(asyncio.wait_for(produce(), TIMEOUT_S)) == 0


def java_properties(folder: Path, bootstrap: str, mechanism: str, **more: str) -> Path:
    lines = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **more}
    path = folder / f"{uuid.uuid4()}.properties"
    path.write_text("".join(f"{name.replace('__', '.')}={value}\n" for name, value in lines.items()))
    return path


def login(mechanism: str, *, wrong: bool = False) -> str:
    user, password = collect_secrets(mechanism)
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    password += "-wrong" if wrong else ""
    return f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'


def run_java(version: str, *arguments: str | Path, flags: Mapping[str, str] | None = None) -> list[str]:
    if reason := why_not():
        pytest.skip(reason)
    java, *rest = java_command(version, str(PROGRAM), arguments)
    command = [java, *(f"-D{name}={value}" for name, value in (flags or {}).items()), *rest]
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180, env=os.environ)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.jvm
@pytest.mark.parametrize("version", [NEWEST, pytest.param(OLDEST_JUDGE, marks=pytest.mark.matrix)])
def test_the_java_client_with_every_mechanism(broker: SaslBroker, version: str, tmp_path: Path) -> None:
    """Correct and wrong secrets in one process, and the client's error message."""
    files = []
    for mechanism in MECHANISMS[:3]:
        for wrong in (False, True):
            config = {"sasl.jaas.config": login(mechanism, wrong=wrong)}
            files.append(java_properties(tmp_path, broker.sasl, mechanism, **config))
    files.append(java_properties(tmp_path, broker.sasl, "GSSAPI", **_kerberos()))
    token = tmp_path / "token"
    token.write_text(broker.issuer.token())
    oauth = {"sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"}
    if version == NEWEST:
        oauth |= {"sasl.login.callback.handler.class": OAUTH_HANDLER}
        oauth |= {"sasl.oauthbearer.token.endpoint.url": token.as_uri()}
    else:
        # Before 3.1 the client's own handler makes tokens without a signature.
        oauth["sasl.jaas.config"] = oauth["sasl.jaas.config"].replace(";", ' unsecuredLoginStringClaim_sub="admin";')
    files.append(java_properties(tmp_path, broker.sasl, "OAUTHBEARER", **oauth))
    flags = {"org.apache.kafka.sasl.oauthbearer.allowed.urls": token.as_uri()}

    lines = run_java(version, "check", *files, flags=flags)

    general = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    assert lines[:6] == [
        "ok",
        "! SaslAuthenticationException: Authentication failed: Invalid username or password",
        "ok",
        f"! SaslAuthenticationException: {general} SCRAM-SHA-256",
        "ok",
        f"! SaslAuthenticationException: {general} SCRAM-SHA-512",
    ]
    assert lines[7] == ("ok" if version == NEWEST else '! SaslAuthenticationException: {"status":"invalid_token"}')


def _kerberos() -> dict[str, str]:
    """A mechanism that the listener does not have; a client without tickets fails before that."""
    return {
        "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;",
        "sasl.kerberos.service.name": "k",
    }


@pytest.mark.jvm
def test_the_java_client_authenticates_again_before_its_session_ends(broker: SaslBroker, tmp_path: Path) -> None:
    config = {"sasl.jaas.config": login("SCRAM-SHA-256"), "acks": "all"}
    file = java_properties(tmp_path, broker.reauth, "SCRAM-SHA-256", **config)
    (line,) = run_java(NEWEST, "reauth", file, "reauthenticated", "2")
    word, failures, produced = line.split()
    assert (word, failures) == ("ok", "0")
    assert int(produced) > 2


@pytest.mark.jvm
def test_the_java_admin_client_manages_delegation_tokens(broker: SaslBroker, tmp_path: Path) -> None:
    config = {"sasl.jaas.config": login("SCRAM-SHA-256")}
    lines = run_java(OLDEST_JUDGE, "tokens", java_properties(tmp_path, broker.sasl, "SCRAM-SHA-256", **config))
    general = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    assert lines == [
        f"created User:{SCRAM_USER} [User:renewer]",
        "described true",
        "login ok",
        "from a token UnsupportedByAuthenticationException",
        "renewed true",
        f"after expiry ! SaslAuthenticationException: {general}",
    ]


@pytest.mark.clients
def test_secrets_are_in_no_log_and_no_response(broker: SaslBroker) -> None:
    """Those of properties, users and tokens that the other tests of this folder have used."""
    from confluent_kafka.admin import AdminClient, ConfigResource  # noqa: PLC0415

    admin = AdminClient(admin_settings(broker))
    (future,) = admin.describe_configs([ConfigResource("BROKER", "0")]).values()
    described = str({name: entry.value for name, entry in future.result(TIMEOUT_S).items()})
    command_line = Path(f"/proc/{broker.process.pid}/cmdline").read_bytes().decode()
    for text in (broker.process.log_text, described, command_line):
        for secret in ("admin-secret-7391", "secret=7392", "token-key-secret-7393", SCRAM_PASSWORD, "stored_key"):
            assert secret not in text
