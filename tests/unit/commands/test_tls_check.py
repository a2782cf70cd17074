"""`kctl tls check` against TLS servers of this process."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.cli import main
from tests.peers.certificates import CertificateAuthority, Identity
from tests.rows import for_rows


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("certificates"))


@contextlib.contextmanager
def tls_server(identity: Identity, *, trusted: Path | None = None, plain: bool = False) -> Iterator[int]:
    """Completes handshakes, and closes each connection; with `plain` it closes without one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.pem)
    if trusted is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(trusted)

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError):
                if plain:
                    sock.sendall(b"no TLS here, only a longer text than a server hello")
                else:
                    context.wrap_socket(sock, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def _settings(tmp_path: Path, authority: CertificateAuthority) -> str:
    path = tmp_path / "client.properties"
    path.write_text(f"ssl.truststore.type=PEM\nssl.truststore.location={authority.pem}\n")
    return str(path)


def _check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """With a limit below the 10 days of the authority's certificate, unless the words have another."""
    status = main(["tls", "check", "--expires-after", "5", *words, "--format", "json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_trusted_server_is_described(
    authority: CertificateAuthority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tls_server(authority.issue("server", valid_days=(-1, 40))) as port:
        status, reported = _check(capsys, f"localhost:{port}", "--command-config", _settings(tmp_path, authority))
    assert status == 0
    assert reported["trusted"] is True
    assert reported["versions"] == ["TLSv1.2", "TLSv1.3"]
    assert reported["version"] == "TLSv1.3"
    assert reported["problems"] == []
    leaf, issuer = reported["certificates"]
    assert leaf["subject"] == "CN=server,OU=kctl,O=Tests"
    assert leaf["names"] == ["localhost", "127.0.0.1", "::1"]
    assert leaf["issuer"] == issuer["subject"] == "CN=Test CA"
    assert leaf["key"] == "EC 256"
    assert leaf["days_left"] in {38, 39, 40}


@pytest.mark.parametrize(
    ("hosts", "days", "option", "problem"),
    [
        (("elsewhere.example",), (-1, 10), [], "not trusted: Hostname mismatch, certificate is not valid for"),
        (("localhost",), (-10, -1), [], "not trusted: certificate has expired"),
        (("localhost",), (-1, 20), ["--expires-after", "30"], "CN=server,OU=kctl,O=Tests expires in"),
        (("elsewhere.example",), (-1, 40), ["--server-name", "elsewhere.example"], None),
    ],
)
def test_problems_are_shown_and_make_the_exit_status_3(
    authority: CertificateAuthority,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    hosts: tuple[str, ...],
    days: tuple[int, int],
    option: list[str],
    problem: str | None,
) -> None:
    with tls_server(authority.issue("server", hosts=hosts, valid_days=days)) as port:
        config = _settings(tmp_path, authority)
        status, reported = _check(capsys, f"localhost:{port}", "--command-config", config, *option)
    assert status == (0 if problem is None else 3)
    if problem is None:
        assert reported["problems"] == []
    else:
        assert reported["problems"][0].startswith(problem)


def test_a_server_that_the_system_does_not_trust_is_reported_as_a_table(
    authority: CertificateAuthority, capsys: pytest.CaptureFixture[str]
) -> None:
    with tls_server(authority.issue("server")) as port:
        status = main(["tls", "check", f"localhost:{port}", "--format", "table"])
    out = capsys.readouterr().out
    assert status == 3
    assert "not trusted: " in out
    assert "CN=Test CA" in out


def test_a_server_that_requires_a_client_certificate_is_described(
    authority: CertificateAuthority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tls_server(authority.issue("server"), trusted=authority.pem) as port:
        status, reported = _check(capsys, f"localhost:{port}", "--command-config", _settings(tmp_path, authority))
    assert status == 0
    assert reported["versions"] == ["TLSv1.2", "TLSv1.3"]


def test_a_server_without_tls_and_a_closed_port_are_unreachable(
    authority: CertificateAuthority, capsys: pytest.CaptureFixture[str]
) -> None:
    with tls_server(authority.issue("server"), plain=True) as port:
        assert main(["tls", "check", f"localhost:{port}"]) == 4
    assert "does not complete a TLS handshake" in capsys.readouterr().err
    assert main(["tls", "check", f"localhost:{port}"]) == 4
    assert "cannot connect to localhost" in capsys.readouterr().err


def test_two_addresses_and_bad_settings_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tls", "check", "a:1,b:2"]) == 2
    path = tmp_path / "client.properties"
    path.write_text("ssl.truststore.location=/none\n")
    assert main(["tls", "check", "localhost:1", "--command-config", str(path)]) == 2
    assert "ssl.truststore.location=/none: cannot be read" in capsys.readouterr().err


@for_rows("name", [".example.com", "a" * 64, "a." * 127 + "a", "a b", "a\x1b", "\u202e.example"])
def test_a_server_name_that_is_no_host_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tls", "check", "localhost:1", "--server-name", name]) == 2
    assert "--server-name takes the name of a host" in capsys.readouterr().err


def test_an_ipv6_address_is_shown_in_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tls", "check", "[::1]:1"]) == 4
    assert "[::1]:1:" in capsys.readouterr().err
