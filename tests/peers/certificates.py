"""Certificates for tests: an authority, and key stores signed by it in PEM, PKCS12 and JKS.

    authority = CertificateAuthority.create(folder)
    server = authority.issue("server", hosts=("localhost", "127.0.0.1"))
    server.pem, server.pkcs12, server.jks          # key stores; the password of each is PASSWORD
    authority.pem, authority.pkcs12, authority.jks  # trust stores

Keys are EC: an RSA key takes half a second to make.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jks
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PASSWORD = "test-password"
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """A key with its certificate and files; `folder` belongs to the test."""

    name: str
    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def certificate_text(self) -> str:
        """The certificates as PEM text."""
        chain = [self.certificate] if self.certificate == self.issuer else [self.certificate, self.issuer]
        return "".join(entry.public_bytes(Encoding.PEM).decode() for entry in chain)

    @property
    def key_text(self) -> str:
        """The unencrypted key as PEM text (PKCS8)."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @property
    def encrypted_key_text(self) -> str:
        """The key as PEM text, encrypted with PASSWORD."""
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def pem(self) -> Path:
        """Key and certificates in one file, the key not encrypted."""
        return self._file("pem", (self.key_text + self.certificate_text).encode())

    @property
    def certificate_pem(self) -> Path:
        """The certificates only."""
        return self._file("crt", self.certificate_text.encode())

    @property
    def pkcs12(self) -> Path:
        """A PKCS12 key store."""
        data = serialize_key_and_certificates(
            self.name.encode(),
            self.key,
            self.certificate,
            [self.issuer],
            BestAvailableEncryption(PASSWORD.encode()),
        )
        return self._file("p12", data)

    @property
    def jks(self) -> Path:
        """A JKS key store."""
        key = self.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        chain = [entry.public_bytes(Encoding.DER) for entry in (self.certificate, self.issuer)]
        entry = jks.PrivateKeyEntry.new(self.name, chain, key, "pkcs8")
        return self._file("jks", jks.KeyStore.new("jks", [entry]).saves(PASSWORD))

    def _file(self, suffix: str, data: bytes) -> Path:
        path = self.folder / f"{self.name}.{suffix}"
        path.write_bytes(data)
        path.chmod(0o600)
        return path


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """Issues certificates; its files are trust stores."""

    identity: Identity

    @classmethod
    def create(cls, folder: Path, name: str = "Test CA") -> CertificateAuthority:
        """A new authority with a key of its own."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - 30 * _DAY)
            .not_valid_after(now + 30 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(Identity(name.lower().replace(" ", "-"), folder, key, certificate, certificate))

    @property
    def pem(self) -> Path:
        """A PEM trust store."""
        return self.identity.certificate_pem

    @property
    def pkcs12(self) -> Path:
        """A PKCS12 trust store, marked so that Java takes its certificate as trusted."""
        data = serialize_java_truststore(
            [PKCS12Certificate(self.identity.certificate, b"ca")], BestAvailableEncryption(PASSWORD.encode())
        )
        return self.identity._file("truststore.p12", data)

    @property
    def jks(self) -> Path:
        """A JKS trust store."""
        entry = jks.TrustedCertEntry.new("ca", self.identity.certificate.public_bytes(Encoding.DER))
        return self.identity._file("truststore.jks", jks.KeyStore.new("jks", [entry]).saves(PASSWORD))

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
        subject: x509.Name | None = None,
        valid_days: tuple[int, int] = (-1, 10),
    ) -> Identity:
        """A certificate for server and client; `valid_days` are relative to today, (-10, -1) has expired.

        Without `subject` the distinguished name is CN=<name>,OU=kctl,O=Tests.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        first, last = valid_days
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            self.identity.certificate.subject,
            _subject(name) if subject is None else subject,
            key.public_key(),
            x509.random_serial_number(),
        )
        certificate = (
            builder.not_valid_before(now + first * _DAY)
            .not_valid_after(now + last * _DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.identity.key.public_key()), critical=False
            )
            .sign(self.identity.key, hashes.SHA256())
        )
        return Identity(name, self.identity.folder, key, certificate, self.identity.certificate)


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "kctl"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


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
