"""Kafka's tools for ACLs, users, quotas and tokens print the same of a secured kctl broker as of Apache Kafka 2.8.2.

The tools are those of 2.8.2 and 4.3.1; they log in with PLAIN over TLS.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.jvm.side_by_side import APACHE, OURS, SideBySide, side_by_side
from tests.peers import probe
from tests.peers.apache_kafka import (
    OLDEST_JUDGE,
    TOOLS_FOR_NEWEST,
    run_broker_tool,
    run_java_tool,
)
from tests.peers.certificates import PASSWORD, CertificateAuthority, Identity

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
NOBODY = "nobody"
"""A user without any ACL."""
USER_PASSWORD = "user-secret"

ACLS, CONFIGS, TOKENS = "acls", "configs", "tokens"
TOOLS = {
    OLDEST_JUDGE: {
        ACLS: "kafka.admin.AclCommand",
        CONFIGS: "kafka.admin.ConfigCommand",
        TOKENS: "kafka.admin.DelegationTokenCommand",
    },
    TOOLS_FOR_NEWEST: {
        ACLS: "org.apache.kafka.tools.AclCommand",
        CONFIGS: "kafka.admin.ConfigCommand",
        TOKENS: "org.apache.kafka.tools.DelegationTokenCommand",
    },
}

LINES = {
    ACLS: (
        "--add --allow-principal User:bob --operation Read --operation Write --topic orders",
        (
            "--add --deny-principal User:eve --deny-host 10.0.0.1 --operation All --topic o "
            "--resource-pattern-type prefixed"
        ),
        "--add --allow-principal User:p --producer --topic made --transactional-id tx",
        "--add --allow-principal User:i --producer --idempotent --topic made",
        "--add --allow-principal User:c --consumer --topic made --group readers",
        "--add --allow-principal User:h --allow-host 10.0.0.1 --operation Describe --operation ClusterAction --cluster",
        "--add --allow-principal User:t --operation Describe --delegation-token abc",
        "--add --allow-principal User:* --operation DescribeConfigs --topic *",
        "--list",
        "--list --topic orders",
        "--list --topic orders --resource-pattern-type match",
        "--list --principal User:bob --principal User:eve",
        "--list --group readers --principal User:c",
        "--list --cluster",
        "--list --topic none",
        "--remove --force --topic orders --allow-principal User:bob --operation Write",
        "--remove --force --topic none",
        "--remove --force --topic o --resource-pattern-type prefixed",
        "--remove --force --allow-principal User:p --producer --topic made --transactional-id tx",
        "--list",
        "--add --topic orders --operation Read",
        "--add --allow-principal bob --operation Read --topic orders",
        "--add --allow-principal User:bob --operation Sing --topic orders",
        "--add --allow-principal User:bob --operation Read --cluster",
        "--add --allow-principal User:bob --operation Read --topic",
        "--remove --force --cluster",
        "--remove --force --group *",
        "--remove --force --topic made",
    ),
    CONFIGS: (
        "--alter --entity-type users --entity-name carol --add-config SCRAM-SHA-256=[iterations=5000,password=x]",
        (
            f"--alter --entity-type users --entity-name {NOBODY} --add-config "
            f"SCRAM-SHA-256=[password={USER_PASSWORD}],SCRAM-SHA-512=[password={USER_PASSWORD}]"
        ),
        "--alter --entity-type users --entity-name carol --add-config SCRAM-SHA-256=[iterations=100,password=x]",
        "--alter --entity-type users --entity-name carol --add-config SCRAM-SHA-1=[password=x]",
        "--alter --entity-type users --entity-name carol --add-config producer_byte_rate=1024,request_percentage=20",
        "--alter --entity-type users --entity-default --add-config consumer_byte_rate=2048",
        (
            "--alter --entity-type users --entity-name carol --entity-type clients --entity-name app --add-config "
            "controller_mutation_rate=0.5"
        ),
        (
            "--alter --entity-type users --entity-name carol --entity-type clients --entity-default --add-config "
            "producer_byte_rate=7"
        ),
        (
            "--alter --entity-type users --entity-default --entity-type clients --entity-default --add-config "
            "producer_byte_rate=8"
        ),
        "--alter --entity-type clients --entity-name app --add-config producer_byte_rate=9",
        "--alter --entity-type clients --entity-default --add-config producer_byte_rate=10",
        "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=5",
        "--alter --entity-type ips --entity-default --add-config connection_creation_rate=500",
        "--describe --entity-type users",
        "--describe --entity-type users --entity-name carol",
        "--describe --entity-type users --entity-name none",
        "--describe --entity-type users --entity-default",
        "--describe --entity-type users --entity-type clients",
        "--describe --entity-type users --entity-name carol --entity-type clients",
        "--describe --entity-type users --entity-name carol --entity-type clients --entity-default",
        "--describe --entity-type clients",
        "--describe --entity-type clients --entity-name app",
        "--describe --entity-type ips",
        "--describe --entity-type ips --entity-name 127.0.0.9",
        "--describe --user carol",
        "--describe --client-defaults",
        "--describe --ip 127.0.0.9",
        "--alter --entity-type users --entity-name carol --delete-config SCRAM-SHA-512",
        "--alter --entity-type users --entity-name none --delete-config SCRAM-SHA-256",
        "--alter --entity-type users --entity-name carol --delete-config SCRAM-SHA-256",
        "--alter --entity-type users --entity-name carol --delete-config producer_byte_rate,request_percentage",
        "--alter --entity-type users --entity-name carol --delete-config consumer_byte_rate",
        "--alter --entity-type users --entity-name carol --add-config song=1",
        "--alter --entity-type users --entity-name carol --add-config producer_byte_rate=many",
        "--alter --entity-type users --entity-name carol --add-config producer_byte_rate=-1",
        "--alter --entity-type users --entity-name carol --add-config connection_creation_rate=5",
        "--alter --entity-type users --entity-name carol --add-config SCRAM-SHA-256=[password=x],producer_byte_rate=1",
        "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=0.5",
        "--alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=-3",
        "--alter --entity-type users --entity-name carol --add-config request_percentage=-3",
        "--alter --entity-type users --entity-name carol --add-config SCRAM-SHA-256=[password=]",
        "--alter --entity-type ips --entity-name 127.0.0.9 --add-config producer_byte_rate=5",
        "--alter --entity-type ips --entity-name no.such.host.invalid --add-config connection_creation_rate=5",
        "--alter --entity-type ips --entity-name 127.0.0.9 --delete-config connection_creation_rate",
        "--alter --entity-type ips --entity-default --delete-config connection_creation_rate",
        (
            "--alter --entity-type users --entity-name carol --entity-type clients --entity-name app --delete-config "
            "controller_mutation_rate"
        ),
        "--describe --entity-type users --entity-type clients",
    ),
    TOKENS: (
        "--create --max-life-time-period -1",
        "--create --max-life-time-period 3600000 --renewer-principal User:r --renewer-principal User:s",
        "--create --max-life-time-period -1 --renewer-principal r",
        "--describe",
        "--describe --owner-principal User:admin",
        "--describe --owner-principal User:other",
        "--renew --renew-time-period -1 --hmac {hmac}",
        "--renew --renew-time-period 1000000 --hmac {hmac}",
        "--renew --renew-time-period -1 --hmac bm9uZQ==",
        "--renew --renew-time-period -1 --hmac none!",
        "--expire --expiry-time-period 5000000 --hmac {hmac}",
        "--expire --expiry-time-period -1 --hmac {hmac}",
        "--expire --expiry-time-period -1 --hmac {hmac}",
        "--describe",
    ),
}
"""Arguments of the tools; `{hmac}` is that of the first token."""

OF_NOBODY = {
    ACLS: ("--list", "--add --allow-principal User:bob --operation Read --topic orders", "--remove --force --topic x"),
    CONFIGS: (
        "--describe --entity-type users",
        "--describe --entity-type ips",
        "--alter --entity-type users --entity-name carol --add-config SCRAM-SHA-256=[password=x]",
        "--alter --entity-type users --entity-name carol --add-config producer_byte_rate=1",
        "--alter --entity-type clients --entity-name carol --delete-config producer_byte_rate",
    ),
    TOKENS: ("--describe", "--create --max-life-time-period -1", "--renew --renew-time-period -1 --hmac bm9uZQ=="),
}
"""What a user without permissions tries."""


@dataclass(frozen=True)
class Secured:
    """Both brokers, with the addresses of their listeners."""

    brokers: SideBySide
    sasl: dict[str, str]
    mutual: dict[str, str]
    authority: CertificateAuthority
    client: Identity

    def config(self, folder: Path, protocol: str, **properties: str) -> Path:
        """A file with client properties."""
        lines = {
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",  # Java derives a key from the password of a PKCS #12 file each time
            "ssl.truststore.location": str(self.authority.pem),
            "default.api.timeout.ms": "30000",
            **{name.replace("__", "."): value for name, value in properties.items()},
        }
        path = folder / f"{abs(hash(tuple(lines.items()))):x}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path

    def login(self, folder: Path, user: str, mechanism: str = "PLAIN") -> Path:
        password = ADMIN_PASSWORD if user == ADMIN else USER_PASSWORD
        jaas = f'{PLAIN if mechanism == "PLAIN" else SCRAM} username="{user}" password="{password}";'
        return self.config(folder, "SASL_SSL", sasl__mechanism=mechanism, sasl__jaas__config=jaas)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured-tools")
    authority = CertificateAuthority.create(folder)
    server = authority.issue("server")
    both = (APACHE, OURS)
    plain = {who: probe.free_port() for who in both}
    sasl, mutual = ({who: f"localhost:{probe.free_port()}" for who in both} for _ in range(2))
    common = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f'{PLAIN} user_{ADMIN}="{ADMIN_PASSWORD}" user_{NOBODY}="{USER_PASSWORD}";'
        ),
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(server.pkcs12),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(authority.pkcs12),
        "ssl.truststore.password": PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),.*$/$1/",
        "delegation.token.master.key": "a key",
    }
    listeners = {
        who: {"listeners": f"PLAINTEXT://127.0.0.1:{plain[who]},SASL://{sasl[who]},MUTUAL://{mutual[who]}"}
        for who in both
    }
    with side_by_side(
        folder,
        properties=common,
        apache_port=plain[APACHE],
        apache_properties=listeners[APACHE],
        our_port=plain[OURS],
        our_properties=listeners[OURS],
    ) as brokers:
        yield Secured(brokers, sasl, mutual, authority, authority.issue("client"))


def run_tool(version: str, kind: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    run = run_broker_tool if kind == CONFIGS else run_java_tool
    return run(version, TOOLS[version][kind], words)


def printed(secured: Secured, who: str, version: str, config: Path, kind: str, lines: tuple[str, ...]) -> list[str]:
    """Exit status and output of each line."""
    seen = []
    hmac = ""
    for line in lines:
        words = line.replace("{hmac}", hmac).split()
        done = run_tool(
            version, kind, ["--bootstrap-server", secured.sasl[who], "--command-config", str(config), *words]
        )
        if kind == TOKENS and not hmac:
            (hmac,) = re.findall(r"(\S+==) ", done.stdout)[:1] or [""]
        text = done.stdout + done.stderr
        seen.append(f"{line}\n{done.returncode}\n{comparable(text.replace(hmac, 'HMAC') if hmac else text)}")
    return seen


def comparable(text: str) -> str:
    """Without stack traces, and without what differs in each run: times, ids of tokens, and orders of hash codes."""
    text = re.sub(r"^\s+at .*\n|^\s+\.\.\. \d+ more\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2},\d{3})?", "TIME", text)
    # Kafka's text is that of an object in Scala, with addresses and sizes.
    text = re.sub(r"(ClusterAuthorizationException): .*", r"\1", text)
    text = re.sub(r"expiry date: ?\S.*", "expiry date", re.sub(r"\d{13}", "MILLIS", text))
    text = re.sub(r"(?<![\w-])[\w-]{22}(?=[ \n])", "TOKEN", text)
    text = re.sub(r"configs for .* are", "\\g<0>,", text)
    text = re.sub(r".* main ERROR Reconfiguration failed.*\n", "", text)  # of log4j in the JVM of the tools
    text = re.sub(r"\S{60,}==", "OTHER-HMAC", text)
    text = re.sub(r"localhost:\d+", "BROKER", re.sub(r"[0-9a-f]{10,}\.properties", "CONFIG", text))
    return "\n".join(sorted(", ".join(sorted(line.strip().split(", "))) for line in text.splitlines() if line.strip()))


def assert_same(ours: list[str], theirs: list[str]) -> None:
    differences = [
        f"{own}\n--- Apache Kafka:\n{other}" for own, other in zip(ours, theirs, strict=True) if own != other
    ]
    assert not differences, "\n" + "\n\n".join(differences)


VERSIONS = [OLDEST_JUDGE, pytest.param(TOOLS_FOR_NEWEST, marks=pytest.mark.matrix)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", [pytest.param(CONFIGS, marks=pytest.mark.matrix), ACLS, TOKENS])
def test_tools_print_the_same(secured: Secured, kind: str, version: str, tmp_path: Path) -> None:
    config = secured.login(tmp_path, ADMIN)
    theirs, ours = (printed(secured, who, version, config, kind, LINES[kind]) for who in (APACHE, OURS))
    assert_same(ours, theirs)


@pytest.mark.parametrize("version", VERSIONS)
def test_tools_of_a_user_without_permissions_print_the_same(secured: Secured, version: str, tmp_path: Path) -> None:
    config = secured.login(tmp_path, NOBODY)
    for kind, lines in OF_NOBODY.items():
        theirs, ours = (printed(secured, who, version, config, kind, lines) for who in (APACHE, OURS))
        assert_same(ours, theirs)
