"""TLS and SCRAM for a development broker in one step: an authority, a certificate and a user, made at the first start.

    security/ca.key, ca.pem          the authority
    security/broker.pem              key and certificate of the broker
    security/admin.password          password of the user `admin`
    security/client.properties       for kctl and Kafka's tools (PEM)
    security/client-pkcs12.properties, truststore.p12   for Java before Kafka 2.7
    security/client.pem, client.p12  key and certificate of a client, where a test has asked for them

The folder has mode 0700 and its files have 0600.  It is complete or absent.  Later starts use what is there; the
certificate is replaced when it lacks a host name or is about to expire.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kctl.config.properties import format_properties
from kctl.errors import KctlError, UsageError
from kctl.security.scram import Mechanism, credential_of_password, credential_text

USER = "admin"
MECHANISM = Mechanism.SCRAM_SHA_512
ITERATIONS = 8_192
HOSTS = ("localhost", "127.0.0.1", "::1")
"""Host names in every certificate."""

_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PASSWORD_BYTES = 24
_SALT_BYTES = 24
_AUTHORITY_DAYS = 3_650
_CERTIFICATE_DAYS = 365
_RENEW_BEFORE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class SecureSetup:
    """The files in one folder.  Its repr contains no secret."""

    folder: Path

    @property
    def client_properties(self) -> Path:
        """Properties of the administrator's client, with certificates in PEM files."""
        return self.folder / "client.properties"

    @property
    def java_properties(self) -> Path:
        """The client properties for Java clients, with a PKCS12 truststore."""
        return self.folder / "client-pkcs12.properties"

    def broker_properties(self, port: int) -> dict[str, str]:
        """Return the properties of a broker with one listener, on loopback."""
        name = MECHANISM.config_key
        return {
            "listeners": f"SASL_SSL://127.0.0.1:{port}",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{USER}",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": name,
            "sasl.mechanism.inter.broker.protocol": name,
            f"listener.name.sasl_ssl.{name.lower()}.sasl.jaas.config": self._jaas,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
        }

    def user(self) -> tuple[str, dict[str, str]]:
        """Return the user and its configuration in ZooKeeper, with a new salt."""
        salt = secrets.token_bytes(_SALT_BYTES)
        credential = credential_of_password(MECHANISM, self.password, salt=salt, iterations=ITERATIONS)
        return USER, {MECHANISM.config_key: credential_text(credential)}

    def write_client_files(self, address: str) -> None:
        """Write the client properties for the broker at HOST:PORT."""
        common = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM.config_key,
            "sasl.jaas.config": self._jaas,
        }
        pem = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.folder / "ca.pem")}
        pkcs12 = {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.folder / "truststore.p12"),
            "ssl.truststore.password": self.password,
        }
        _write(self.client_properties, format_properties({**common, **pem}).encode())
        _write(self.java_properties, format_properties({**common, **pkcs12}).encode())

    def write_client_certificate(self) -> None:
        """Write the key and certificate of a client whose name is that of the user, if they are not there."""
        if (self.folder / "client.p12").exists():
            return
        issuer_key, issuer = _read_authority(self.folder)
        key, certificate = _signed(issuer_key, issuer, USER, ())
        encryption = BestAvailableEncryption(self.password.encode())
        _write(self.folder / "client.pem", _pem(key, certificate, issuer))
        _write(
            self.folder / "client.p12",
            serialize_key_and_certificates(b"client", key, certificate, [issuer], encryption),
        )

    @property
    def password(self) -> str:
        """The password of the user, of the trust store, and of the client's key store."""
        return (self.folder / "admin.password").read_text(encoding="utf-8").strip()

    @property
    def _jaas(self) -> str:
        return scram_jaas(self.password)


def scram_jaas(password: str) -> str:
    """Return the JAAS configuration of a client that is the user."""
    return f'{_MODULE} required username="{USER}" password="{password}";'


def prepare(folder: Path, hosts: Sequence[str] = ()) -> SecureSetup:
    """Return the setup in the folder, made if it is not there; the certificate is for HOSTS and `hosts`.

    Raises UsageError for an invalid host name and KctlError if the folder cannot be used.
    """
    names = tuple(dict.fromkeys([*HOSTS, *hosts]))
    for host in names:
        _general_name(host)
    try:
        if not folder.exists():
            _make(folder, names)
        elif not _is_usable(folder, names):
            key, issuer = _read_authority(folder)
            _write(folder / "broker.pem", _broker_pem(key, issuer, names))
    except (OSError, ValueError) as error:
        raise KctlError(f"{folder} cannot be used: {error}; remove it to make new certificates") from None
    return SecureSetup(folder)


def _make(folder: Path, names: Sequence[str]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".security-"))  # mode 0700
    try:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = _authority(key)
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        trust = serialize_java_truststore(
            [PKCS12Certificate(authority, b"ca")], BestAvailableEncryption(password.encode())
        )
        _write(scratch / "ca.key", _key_pem(key))
        _write(scratch / "ca.pem", authority.public_bytes(Encoding.PEM))
        _write(scratch / "broker.pem", _broker_pem(key, authority, names))
        _write(scratch / "admin.password", f"{password}\n".encode())
        _write(scratch / "truststore.p12", trust)
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _is_usable(folder: Path, names: Sequence[str]) -> bool:
    certificate = x509.load_pem_x509_certificate(_certificates((folder / "broker.pem").read_bytes()))
    known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    has_names = all(_general_name(name) in known for name in names)
    return has_names and certificate.not_valid_after_utc - datetime.now(UTC) > _RENEW_BEFORE


def _certificates(pem: bytes) -> bytes:
    return pem[pem.index(b"-----BEGIN CERTIFICATE") :]


def _read_authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("ca.key is not the key that kctl made")
    return key, x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"kctl development CA {secrets.token_hex(4)}")])
    return (
        _builder(name, name, key, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _broker_pem(issuer_key: ec.EllipticCurvePrivateKey, issuer: x509.Certificate, names: Sequence[str]) -> bytes:
    """Return the key, certificate and issuer."""
    key, certificate = _signed(issuer_key, issuer, "broker", names)
    return _pem(key, certificate, issuer)


def _signed(
    issuer_key: ec.EllipticCurvePrivateKey, issuer: x509.Certificate, common_name: str, hosts: Sequence[str]
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Return a new key and its certificate, for servers with these names and for clients."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(subject, issuer.subject, key, _CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages if hosts else usages[1:]), critical=False)
        .add_extension(identifier, critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return key, builder.sign(issuer_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=days))


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host.isascii() or not host or any(character in host for character in " /\\,:@\0"):
        raise UsageError(f"{host!r} is not a host name")
    return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _pem(key: ec.EllipticCurvePrivateKey, *certificates: x509.Certificate) -> bytes:
    return _key_pem(key) + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def _write(path: Path, data: bytes) -> None:
    """Replace the file; it has mode 0600 from the beginning."""
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise
