"""GSSAPI with a key distribution centre: Java, librdkafka and kctl log in with tickets, other clients do not."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hostile.raw_client import connected, receive_frame, request
from tests.integration.clients import kcat
from tests.integration.clients.kcat import Kcat
from tests.integration.security.test_sasl_clients import java_properties, run_java
from tests.integration.security.test_users_command import kctl
from tests.peers import kerberos, probe
from tests.peers.apache_kafka import NEWEST
from tests.peers.kerberos import REALM, Realm, kerberos_realm
from tests.peers.sasl_broker import SaslBroker, sasl_broker

MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


@dataclass(frozen=True)
class KerberosBroker:
    """A broker with a GSSAPI listener, and the realm of its principal."""

    address: str
    realm: Realm
    broker: SaslBroker


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosBroker]:
    if reason := kerberos.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("kerberos")
    with kerberos_realm(folder / "realm") as realm, pytest.MonkeyPatch.context() as patch:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        plaintext, address = (f"localhost:{probe.free_port()}" for _ in range(2))
        table = realm.key_table("kafka/localhost")
        properties = {
            "listeners": f"PLAINTEXT://{plaintext.replace('localhost', '127.0.0.1')},TICKETS://{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TICKETS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.tickets.gssapi.sasl.jaas.config": (
                f'{MODULE} keyTab="{table}" principal="kafka/localhost@{REALM}";'
            ),
            "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](app-.*)s/app-//,DEFAULT",
        }
        with sasl_broker(folder / "broker", properties=properties) as broker:
            yield KerberosBroker(address, realm, broker)


def java(kerberized: KerberosBroker, folder: Path, principal: str, table: Path) -> str:
    config = {
        "sasl.jaas.config": f'{MODULE} keyTab="{table}" principal="{principal}@{REALM}";',
        "sasl.kerberos.service.name": "kafka",
    }
    file = java_properties(folder, kerberized.address, "GSSAPI", **config)
    (line,) = run_java(NEWEST, "check", file, flags={"java.security.krb5.conf": str(kerberized.realm.settings)})
    return line


@pytest.mark.jvm
def test_the_java_client_logs_in_with_a_ticket(kerberized: KerberosBroker, tmp_path: Path) -> None:
    table = kerberized.realm.key_table("alice")
    assert java(kerberized, tmp_path, "alice", table) == "ok"


@pytest.mark.clients
def test_librdkafka_logs_in_with_a_ticket(kerberized: KerberosBroker, tmp_path: Path) -> None:
    """Debian's kcat, because confluent-kafka's wheels have no Kerberos."""
    if reason := kcat.why_not() or kerberos.why_no_sasl_library():
        pytest.skip(reason)
    records = [(b"k%d" % number, b"v%d" % number) for number in range(50)]
    client = Kcat(kerberized.address)
    client.settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": str(kerberized.realm.key_table("carol")),
        "sasl.kerberos.principal": f"carol@{REALM}",
    }
    client.produce("tickets", records)
    assert [(entry.key, entry.value) for entry in client.consume("tickets", len(records))] == records
    client.settings = {**client.settings, "sasl.kerberos.service.name": "mail"}
    with pytest.raises(AssertionError, match=r"mail/localhost@KCTL\.TEST not found in Kerberos database"):
        client.produce("tickets", records)


def test_kctl_logs_in_with_a_key_tab_beside_tickets_of_another_user(kerberized: KerberosBroker, tmp_path: Path) -> None:
    kerberized.realm.log_in("somebody-else")
    table = kerberized.realm.key_table("app-reports")
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={kerberized.address}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        f'sasl.kerberos.service.name=kafka\nsasl.jaas.config={MODULE} keyTab="{table}" '
        f'principal="app-reports@{REALM}";\n'
    )
    status, rows, message = kctl("tokens", "create", "--command-config", str(file))
    assert status == 0, message
    assert [row["owner"] for row in rows] == ["User:reports"]


@pytest.mark.parametrize("token", [b"", b"\x60", b"x" * 1000])
def test_what_is_no_ticket_is_refused(kerberized: KerberosBroker, token: bytes) -> None:
    with connected(kerberized.address) as sock:
        sock.sendall(request(17, 1, struct.pack(">h", 6) + b"GSSAPI"))
        receive_frame(sock)
        sock.sendall(request(36, 1, struct.pack(">i", len(token)) + token))
        assert struct.unpack_from(">h", receive_frame(sock), 4) == (58,)
    assert "Traceback" not in kerberized.broker.process.log_text


def authenticate(sock: socket.socket, token: bytes) -> tuple[int, bytes]:
    """The error code and the token of the response."""
    sock.sendall(request(36, 1, struct.pack(">i", len(token)) + token))
    reply = receive_frame(sock)
    code, message_size = struct.unpack_from(">hh", reply, 4)
    position = 8 + max(message_size, 0)
    (size,) = struct.unpack_from(">i", reply, position)
    return code, reply[position + 4 : position + 4 + size]


NO_LAYER = b"\x01\0\0\0"
CHOICES = {
    NO_LAYER: 0,
    NO_LAYER + b"alice": 0,
    NO_LAYER + b"admin": 58,
    NO_LAYER + b"alice\0": 58,
    b"\x02\0\xff\xff": 58,
    b"\x04\0\xff\xff": 58,
    b"\x07\0\0\0": 58,
    NO_LAYER[:3]: 58,
    b"": 58,
}
"""The last message of a client and the error code in the response: layers of security, and authorization ids."""


def test_a_client_with_a_ticket_chooses_no_security_layer_and_only_its_own_name(kerberized: KerberosBroker) -> None:
    kerberized.realm.log_in("alice")
    assert {choice: code_for(kerberized.address, choice) for choice in CHOICES} == CHOICES
    assert "Traceback" not in kerberized.broker.process.log_text


def code_for(address: str, choice: bytes) -> int:
    """The error code for a client with a ticket, which is refused when it is sent again."""
    import gssapi  # noqa: PLC0415 - optional

    name = gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service)
    context = gssapi.SecurityContext(name=name, usage="initiate")
    ticket = context.step()
    with connected(address) as sock, connected(address) as other:
        for opened in (sock, other):
            opened.sendall(request(17, 1, struct.pack(">h", 6) + b"GSSAPI"))
            receive_frame(opened)
        context.step(authenticate(sock, ticket)[1])
        assert authenticate(other, ticket)[0] == 58
        assert context.unwrap(authenticate(sock, b"")[1]).message == NO_LAYER
        return authenticate(sock, context.wrap(choice, encrypt=False).message)[0]
