"""Secrets in properties, requests and znodes of a broker that logs all it can are in no output of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from kctl.config.broker import BROKER_PROPERTIES
from kctl.config.config_loading import load_broker_config
from kctl.config.kinds import PASSWORD
from kctl.protocol.apis.alter_configs import AlterableConfig as ReplacedConfig
from kctl.protocol.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kctl.protocol.apis.alter_configs import AlterConfigsResource as ReplacedResource
from kctl.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from kctl.protocol.apis.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from kctl.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kctl.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from kctl.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kctl.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.hostile.raw_client import Attacker
from tests.peers.kctl_broker import OWN_PROGRAM
from tests.peers.probe import wait_until
from tests.peers.sasl_broker import ADMIN, ADMIN_PASSWORD, PLAIN_PASSWORD, SaslBroker, sasl_broker

BROKER, BROKER_LOGGER = 4, 8
PLANTED = "secret-7396"
"""In every secret of these tests."""
PASSWORDS = {
    name: f"{PLANTED}-in-{name}"
    for name, described in BROKER_PROPERTIES.items()
    if described.kind is PASSWORD and name != "sasl.jaas.config"
}
OWN_SECRETS = (ADMIN_PASSWORD, PLAIN_PASSWORD)


@dataclass
class Planted:
    """The broker, and everything that it has sent or written."""

    broker: SaslBroker
    response_texts: list[str]

    def call(self, client: Attacker, request: Any, response: type[Any], version: int) -> Any:
        """Sends a request; the response is recorded."""
        reply = client.call(request, response, version)
        self.response_texts.append(repr(reply))
        return reply

    def alter(self, client: Attacker, resource_type: int, values: dict[str, str]) -> set[int]:
        """Changes properties of the broker, or levels of its loggers, each by itself; returns the error codes."""
        codes = set()
        for name, value in values.items():
            changed = AlterConfigsResource(
                resource_type=resource_type,
                resource_name="0",
                configs=[AlterableConfig(name=name, config_operation=0, value=value)],
            )
            request = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
            (response,) = self.call(client, request, IncrementalAlterConfigsResponse, 1).responses
            codes.add(response.error_code)
        return codes

    def describe(self, client: Attacker, resource_type: int) -> list[str]:
        """The names of all properties or loggers."""
        resource = DescribeConfigsResource(resource_type=resource_type, resource_name="0", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        (described,) = self.call(client, request, DescribeConfigsResponse, 4).results
        return [config.name for config in described.configs]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    with sasl_broker(tmp_path_factory.mktemp("secrets"), properties=PASSWORDS, run_by=OWN_PROGRAM) as broker:
        planted = Planted(broker, [])
        with Attacker(broker.plaintext) as client:
            loggers = planted.describe(client, BROKER_LOGGER)
            assert {"root", "kctl.zookeeper.kazoo"} <= {*loggers}
            assert planted.alter(client, BROKER_LOGGER, dict.fromkeys(loggers, "TRACE")) == {0}
        yield planted


def assert_nothing_is_disclosed(planted: Planted, *others: str) -> None:
    """Neither the log nor a response nor the system's list of processes has a secret, one of `others` for example."""
    process = Path(f"/proc/{planted.broker.process.pid}")
    places = {
        "log": planted.broker.process.log_text,
        "answers": "\n".join(planted.response_texts),
        "command line": (process / "cmdline").read_text() + (process / "comm").read_text(),
    }
    encoded = base64.b64encode(PLANTED.encode()).decode()[:12]
    secrets = (PLANTED, encoded, PLANTED.encode().hex(), *OWN_SECRETS, *others)
    shown = [
        (place, line[:300])
        for place, text in places.items()
        for line in text.splitlines()
        if any(secret in line for secret in secrets)
    ]
    assert shown == []
    assert " kctl.request request api=" in places["log"]


def test_secret_properties_are_not_disclosed(planted: Planted) -> None:
    """CVE-2026-24308: ZooKeeper logged the values of its client's configuration, passwords of key stores among them."""
    assert "zookeeper.ssl.keystore.password" in PASSWORDS
    with Attacker(planted.broker.plaintext) as client:
        assert PASSWORDS.keys() <= {*planted.describe(client, BROKER)}
    assert PLANTED not in repr(load_broker_config(PASSWORDS))
    assert_nothing_is_disclosed(planted)


