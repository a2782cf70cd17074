"""A cluster whose brokers and clients log in by SCRAM over TLS is converted with its users and controllers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kctl.config.properties import format_properties
from tests.integration.jvm.conversion import compared, different, kctl, made_node, make_plan, new_nodes, old_broker
from tests.peers import apache_kafka, certificates, probe
from tests.peers.certificates import CertificateAuthority
from tests.peers.embedded_zookeeper import embedded_zookeeper
from tests.peers.forked_kctl import run_kctl
from tests.peers.kctl_broker import TEST_PROPERTIES

pytestmark = [pytest.mark.jvm, pytest.mark.matrix, pytest.mark.timeout(600)]

LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{password}";'
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "carol": "carol-secret"}


def stores(folder: Path, authority: CertificateAuthority, name: str, prefix: str) -> dict[str, str]:
    """The properties of a key store with a new certificate, and of the trust store."""
    return {
        f"{prefix}ssl.keystore.location": str(authority.issue(name).pkcs12),
        f"{prefix}ssl.keystore.password": certificates.PASSWORD,
        f"{prefix}ssl.keystore.type": "PKCS12",
        f"{prefix}ssl.truststore.location": str(authority.pkcs12),
        f"{prefix}ssl.truststore.password": certificates.PASSWORD,
        f"{prefix}ssl.truststore.type": "PKCS12",
    }


@pytest.mark.parametrize(
    ("version", "protocol"),
    [("ours", "SASL_SSL"), (apache_kafka.OLDEST_JUDGE, "SASL_SSL"), (apache_kafka.OLDEST_JUDGE, "SSL")],
)
def test_4_and_the_old_brokers_accept_the_same_users(version: str, protocol: str, tmp_path: Path) -> None:
    """With SASL_SSL the broker is the controller as well; with SSL the controller is a node of its own, with
    certificates.  The listener without TLS is for the test to see when a broker serves; nobody is allowed anything
    there.
    """
    authority = CertificateAuthority.create(tmp_path)
    secured = f"localhost:{probe.free_port()}"
    prefix = "listener.name.sasl_ssl."
    security = {
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{prefix}scram-sha-512.sasl.jaas.config": LOGIN.format(user="admin", password=PASSWORDS["admin"]),
        **stores(tmp_path, authority, "broker", prefix),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:CN=broker,OU=kctl,O=Tests;User:CN=controller,OU=kctl,O=Tests",
    }
    if protocol == "SSL":
        security["listener.name.controller.ssl.client.auth"] = "required"
    node = made_node(tmp_path, 3, {**TEST_PROPERTIES, **security})
    node = node._replace(
        properties={**node.properties, "listeners": f"PLAINTEXT://{node.bootstrap},SASL_SSL://{secured}"}
    )
    configs = {}
    for user, password in PASSWORDS.items():
        configs[user] = tmp_path / f"{user}.properties"
        client = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": LOGIN.format(user=user, password=password),
            "ssl.truststore.location": str(authority.pem),
        }
        configs[user].write_text(format_properties(client))
        (tmp_path / f"{user}.password").write_text(password)
    before, written, lines = tmp_path / "before.json", tmp_path / "written.json", tmp_path / "lines"
    lines.write_text("".join(f"value {number}\n" for number in range(100)))
    admin = ("--command-config", configs["admin"], "--bootstrap-server", secured)

    def create_user(user: str) -> None:
        kctl(
            "users",
            "create",
            user,
            "--mechanism",
            "SCRAM-SHA-512",
            "--password-file",
            tmp_path / f"{user}.password",
            "--yes",
            *admin,
        )
        kctl("acls", "add", "--allow", f"User:{user}", "--operation", "write", "--topic", "orders", "--yes", *admin)

    def produce(user: str) -> int:
        words = ("produce", "orders", "--file", lines, "--command-config", configs[user], "--bootstrap-server", secured)
        return run_kctl(*map(str, words)).returncode

    with embedded_zookeeper(tmp_path / "zookeeper") as zookeeper:
        change = f"SCRAM-SHA-512=[password={PASSWORDS['admin']}]"
        words = ["--zookeeper", zookeeper.connect, "--alter", "--add-config", change, "--entity-type", "users"]
        tool = "kafka.admin.ConfigCommand"
        apache_kafka.run_broker_tool(apache_kafka.OLDEST_JUDGE, tool, [*words, "--entity-name", "admin"])
        with old_broker(node, version, zookeeper.connect):
            kctl("topics", "create", "orders", "--partitions", 1, "--yes", *admin)
            create_user("alice")
            assert produce("alice") == 0
            assert produce("carol") != 0
            kctl("migrate", "verify", "--save", before, *admin)
        folder = tmp_path / "controller" / "metadata"
        directory = f"={folder}" if protocol == "SSL" else ""
        controller = f"{100 if directory else 3}@127.0.0.1:{probe.free_port()}{directory}"
        plan = make_plan(tmp_path, [node], zookeeper.connect, [controller], "--controller-protocol", protocol)
        nodes = [3, 100] if directory else [3]
        for number in nodes:
            kctl("migrate", "convert", "--plan", plan, "--node", number, "--yes")
        new = {node.new_settings: node.bootstrap}
        if directory:
            settings = folder / "controller.properties"
            own = stores(tmp_path, authority, "controller", "") | {"ssl.client.auth": "required"}
            settings.write_text(settings.read_text() + format_properties(own))
            new = {settings: "", **new}
        with new_nodes(new):
            assert different(compared(secured, before, "--command-config", configs["admin"])) == {}
            assert produce("alice") == 0
            assert produce("carol") != 0
            create_user("carol")
            probe.wait_until(lambda: produce("carol") == 0, what="the new user", timeout_s=30)
            kctl("migrate", "verify", "--save", written, *admin)
        for number in reversed(nodes):
            options = ("--files-only",) if number == 3 and directory else ()
            kctl("migrate", "revert", "--plan", plan, "--node", number, *options, "--yes")
        with old_broker(node, version, zookeeper.connect):
            found = compared(secured, written, "--command-config", configs["admin"])
            assert different(found) == {}, json.dumps(sorted(map(str, found)))
            assert produce("alice") == 0
            assert produce("carol") == 0
