"""Clients of other projects on a broker with an authorizer: SASL over TLS, and mutual TLS, as users with ACLs."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.integration.clients import kcat
from tests.integration.clients.aio_kafka import AioKafka
from tests.integration.clients.confluent import Confluent
from tests.integration.clients.kafka_js import KafkaJs
from tests.integration.clients.kafka_python import KafkaPython
from tests.integration.clients.kcat import Kcat
from tests.peers import kafkajs, probe
from tests.peers.certificates import PASSWORD, CertificateAuthority, Identity
from tests.peers.forked_kctl import run_kctl
from tests.peers.json_web_tokens import Issuer
from tests.peers.sasl_broker import ADMIN, ADMIN_PASSWORD, PLAIN_PASSWORD, sasl_broker
from tests.rows import for_rows

pytestmark = pytest.mark.clients

TIMEOUT_S = 60
SCRAM_USER, SCRAM_PASSWORD = "bob", "scram-secret-7395"
PLAIN_USER, OAUTH_USER = "alice", "oauth-user"
STRANGER = "mallory"
"""A user without any ACL."""
PREFIX = "permitted-"
MUTUAL_TLS = "mutual TLS"
RECORDS = [(b"k%d" % number, b"v%d" % number) for number in range(50)]


@dataclass(frozen=True)
class Secured:
    """A broker that permits one user of each kind, one being the owner of `client`, what begins with PREFIX.

    ADMIN may do everything.
    """

    sasl: str
    mutual: str
    authority: CertificateAuthority
    client: Identity
    issuer: Issuer

    def rdkafka(self, user: str, password: str, mechanism: str) -> dict[str, str]:
        """librdkafka's settings for one of the mechanisms with passwords."""
        return {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.pem),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("sasl-ssl")
    authority = CertificateAuthority.create(folder)
    server, client = authority.issue("server"), authority.issue("client")
    listeners = {name: f"127.0.0.1:{probe.free_port()}" for name in ("PLAINTEXT", "SASL", "MUTUAL")}
    properties = {
        "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL",
        "ssl.keystore.location": str(server.pkcs12),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.location": str(authority.pem),
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),.*$/$1/",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN}",
    }
    with (
        _served(folder / "broker") as address,
        sasl_broker(
            folder / "broker", properties={**properties, "sasl.oauthbearer.jwks.endpoint.url": f"{address}/keys.json"}
        ) as broker,
    ):
        secured = Secured(listeners["SASL"], listeners["MUTUAL"], authority, client, broker.issuer)
        _permit(secured)
        yield secured


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The files of a folder by HTTP; yields its address."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _permit(secured: Secured) -> None:
    settings = {"bootstrap.servers": secured.sasl, **secured.rdkafka(ADMIN, ADMIN_PASSWORD, "PLAIN")}
    admin = AdminClient(dict[str, str | int | float | bool](settings))
    upsertions: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), SCRAM_PASSWORD.encode())
        for user in (SCRAM_USER, STRANGER)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    bindings = [
        AclBinding(
            resource,
            PREFIX,
            ResourcePatternType.PREFIXED,
            f"User:{user}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for resource in (ResourceType.TOPIC, ResourceType.GROUP)
        for user in (SCRAM_USER, PLAIN_USER, OAUTH_USER, "client")
    ]
    for future in (*admin.alter_user_scram_credentials(upsertions).values(), *admin.create_acls(bindings).values()):
        future.result(TIMEOUT_S)


def _password(mode: str) -> tuple[str, str]:
    return (PLAIN_USER, PLAIN_PASSWORD) if mode == "PLAIN" else (SCRAM_USER, SCRAM_PASSWORD)


def _librdkafka(secured: Secured, mode: str) -> dict[str, Any]:
    if mode == "OAUTHBEARER":
        token = secured.issuer.token(OAUTH_USER)
        return {**secured.rdkafka("", "", mode), "oauth_cb": lambda _: (token, 4e9)}
    if mode != MUTUAL_TLS:
        return {**secured.rdkafka(*_password(mode), mode)}
    return {
        "security.protocol": "ssl",
        "ssl.ca.location": str(secured.authority.pem),
        "ssl.keystore.location": str(secured.client.pkcs12),
        "ssl.keystore.password": PASSWORD,
    }


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class _AioToken(AioTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _python(secured: Secured, mode: str, provider: Callable[[str], object] = _Token) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=secured.authority.pem)
    if mode == MUTUAL_TLS:
        context.load_cert_chain(secured.client.pem)
        return {"security_protocol": "SSL", "ssl_context": context}
    common = {"security_protocol": "SASL_SSL", "ssl_context": context, "sasl_mechanism": mode}
    if mode == "OAUTHBEARER":
        return {**common, "sasl_oauth_token_provider": provider(secured.issuer.token(OAUTH_USER))}
    user, password = _password(mode)
    return {**common, "sasl_plain_username": user, "sasl_plain_password": password}


def _aiokafka(secured: Secured, mode: str) -> dict[str, Any]:
    return _python(secured, mode, _AioToken)


def _kafkajs(secured: Secured, mode: str) -> dict[str, Any]:
    authority = [secured.authority.identity.certificate_text]
    if mode == MUTUAL_TLS:
        return {
            "ssl": {"ca": authority, "key": secured.client.key_text, "cert": secured.client.certificate_text},
        }
    if mode == "OAUTHBEARER":
        return {"ssl": {"ca": authority}, "sasl": {"mechanism": "oauthbearer", "token": secured.issuer.token()}}
    user, password = _password(mode)
    return {"ssl": {"ca": authority}, "sasl": {"mechanism": mode.lower(), "username": user, "password": password}}


FAMILIES: Mapping[str, tuple[type[Any], Any]] = {
    "librdkafka": (Confluent, _librdkafka),
    "kafka-python": (KafkaPython, _python),
    "aiokafka": (AioKafka, _aiokafka),
    "kafkajs": (KafkaJs, _kafkajs),
    "kcat": (Kcat, _librdkafka),
}
WHY_NOT = {"kafkajs": kafkajs.why_not, "kcat": kcat.why_not}


MODES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", MUTUAL_TLS)
CANNOT = {("kcat", "OAUTHBEARER")}
"""kcat has no option for a token."""
CASES = [(family, mode) for family in FAMILIES for mode in MODES if (family, mode) not in CANNOT]


@for_rows("family, mode", CASES)
def test_permitted_records_make_a_round_trip(secured: Secured, family: str, mode: str) -> None:
    if reason := WHY_NOT.get(family, lambda: None)():
        pytest.skip(reason)
    base, settings_of = FAMILIES[family]
    bootstrap = secured.mutual if mode == MUTUAL_TLS else secured.sasl
    client = type("Secured", (base,), {"settings": settings_of(secured, mode)})(bootstrap)
    topic = f"{PREFIX}{family}-{mode.replace(' ', '-')}"
    if family != "kcat":
        client.create_topic(topic, 1)
    client.produce(topic, RECORDS)
    entries = client.consume(topic, len(RECORDS), group=None if family == "kcat" else topic)
    assert [(entry.key, entry.value) for entry in entries] == RECORDS


@pytest.mark.parametrize("mode", ["SCRAM-SHA-512", MUTUAL_TLS])
def test_users_may_not_write_elsewhere(secured: Secured, mode: str) -> None:
    bootstrap = secured.mutual if mode == MUTUAL_TLS else secured.sasl
    producer = Producer({"bootstrap.servers": bootstrap, **_librdkafka(secured, mode)})
    outcomes: list[KafkaError | None] = []

    def write() -> bool:
        try:
            producer.produce("elsewhere", b"value", on_delivery=lambda error, _: outcomes.append(error))
        except KafkaException as error:  # once the client has the error
            outcomes.append(error.args[0])
        producer.flush(TIMEOUT_S)
        return bool(outcomes)

    probe.wait_until(write, what="an answer", timeout_s=TIMEOUT_S)
    assert [error.code() for error in outcomes if error] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


@pytest.fixture
def kafka_js(secured: Secured) -> KafkaJs:
    if reason := kafkajs.why_not():
        pytest.skip(reason)
    return KafkaJs(secured.sasl)


def test_kafkajs_creates_describes_and_deletes_acls(secured: Secured, kafka_js: KafkaJs) -> None:
    ssl_settings = {"ca": [secured.authority.identity.certificate_text]}
    kafka_js.settings = {
        "ssl": ssl_settings,
        "sasl": {"mechanism": "plain", "username": ADMIN, "password": ADMIN_PASSWORD},
    }
    acl = {
        "resourceType": 2,  # topic
        "resourceName": "orders",
        "resourcePatternType": 3,  # literal
        "principal": "User:eve",
        "operation": 3,  # read
        "permissionType": 2,  # deny
    }
    outcome = kafka_js.run("manageAcls", acl=acl)
    (resource,) = outcome["created"]
    assert (resource["resourceName"], resource["acls"]) == (
        "orders",
        [{"principal": "User:eve", "host": "*", "operation": 3, "permissionType": 2}],
    )
    assert (outcome["deleted"], outcome["left"]) == ([1], [])


@pytest.mark.parametrize(
    ("mechanism", "is_right"),
    [("plain", False), ("scram-sha-512", False), ("oauthbearer", False), ("oauthbearer", True)],
)
def test_kafkajs_is_admitted_with_a_right_secret_only(
    secured: Secured, kafka_js: KafkaJs, mechanism: str, is_right: bool
) -> None:
    sasl: dict[str, str] = {"mechanism": mechanism, "username": SCRAM_USER, "password": "wrong"}
    if mechanism == "oauthbearer":
        sasl = {"mechanism": mechanism, "token": secured.issuer.token() if is_right else Issuer().token()}
    kafka_js.settings = {"ssl": {"ca": [secured.authority.identity.certificate_text]}, "sasl": sasl}
    outcome = kafka_js.run("connect")
    assert (outcome["error"] is None) == is_right, json.dumps(outcome)
    if mechanism != "oauthbearer":
        assert "SASL" in outcome["error"]


@pytest.mark.parametrize(("noun", "omitted"), [("topics", "topics"), ("transactions", "transactional ids")])
def test_kctl_says_why_the_lists_of_an_unauthorized_user_are_empty(
    secured: Secured, noun: str, omitted: str, tmp_path: Path
) -> None:
    def listed(*options: str) -> subprocess.CompletedProcess[str]:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        properties = tmp_path / "client.properties"
        properties.write_text(
            f"bootstrap.servers={secured.sasl}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={secured.authority.pem}\n"
            f'sasl.jaas.config={module} required username="{STRANGER}" password="{SCRAM_PASSWORD}";\n'
        )
        properties.chmod(0o600)
        return run_kctl(noun, "list", "--command-config", str(properties), *options)

    ran = listed()
    assert (ran.returncode, ran.stdout) == (0, "")
    assert f"the user may not describe the cluster, and a broker omits {omitted}" in ran.stderr
    assert listed("--quiet").stderr == ""


def test_no_file_of_the_log_contains_a_secret(secured: Secured) -> None:
    folder = Path(secured.authority.identity.folder)
    (output,) = folder.glob("broker/*.output")
    text = output.read_text()
    assert [secret for secret in (SCRAM_PASSWORD, ADMIN_PASSWORD, PASSWORD) if secret in text] == []
