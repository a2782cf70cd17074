"""TLS settings and contexts: every form of key store, handshakes in memory, and the errors of bad stores."""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

from kctl.errors import ConfigError
from kctl.security import keystores
from kctl.security.tls import TlsSettings, client_context, server_context, store_problems
from kctl.system.tls_sockets import wrap_socket
from tests.peers.certificates import PASSWORD, CertificateAuthority, Identity
from tests.rows import for_rows


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority: CertificateAuthority) -> Identity:
    return authority.issue("server")


def _key_store(identity: Identity, form: str) -> dict[str, str]:
    match form:
        case "pem":
            return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(identity.pem)}
        case "inline":
            return {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": identity.encrypted_key_text,
                "ssl.keystore.certificate.chain": identity.certificate_text,
                "ssl.key.password": PASSWORD,
            }
        case _:
            path = identity.pkcs12 if form == "pkcs12" else identity.jks
            return {"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}


def _trust_store(authority: CertificateAuthority, form: str) -> dict[str, str]:
    match form:
        case "pem":
            return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.pem)}
        case "inline":
            return {"ssl.truststore.certificates": authority.pem.read_text()}
        case _:
            path = authority.pkcs12 if form == "pkcs12" else authority.jks
            return {"ssl.truststore.location": str(path), "ssl.truststore.password": PASSWORD}


FORMS = ("pem", "inline", "pkcs12", "jks")


