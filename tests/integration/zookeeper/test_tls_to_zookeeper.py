"""Sessions with Apache ZooKeeper over mutual TLS, and znodes that only brokers may change."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kctl.cli import main
from kctl.config.properties import format_properties
from tests.peers.apache_zookeeper import apache_zookeeper, why_not
from tests.peers.certificates import PASSWORD, CertificateAuthority
from tests.peers.kctl_broker import kctl_broker
from tests.peers.probe import free_port

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(200)]

NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


@dataclass(frozen=True)
class Ensemble:
    """One server with a port for TLS and one without."""

    secure: str
    plain: str
    authority: CertificateAuthority

    def properties(self) -> dict[str, str]:
        """The settings of a client with a certificate."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": str(self.authority.issue("kafka").pkcs12),
            "zookeeper.ssl.keystore.password": PASSWORD,
            "zookeeper.ssl.truststore.location": str(self.authority.pem),
        }


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("zookeeper-tls")
    authority = CertificateAuthority.create(folder)
    server = authority.issue("zookeeper", hosts=("localhost",))
    port = free_port()
    settings = {
        "serverCnxnFactory": NETTY,
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(server.pkcs12),
        "ssl.keyStore.password": PASSWORD,
        "ssl.keyStore.type": "PKCS12",
        "ssl.trustStore.location": str(authority.pkcs12),
        "ssl.trustStore.password": PASSWORD,
        "ssl.trustStore.type": "PKCS12",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
    }
    with apache_zookeeper(folder / "server", settings=settings) as plain:
        yield Ensemble(f"localhost:{port}", plain, authority)


def test_broker_uses_tls_and_protects_its_znodes(
    ensemble: Ensemble, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = {**ensemble.properties(), "zookeeper.set.acl": "true"}
    with kctl_broker(tmp_path / "data", zookeeper=ensemble.secure, properties=properties) as broker:
        assert PASSWORD not in broker.log_text
        config = tmp_path / "zookeeper.properties"
        config.write_text(format_properties(ensemble.properties()))
        own = ["--zookeeper", ensemble.secure, "--zk-tls-config-file", str(config)]
        assert main(["broker", "zookeeper-get", "/cluster/id", *own]) == 0
        assert json.loads(capsys.readouterr().out)["version"] == "1"
        # Without the certificate: what is readable can be read, what is private cannot.
        anyone = ["--zookeeper", ensemble.plain]
        assert main(["broker", "zookeeper-get", "/cluster/id", *anyone]) == 0
        capsys.readouterr()
        assert main(["broker", "zookeeper-get", "/config/users", *anyone]) == 1
        assert "/config/users" in capsys.readouterr().err
        assert main(["broker", "zookeeper-ls", "/config/users", *own]) == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"zookeeper.ssl.truststore.location": "OTHER_AUTHORITY"}, "certificate"),
        ({"zookeeper.ssl.enabled.protocols": "TLSv1.2"}, "zookeeper.ssl.enabled.protocols"),
        ({"zookeeper.ssl.keystore.password": "wrong-password"}, "zookeeper.ssl.keystore.location"),
        ({"zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable"),
    ],
)
def test_wrong_settings_are_refused_with_their_names(
    ensemble: Ensemble, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], text: str
) -> None:
    unauthenticated = CertificateAuthority.create(tmp_path, "Other authority")
    properties = {**ensemble.properties(), **change}
    config = tmp_path / "zookeeper.properties"
    config.write_text(format_properties(properties).replace("OTHER_AUTHORITY", str(unauthenticated.pem)))
    options = ["--zookeeper", ensemble.secure, "--zk-tls-config-file", str(config)]
    assert main(["broker", "zookeeper-get", "/zookeeper", *options]) in (2, 4)
    message = capsys.readouterr().err
    assert text in message
    assert "wrong-password" not in message


def test_host_name_that_the_certificate_lacks_is_refused(
    ensemble: Ensemble, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """127.0.0.1 resolves back to localhost, which the certificate names; that must not count (CVE-2026-24281)."""
    config = tmp_path / "zookeeper.properties"
    config.write_text(format_properties(ensemble.properties()))
    address = ensemble.secure.replace("localhost", "127.0.0.1")
    assert (
        main(["broker", "zookeeper-get", "/zookeeper", "--zookeeper", address, "--zk-tls-config-file", str(config)])
        == 4
    )
    assert "IP address mismatch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hosts", "valid_days", "reason"),
    [(["localhost"], (-10, -1), "certificate has expired"), (["elsewhere.example"], (-1, 10), "Hostname mismatch")],
)
def test_a_server_with_a_wrong_certificate_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: list[str], valid_days: tuple[int, int], reason: str
) -> None:
    authority = CertificateAuthority.create(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("zookeeper", hosts=hosts, valid_days=valid_days).pem)
    config = tmp_path / "zookeeper.properties"
    config.write_text(format_properties(Ensemble("", "", authority).properties()))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # refused handshakes
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"localhost:{server.server_address[1]}"
        words = ["--zookeeper", address, "--zk-tls-config-file", str(config)]
        assert main(["broker", "zookeeper-get", "/zookeeper", *words]) == 4
        server.shutdown()
    assert reason in capsys.readouterr().err


def test_the_ensemble_refuses_a_client_of_an_unknown_authority(
    ensemble: Ensemble, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other_certificate = CertificateAuthority.create(tmp_path, "Other authority").issue("kafka")
    config = tmp_path / "zookeeper.properties"
    config.write_text(
        format_properties({**ensemble.properties(), "zookeeper.ssl.keystore.location": str(other_certificate.pkcs12)})
    )
    words = ["--zookeeper", ensemble.secure, "--zk-tls-config-file", str(config)]
    assert main(["broker", "zookeeper-get", "/zookeeper", *words]) == 4
    assert "zookeeper.ssl.keystore.location" in capsys.readouterr().err
