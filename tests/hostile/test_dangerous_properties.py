"""AlterConfigs with values that make other programs load classes, open URLs or read files."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kctl.errors import ErrorCode
from kctl.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
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
from tests.peers.sasl_broker import ADMIN, ADMIN_PASSWORD, SaslBroker, sasl_broker

BROKER = 4
LOADED = "kctl_loaded_by_attack"
CONTENT = "content of a file that no client may see"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server to which no connection is expected."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def set_property(broker: SaslBroker, name: str, value: str, resource: str = "0", *, validate_only: bool = False) -> int:
    """The error code."""
    changed = AlterConfigsResource(
        resource_type=BROKER,
        resource_name=resource,
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[changed], validate_only=validate_only)
    with Attacker(broker.plaintext) as client:
        (response,) = client.call(request, IncrementalAlterConfigsResponse, 1).responses
    return int(response.error_code)


def described(broker: SaslBroker) -> str:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="0", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=False)
    with Attacker(broker.plaintext) as client:
        return repr(client.call(request, DescribeConfigsResponse, 4))


def test_properties_load_no_code_and_open_no_url_and_show_no_file(
    tmp_path: Path, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CVE-2025-27817, CVE-2025-27818, CVE-2025-27819: the attacks, before and after a restart of the broker."""
    (tmp_path / f"{LOADED}.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w').close()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    private = tmp_path / "private"
    private.write_text(CONTENT)
    address = f"127.0.0.1:{server.getsockname()[1]}"
    modules = "com.sun.security.auth.module"
    jndi = f'{modules}.JndiLoginModule required user.provider.url="ldap://{address}/x" group.provider.url="x";'
    ldap = f'{modules}.LdapLoginModule required userProvider="ldap://{address}/x";'
    attacks = [
        *(("sasl.jaas.config", entry_value) for entry_value in (jndi, ldap)),
        *(
            (f"listener.name.sasl.{name}.sasl.jaas.config", entry_value)
            for name in ("plain", "gssapi")
            for entry_value in (jndi, ldap)
        ),
        *(
            (f"{prefix}sasl.oauthbearer.{name}.endpoint.url", url)
            for prefix in ("", "listener.name.sasl.", "listener.name.sasl.oauthbearer.")
            for name in ("jwks", "token")
            for url in (f"http://{address}/keys", private.as_uri())
        ),
        *(
            (f"{prefix}{name}", LOADED)
            for prefix in ("", "listener.name.sasl.", "listener.name.sasl.plain.")
            for name in (
                "authorizer.class.name",
                "metric.reporters",
                "principal.builder.class",
                "sasl.login.class",
                "sasl.login.callback.handler.class",
                "sasl.server.callback.handler.class",
                "sasl.client.callback.handler.class",
                "ssl.engine.factory.class",
                "create.topic.policy.class.name",
                "replica.selector.class",
            )
        ),
        *(
            (f"listener.name.sasl.ssl.{name}.location", value)
            for name in ("keystore", "truststore")
            for value in (str(private), f"http://{address}/store")
        ),
    ]
    encoder = {"password.encoder.secret": "encoder-7397"}
    with sasl_broker(tmp_path / "broker", properties=encoder, run_by=OWN_PROGRAM) as broker:
        for name, value in attacks:
            set_property(broker, name, value)
            set_property(broker, name, value, resource="")
        assert set_property(broker, "log.cleaner.threads", "2") == 0, "the client may change properties"
        results = described(broker)
        broker.process.restart()
        results += described(broker)
        with Attacker(broker.sasl):
            pass
        log = broker.process.log_text

    with pytest.raises(BlockingIOError):
        server.accept()
    assert not (tmp_path / "loaded").exists()
    assert CONTENT not in results + log
    assert "Traceback" not in log


def test_unusable_properties_are_refused_and_stored_ones_do_not_stop_a_start(tmp_path: Path) -> None:
    own = "listener.name.sasl."
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    unusable = {
        f"{own}plain.sasl.jaas.config": f"{plain} required;",
        f"{own}sasl.enabled.mechanisms": "PLAIN,TELEPATHY",
        f"{own}plain.connections.max.reauth.ms": "soon",
    }
    by_hand = {
        f"{own}sasl.enabled.mechanisms": "PLAIN,TELEPATHY",
        f"{own}plain.connections.max.reauth.ms": "soon",
        f"{own}plain.sasl.jaas.config": "encryptedPassword:nothing",
        "log.cleaner.threads": "many",
        "process.roles": "broker",
    }
    with sasl_broker(tmp_path / "broker", properties={"password.encoder.secret": "encoder-7397"}) as broker:
        for name, value in unusable.items():
            for validate_only in (True, False):
                assert set_property(broker, name, value, validate_only=validate_only) == ErrorCode.INVALID_REQUEST
        running = json.loads((broker.process.data_dir / "broker.json").read_text())
        zookeeper = KazooClient(running["zookeeper"])
        zookeeper.start(60)
        try:
            zookeeper.create("/config/brokers/0", json.dumps({"config": by_hand}).encode(), makepath=True)
        finally:
            zookeeper.stop()
            zookeeper.close()
        broker.process.restart()
        with Attacker(broker.sasl) as client:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
            token = f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode()
            answer = client.call(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)
            assert answer.error_code == 0
        assert set_property(broker, "log.cleaner.threads", "2", resource="") == 0
        log = broker.process.log_text
    for reason in ("TELEPATHY", "reauth.ms=soon", "encryptedPassword", "log.cleaner.threads=many", "process.roles"):
        assert log.count(f"{reason}") <= 1
    assert log.count("cannot use the SASL properties") == 2, "one line for each property"
    assert "Traceback" not in log