def handshake(
    server_settings: Mapping[str, str], client_settings: Mapping[str, str], host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory; raises what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(TlsSettings.of(server_settings)).wrap_bio(to_server, to_client, server_side=True)
    client = client_context(TlsSettings.of(client_settings)).wrap_bio(to_client, to_server, server_hostname=host)
    open_sides = [client, server]
    for _ in range(10):
        for side in list(open_sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            open_sides.remove(side)
    assert open_sides == []
    return server, client


@pytest.mark.parametrize("form", FORMS)
def test_mutual_tls_works_with_every_form_of_store(
    authority: CertificateAuthority, server: Identity, form: str
) -> None:
    trust = _trust_store(authority, form)
    client = authority.issue("client")
    there, here = handshake(
        {**_key_store(server, form), **trust, "ssl.client.auth": "required"}, {**_key_store(client, form), **trust}
    )
    assert here.version() == "TLSv1.3"
    assert there.getpeercert() is not None
    assert (("commonName", "client"),) in there.getpeercert()["subject"]  # type: ignore[index]


@pytest.mark.parametrize(("versions", "chosen"), [("TLSv1.2", "TLSv1.2"), ("TLSv1.2,TLSv1.3,TLSv1.1", "TLSv1.3")])
def test_enabled_protocols_bound_the_version(
    authority: CertificateAuthority, server: Identity, versions: str, chosen: str
) -> None:
    _, here = handshake(
        {**_key_store(server, "pem"), "ssl.enabled.protocols": versions}, _trust_store(authority, "pem")
    )
    assert here.version() == chosen


def test_a_suite_with_javas_name_is_used(authority: CertificateAuthority, server: Identity) -> None:
    suite = {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    _, here = handshake({**_key_store(server, "pem"), **suite}, _trust_store(authority, "pem"))
    assert here.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)


def test_a_part_of_the_suites_of_tls_1_3_is_refused(server: Identity) -> None:
    with pytest.raises(ConfigError, match=r"Python cannot leave out single suites of TLS 1\.3: add TLS_AES_128"):
        server_context(TlsSettings.of({**_key_store(server, "pem"), "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}))


@for_rows(
    "name",
    [
        "TLS_NO_SUCH_SUITE",
        "TLS_ECDHE_ECDSA_WITH_AES_512_GCM_SHA256",
        "TLS_ECDH_ECDSA_WITH_AES_128_GCM_SHA256",  # Java has it, OpenSSL does not.
        "SSL_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_AES_128_CCM_SHA256",  # Python cannot enable it.
        "NULL-SHA256",
        "ADH-AES128-SHA",
        "PSK-AES128-GCM-SHA256",
        "HIGH",
        "ECDHE+AESGCM",
        "@SECLEVEL=0",
        "ECDHE-ECDSA-AES128-GCM-SHA256:@SECLEVEL=0",
    ],
)
def test_a_suite_that_openssl_cannot_offer_is_refused_among_others(
    authority: CertificateAuthority, server: Identity, name: str
) -> None:
    suites = {"ssl.cipher.suites": f"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,{name}"}
    expected = f"OpenSSL cannot offer {re.escape(name)}: "
    with pytest.raises(ConfigError, match=expected):
        server_context(TlsSettings.of({**_key_store(server, "pem"), **suites}))
    with pytest.raises(ConfigError, match=expected):
        client_context(TlsSettings.of({**_trust_store(authority, "pem"), **suites}))


def test_suites_of_a_version_that_is_disabled_are_refused(server: Identity) -> None:
    every_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
    for version, suites in (("TLSv1.2", every_1_3), ("TLSv1.3", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")):
        settings = {"ssl.enabled.protocols": version, "ssl.cipher.suites": suites}
        with pytest.raises(ConfigError, match=r"has no suite for ssl\.enabled\.protocols"):
            server_context(TlsSettings.of({**_key_store(server, "pem"), **settings}))


@pytest.mark.parametrize("suite", ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"])
def test_suites_that_the_key_of_a_server_cannot_use_are_refused(server: Identity, suite: str) -> None:
    every_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
    for suites in (suite, f"{every_1_3},{suite}"):
        with pytest.raises(ConfigError, match=r"the server cannot use its suites of TLS 1\.2"):
            server_context(TlsSettings.of({**_key_store(server, "pem"), "ssl.cipher.suites": suites}))


def test_the_name_that_java_lists_for_renegotiation_is_no_suite(
    authority: CertificateAuthority, server: Identity
) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
    _, here = handshake({**_key_store(server, "pem"), "ssl.cipher.suites": suites}, _trust_store(authority, "pem"))
    assert here.version() == "TLSv1.2"


def test_suites_are_checked_where_clients_have_to_present_a_certificate(
    authority: CertificateAuthority, server: Identity
) -> None:
    suite = {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ssl.client.auth": "required"}
    trust = _trust_store(authority, "pem")
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake({**_key_store(server, "pem"), **trust, **suite}, trust)


def test_the_host_name_is_verified_unless_it_is_switched_off(authority: CertificateAuthority) -> None:
    other = _key_store(authority.issue("other", hosts=("elsewhere.example",)), "pem")
    trust = _trust_store(authority, "pem")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(other, trust)
    handshake(other, {**trust, "ssl.endpoint.identification.algorithm": ""})


def test_a_server_of_another_authority_is_refused(tmp_path: Path, server: Identity) -> None:
    unauthenticated = CertificateAuthority.create(tmp_path, "Another CA")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(_key_store(server, "pem"), _trust_store(unauthenticated, "pem"))


def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    authority: CertificateAuthority, server: Identity
) -> None:
    trust = _trust_store(authority, "pem")
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake({**_key_store(server, "pem"), **trust, "ssl.client.auth": "required"}, trust)
    handshake({**_key_store(server, "pem"), **trust, "ssl.client.auth": "requested"}, trust)


@pytest.mark.parametrize("form", ["inline", "pkcs12", "trust"])
def test_a_store_whose_password_takes_too_many_iterations_is_refused(
    authority: CertificateAuthority, server: Identity, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL holds the lock of the interpreter meanwhile, so that a broker would serve nobody."""
    monkeypatch.setattr(keystores, "KEY_DERIVATION_ITERATIONS_MAX", 1_000)
    given = _trust_store(authority, "pkcs12") if form == "trust" else _key_store(server, form)
    (problem,) = store_problems(given)
    assert "demands more than 1000 iterations" in str(problem)


def test_the_property_without_a_certificate_is_named(server: Identity) -> None:
    key = {"ssl.keystore.key": server.key_text, "ssl.keystore.certificate.chain": server.key_text}
    with pytest.raises(ConfigError, match="no readable certificate") as caught:
        server_context(TlsSettings.of(key))
    assert caught.value.name == "ssl.keystore.certificate.chain"
    assert "PRIVATE KEY" not in str(caught.value)


def test_secrets_are_not_in_the_repr_or_in_errors(tmp_path: Path, server: Identity) -> None:
    settings = TlsSettings.of({**_key_store(server, "inline"), "ssl.key.password": "the-secret"})
    assert "the-secret" not in repr(settings)
    assert "PRIVATE" not in repr(settings)
    with pytest.raises(ConfigError) as caught:
        server_context(settings)
    assert "the-secret" not in str(caught.value)
    assert "correct ssl.key.password" in str(caught.value)


def test_no_key_is_left_in_the_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Identity
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server_context(TlsSettings.of(_key_store(server, "pkcs12")))
    assert os.listdir(tmp_path) == []


def test_a_pkcs12_trust_store_that_is_not_encrypted_needs_no_password(
    tmp_path: Path, authority: CertificateAuthority, server: Identity
) -> None:
    """Java's own trust store has been one since 18."""
    store = tmp_path / "cacerts"
    certificate = PKCS12Certificate(authority.identity.certificate, b"ca")
    store.write_bytes(serialize_java_truststore([certificate], NoEncryption()))
    handshake(_key_store(server, "pem"), {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(store)})


@pytest.mark.parametrize("line_end", ["\r\n", "\n\n", "\n\t", " ", ""])
def test_the_lines_of_inline_pem_may_end_in_any_way(
    authority: CertificateAuthority, server: Identity, line_end: str
) -> None:
    given = _key_store(server, "inline")
    pems = {name: text.replace("\n", line_end) for name, text in given.items() if "-----" in text}
    trust = {"ssl.truststore.certificates": authority.pem.read_text().replace("\n", line_end)}
    handshake({**given, **pems}, trust)


BAD_STORES = {
    "missing file": ({"ssl.keystore.location": "{folder}/none.p12"}, "cannot be read .No such file"),
    "a directory": ({"ssl.keystore.location": "{folder}"}, "correct the path"),
    "not a store": ({"ssl.keystore.location": "{folder}/text"}, "is not a PEM, PKCS12 or JKS key store"),
    "wrong password of PKCS12": (
        {"ssl.keystore.location": "{pkcs12}", "ssl.keystore.password": "no"},
        "p12: cannot be decrypted: correct the password",
    ),
    "wrong password of JKS": (
        {"ssl.keystore.location": "{jks}", "ssl.keystore.password": "no"},
        "jks: the password is wrong or the file is damaged",
    ),
    "wrong key password of JKS": (
        {"ssl.keystore.location": "{jks}", "ssl.keystore.password": PASSWORD, "ssl.key.password": "no"},
        "cannot be decrypted: correct ssl.key.password",
    ),
    "only certificates": ({"ssl.keystore.location": "{certificates}"}, "has no private key"),
    "a trust store as key store": (
        {"ssl.keystore.location": "{trust}", "ssl.keystore.password": PASSWORD},
        "name the key store, not the trust store",
    ),
    "key of another certificate": ({"ssl.keystore.location": "{mismatch}"}, "does not match the certificate"),
    "expired": ({"ssl.keystore.location": "{expired}"}, "the certificate expired at .*: renew it"),
    "not yet valid": ({"ssl.keystore.location": "{future}"}, "the certificate is valid from"),
    "no key store": ({}, "a TLS listener needs a key and a certificate"),
    "client certificates without trust": (
        {"ssl.keystore.location": "{pem}", "ssl.client.auth": "required"},
        "set ssl.truststore.location",
    ),
}


@pytest.mark.parametrize("case", BAD_STORES)
def test_a_bad_store_is_refused_with_the_reason(
    authority: CertificateAuthority, server: Identity, tmp_path: Path, case: str
) -> None:
    other = authority.issue("other")
    (tmp_path / "text").write_text("hello")
    mismatch = tmp_path / "mismatch.pem"
    mismatch.write_text(other.key_text + server.certificate_text)
    paths = {
        "folder": tmp_path,
        "pem": server.pem,
        "pkcs12": server.pkcs12,
        "jks": server.jks,
        "certificates": server.certificate_pem,
        "trust": authority.pkcs12,
        "mismatch": mismatch,
        "expired": authority.issue("expired", valid_days=(-10, -1)).pem,
        "future": authority.issue("future", valid_days=(1, 2)).pem,
    }
    properties, reason = BAD_STORES[case]
    given = {name: text.format_map(paths) if "{" in text else text for name, text in properties.items()}
    with pytest.raises(ConfigError, match=reason) as caught:
        server_context(TlsSettings.of(given))
    assert "\n" not in str(caught.value)


@for_rows(
    "properties, reason",
    [
        ({"ssl.keystore.type": "BCFKS"}, "use JKS, PKCS12, PEM"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "use TLSv1.2, TLSv1.3 or both"),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv9"}, "use TLSv1.2, TLSv1.3 or both"),
        ({"ssl.client.auth": "maybe"}, "use none, requested, required"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "use https"),
        ({"ssl.keystore.key": "k"}, "set ssl.keystore.certificate.chain"),
        ({"ssl.keystore.certificate.chain": "c"}, "set ssl.keystore.key"),
        ({"ssl.keystore.password": "p"}, "set ssl.keystore.location"),
        ({"ssl.truststore.password": "p"}, "set ssl.truststore.location"),
        ({"ssl.truststore.location": "/t", "ssl.truststore.certificates": "c"}, "keep one of them"),
        ({"ssl.keystore.location": "/k", "ssl.keystore.key": "k"}, "keep one of them"),
    ],
)
def test_contradictory_and_unknown_values_are_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        TlsSettings.of(properties)


def test_a_connection_that_the_peer_has_reset_is_closed() -> None:
    """SSLContext.wrap_socket of Python 3.11 loses it, which is found when the garbage collector reports it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()  # With RST.
        poll = select.poll()
        poll.register(client, select.POLLIN)
        assert poll.poll(60_000), "the reset has arrived"
        descriptor = client.fileno()
        with pytest.raises(OSError, match="reset"):
            wrap_socket(ssl.create_default_context(), client, "localhost")
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(descriptor)