def test_changes_of_secret_properties_are_not_disclosed(planted: Planted) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    values = {
        "listener.name.sasl.ssl.keystore.password": f"{PLANTED}-keystore",
        "listener.name.sasl.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----",
        # The administrator of the other tests must remain a user.
        "listener.name.sasl.plain.sasl.jaas.config": (
            f'{module} required user_x="{PLANTED}" user_{ADMIN}="{ADMIN_PASSWORD}";'
        ),
        "listener.name.other.plain.sasl.jaas.config": f'{module} required user_x="{PLANTED}',
        "listener.name.reauth.plain.sasl.jaas.config": f'my.{PLANTED} required user_x="\\"{PLANTED}\\\\";',
        "listener.name.sasl.gssapi.sasl.jaas.config": f'{module} required a="b"; {PLANTED} required c="{PLANTED}";',
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{module} {PLANTED} c={PLANTED};",
        "sasl.jaas.config": f'required user_x="{PLANTED}',
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"https://x:{PLANTED}@host/keys",
        "sasl.oauthbearer.token.endpoint.url": f"https://x:{PLANTED}@host/token",
        "ssl.keystore.certificate.chain": f"-----BEGIN RSA PRIVATE KEY-----\\n{PLANTED}",
        "delegation.token.secret.key": f"{PLANTED}-key",
        "password.encoder.secret": f"{PLANTED}-encoder",
        "unknown.password": f"{PLANTED}-unknown",
        "listener.name.sasl.unknown.secret": f"{PLANTED}-unknown",
        "ssl.keystore.pasword": f"{PLANTED}-misspelled",
        "my.own.property": f"{PLANTED}-own",
    }
    with Attacker(planted.broker.plaintext) as client:
        planted.alter(client, BROKER, values)
        for name, value in values.items():
            changed = ReplacedResource(
                resource_type=BROKER, resource_name="0", configs=[ReplacedConfig(name=name, value=value)]
            )
            request = AlterConfigsRequest(resources=[changed], validate_only=True)
            planted.call(client, request, AlterConfigsResponse, 1)
        planted.describe(client, BROKER)
    assert_nothing_is_disclosed(planted)


def authenticate(planted: Planted, mechanism: str, *tokens: bytes) -> Attacker:
    """A connection that has sent these tokens."""
    client = Attacker(planted.broker.sasl)
    planted.call(client, SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)
    for token in tokens:
        reply = client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)
        planted.response_texts.append(f"{reply.error_message}")
    return client


def test_credentials_of_clients_are_not_disclosed(planted: Planted) -> None:
    secret = PLANTED.encode()
    attempts: list[tuple[str, list[bytes]]] = [
        ("PLAIN", [b"\0alice\0" + secret]),
        ("PLAIN", [secret]),
        ("PLAIN", [b"\0\0" + secret]),
        ("SCRAM-SHA-256", [b"n,,n=alice,r=abc", b"c=biws,r=abc,p=" + base64.b64encode(secret)]),
        ("SCRAM-SHA-256", [b"n,,n=alice,r=abc" + secret]),
        ("SCRAM-SHA-512", [secret]),
        ("OAUTHBEARER", [b"n,,\1auth=Bearer " + secret + b"\1\1"]),
        ("OAUTHBEARER", [b"n,,\1auth=Bearer a." + secret + b".b\1\1"]),
        ("OAUTHBEARER", [secret]),
    ]
    for mechanism, tokens in attempts:
        with authenticate(planted, mechanism, *tokens):
            pass
    assert_nothing_is_disclosed(planted)


def test_new_credentials_and_tokens_are_returned_to_their_creator_only(planted: Planted) -> None:
    """CVE-2026-33558: SCRAM salts, HMACs of tokens and bytes of SASL exchanges were in the log of requests."""
    with authenticate(planted, "PLAIN", f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode()) as client:
        for name, salt in (("eve", b"salt-of-" + PLANTED.encode()), ("", b"")):
            upsertion = ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=salt, salted_password=PLANTED.encode() * 4
            )
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
            planted.call(client, request, AlterUserScramCredentialsResponse, 0)
        created = client.call(
            CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), CreateDelegationTokenResponse, 2
        )
        assert created.error_code == 0
        for hmac in (PLANTED.encode(), created.hmac):
            expiry = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
            planted.call(client, expiry, ExpireDelegationTokenResponse, 2)
    assert_nothing_is_disclosed(
        planted, base64.b64encode(created.hmac).decode(), created.hmac.hex(), repr(created.hmac)[2:-1]
    )


def test_malformed_znodes_are_reported_without_their_secrets(planted: Planted) -> None:
    running = json.loads((planted.broker.process.data_dir / "broker.json").read_text())
    configs = {
        "users/mallory": {"SCRAM-SHA-256": f"salt={PLANTED},stored_key={PLANTED},server_key=x,iterations=4096"},
        "users/oscar": {"SCRAM-SHA-512": PLANTED},
        "brokers/0": {
            "listener.name.sasl.ssl.keystore.password": f"encryptedPassword:{PLANTED}",
            "listener.name.sasl.plain.sasl.jaas.config": PLANTED,
        },
    }
    zookeeper = KazooClient(running["zookeeper"])
    zookeeper.start(60)
    try:
        for entity, config in configs.items():
            path = f"/config/{entity}"
            zookeeper.ensure_path(path)
            zookeeper.set(path, json.dumps({"version": 1, "config": config}).encode())
            change = json.dumps({"version": 2, "entity_path": entity}).encode()
            zookeeper.create("/config/changes/config_change_", change, sequence=True)
        token = "/delegation_token/tokens/some-id"
        zookeeper.create(token, f'{{"hmac": "{PLANTED}"'.encode(), makepath=True)
        zookeeper.create("/delegation_token/token_changes/token_change_", b"some-id", sequence=True, makepath=True)
    finally:
        zookeeper.stop()
        zookeeper.close()
    log = planted.broker.process
    reported = ("mallory", "oscar", "some-id")
    wait_until(lambda: all(text in log.log_text for text in reported), what=f"lines about {reported}", timeout_s=60)
    assert_nothing_is_disclosed(planted)
