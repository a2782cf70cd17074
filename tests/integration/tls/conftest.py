"""One broker with five listeners: PLAINTEXT, TLS one-way and mutual, IPv6, and a control plane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.peers import probe
from tests.peers.certificates import PASSWORD, CertificateAuthority, Identity
from tests.peers.kctl_broker import KctlBroker, kctl_broker

LISTENERS = ("PLAINTEXT", "ONEWAY", "MUTUAL", "SIX", "CONTROL")
TLS_LISTENERS = ("ONEWAY", "MUTUAL")


@dataclass(frozen=True)
class SecureBroker:
    """The broker, the addresses of its listeners, and the issuer of its certificates."""

    broker: KctlBroker
    ports: dict[str, int]
    authority: CertificateAuthority
    server: Identity
    client: Identity

    def bootstrap(self, listener: str) -> str:
        return f"{'[::1]' if listener == 'SIX' else 'localhost'}:{self.ports[listener]}"


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker with plaintext and TLS listeners, and the certificates of its clients."""
    folder = tmp_path_factory.mktemp("tls")
    authority = CertificateAuthority.create(folder)
    server, client = authority.issue("server"), authority.issue("client")
    ports = {listener: probe.free_port() for listener in LISTENERS}
    hosts = {listener: "[::1]" if listener == "SIX" else "127.0.0.1" for listener in LISTENERS}
    protocols = {listener: "SSL" if listener in TLS_LISTENERS else "PLAINTEXT" for listener in LISTENERS}
    properties = {
        "listeners": ",".join(f"{name}://{hosts[name]}:{ports[name]}" for name in LISTENERS),
        "advertised.listeners": ",".join(
            f"{name}://{hosts[name].replace('127.0.0.1', 'localhost')}:{ports[name]}" for name in LISTENERS
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in LISTENERS),
        "inter.broker.listener.name": "PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
        "ssl.keystore.location": str(server.jks),
        "ssl.keystore.password": PASSWORD,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.location": str(authority.pkcs12),
        "listener.name.mutual.ssl.truststore.password": PASSWORD,
    }
    with kctl_broker(folder / "data", properties=properties, port=ports["PLAINTEXT"]) as broker:
        yield SecureBroker(broker, ports, authority, server, client)
