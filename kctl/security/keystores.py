"""Reads key stores and trust stores: PEM, PKCS12 and JKS.

The format is recognised by the content, as Java does for JKS and PKCS12.  Keys stay in memory: nothing is written.
This module imports `cryptography`, which takes time: import it only to read a store.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates
from cryptography.x509 import Certificate, load_der_x509_certificate, load_pem_x509_certificates

from kctl.errors import KctlError
from kctl.limits import Subject, bound
from kctl.security.java_key_stores import (
    JCEKS,
    JKS,
    DamagedStore,
    JavaKeyStore,
    WrongPassword,
    decrypt_jceks_key,
    decrypt_jks_key,
    read_java_key_store,
)

KEY_DERIVATION_ITERATIONS_MAX = bound(
    Subject.CONNECTIONS,
    "iterations of the password of a key store or private key",
    1_000_000,
    "iterations",
    on_excess="it is refused before the password is tried",
)
KEY_DERIVATION_SCRYPT_MAX = bound(
    Subject.CONNECTIONS,
    "work of scrypt for the password of a private key, as N * r * p; it needs 128 bytes each",
    1 << 20,
    "blocks",
    on_excess="it is refused before the password is tried",
)


# The work that the password of a key store demands: parameters of key derivations, read from its encoding.
#
# OpenSSL derives keys with the lock of the interpreter held. A file with a billion iterations would stop the whole
# process, also when it is read in a thread. Java's PKCS12KeyStore has a bound too (MAX_ITERATION_COUNT).
#
# Parameters that are encrypted themselves, such as those of a key inside encrypted content, are not found.
#
# RFC 8018 (PBES1, PBES2), RFC 7914 (scrypt), RFC 7292 (PKCS12). Pure.


_INTEGER, _OCTETS, _OCTETS_IN_PARTS, _SEQUENCE = 0x02, 0x04, 0x24, 0x30
_CONSTRUCTED, _LONG_TAG, _INDEFINITE = 0x20, 0x1F, 0x80
_DEPTH_MAX = 40


class _Element(NamedTuple):
    """An element of BER, of which DER is a part."""

    tag: int
    content: bytes
    children: tuple[_Element, ...]
    """Of a constructed element, and of octets that contain a sequence."""


def derivation_problem(data: bytes) -> str | None:
    """Return why the keys of this PKCS8 or PKCS12 structure must not be derived; None if they may be."""
    try:
        elements, _ = _elements(data, 0, len(data), 0)
    except (ValueError, IndexError):
        return "is not encoded as PKCS8 or PKCS12 prescribe"
    for numbers in _parameters(elements):
        # PBKDF2 and PKCS12 have iterations, and perhaps the size of the key; scrypt has N, r, p, and perhaps that size.
        if len(numbers) >= 3:
            if min(numbers) < 1 or numbers[0] * numbers[1] * numbers[2] > KEY_DERIVATION_SCRYPT_MAX:
                return f"demands more work of scrypt than N * r * p = {KEY_DERIVATION_SCRYPT_MAX}"
        elif numbers[0] > KEY_DERIVATION_ITERATIONS_MAX:
            return f"demands more than {KEY_DERIVATION_ITERATIONS_MAX} iterations of its password"
    return None


def _parameters(elements: tuple[_Element, ...]) -> Iterator[list[int]]:
    """Yield the integers that follow a salt, from the whole tree."""
    numbers: list[int] | None = None
    for element in elements:
        if element.tag in {_OCTETS, _OCTETS_IN_PARTS}:
            if numbers:
                yield numbers
            numbers = []
        elif element.tag == _INTEGER and numbers is not None:
            numbers.append(int.from_bytes(element.content, signed=True))
        yield from _parameters(element.children)
    if numbers:
        yield numbers


def _elements(data: bytes, position: int, end: int, depth: int) -> tuple[tuple[_Element, ...], int]:
    """Return the elements up to `end` or to a mark of the end, and the position after them.

    Raises ValueError and IndexError for other data.
    """
    if depth > _DEPTH_MAX:
        raise ValueError("too many levels")
    elements: list[_Element] = []
    while position < end:
        tag = data[position]
        position += 1
        if tag & _LONG_TAG == _LONG_TAG:
            while data[position] & 0x80:
                position += 1
            position += 1
        size = data[position]
        position += 1
        if tag == size == 0:
            break
        children: tuple[_Element, ...] = ()
        if size == _INDEFINITE:
            if not tag & _CONSTRUCTED:
                raise ValueError("an indefinite length")
            children, position = _elements(data, position, end, depth + 1)
            content = b""
        else:
            if size > _INDEFINITE:
                size_bytes = size & 0x7F
                size = int.from_bytes(data[position : position + size_bytes])
                position += size_bytes
            if position + size > end:
                raise ValueError("a length beyond the end")
            content = data[position : position + size]
            position += size
            if tag & _CONSTRUCTED:
                children, _ = _elements(content, 0, size, depth + 1)
        if tag == _OCTETS_IN_PARTS:
            content = b"".join(child.content for child in children)
        if tag in {_OCTETS, _OCTETS_IN_PARTS} and content[:1] == bytes([_SEQUENCE]):
            with suppress(ValueError, IndexError):
                children, _ = _elements(content, 0, len(content), depth + 1)
        elements.append(_Element(tag, content, children))
        if depth == 0:
            break  # Whatever follows is not read.
    return tuple(elements), position


_PEM_MARK = b"-----BEGIN "
_JKS_MARKS = (JKS, JCEKS)
_JKS_PROTECTION = bytes.fromhex("2b060104012a02110101")
_JCEKS_PROTECTION = bytes.fromhex("2b060104012a021301")
"""Object identifiers of Sun's protections of keys: 1.3.6.1.4.1.42.2.17.1.1 and 1.3.6.1.4.1.42.2.19.1."""
_PKCS12_MARK = b"\x30"
_PEM_KEY = re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
_PEM_BLOCK = re.compile(r"(-----BEGIN ([A-Z0-9 ]+)-----)([A-Za-z0-9+/=\s]+)(-----END \2-----)")
"""Without headers, which only keys in older formats have."""
_ENCRYPTED_KEY = "ENCRYPTED PRIVATE KEY"
"""PKCS8; in the older formats the key is derived by one hash."""
_NEW_FILE = "create it again, for example with keytool or openssl"


class KeyStoreError(KctlError):
    """A store cannot be used; the text contains the reason and what to do."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its certificates: the certificate of the key first, then the authorities that signed it."""

    certificates: tuple[Certificate, ...]
    key: PrivateKeyTypes = field(repr=False)

    def pem(self) -> bytes:
        """Return the unencrypted key and certificates as PEM text."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.certificates)


def key_pair_of_store(data: bytes, *, store_password: str | None, key_password: str | None) -> KeyPair:
    """Return the key and certificates of a key store's content.  Raises KeyStoreError."""
    if _PEM_MARK in data:
        text = _ascii(data)
        return key_pair_of_pem(certificates=text, key=text, key_password=key_password)
    if data.startswith(_JKS_MARKS):
        return _jks_key_pair(data, store_password, key_password or store_password)
    if data.startswith(_PKCS12_MARK):
        return _pkcs12_key_pair(data, store_password)
    raise KeyStoreError(f"is not a PEM, PKCS12 or JKS key store: {_NEW_FILE}")


def key_pair_of_pem(*, certificates: str, key: str, key_password: str | None) -> KeyPair:
    """Return the key and certificates of PEM texts (KIP-651).  Raises KeyStoreError."""
    match = _PEM_KEY.search(_compact(key))
    if match is None:
        raise KeyStoreError("has no private key: add the PEM block that begins with -----BEGIN PRIVATE KEY-----")
    is_encrypted = "ENCRYPTED" in match[0]
    if is_encrypted and key_password is None:
        raise KeyStoreError("the private key is encrypted: set ssl.key.password")
    if match[1] == _ENCRYPTED_KEY:
        _check_derivations(_pem_content(match[0]), "the private key")
    try:
        loaded = load_pem_private_key(
            match[0].encode(), key_password.encode() if is_encrypted and key_password is not None else None
        )
    except Exception as error:
        if is_encrypted:
            raise KeyStoreError("the private key cannot be decrypted: correct ssl.key.password") from None
        raise KeyStoreError(f"the private key cannot be read ({_first_line(error)}): {_NEW_FILE}") from None
    return _matching(loaded, certificates_of_pem(certificates))


def certificates_of_store(data: bytes, *, password: str | None) -> tuple[Certificate, ...]:
    """Return the certificates of a trust store's content; a key store also has some.  Raises KeyStoreError."""
    if _PEM_MARK in data:
        return certificates_of_pem(_ascii(data))
    if data.startswith(_JKS_MARKS):
        return _jks_certificates(data, password)
    if data.startswith(_PKCS12_MARK):
        return _pkcs12_certificates(data, password)
    raise KeyStoreError(f"is not a PEM, PKCS12 or JKS trust store: {_NEW_FILE}")


def certificates_of_pem(text: str) -> tuple[Certificate, ...]:
    """Return the certificates of a PEM text.  Raises KeyStoreError."""
    try:
        return tuple(load_pem_x509_certificates(_compact(text).encode()))
    except Exception:
        raise KeyStoreError(
            "has no readable certificate: add the PEM blocks that begin with -----BEGIN CERTIFICATE-----"
        ) from None


def _compact(text: str) -> str:
    """Return the PEM text without blank lines and other spaces in blocks.  Java ignores them, and `cryptography` does
    not.
    """
    return _PEM_BLOCK.sub(lambda found: f"{found[1]}\n{''.join(found[3].split())}\n{found[4]}", text)


def _pem_content(block: str) -> bytes:
    """Raise KeyStoreError."""
    try:
        return base64.b64decode("".join(block.split("-----")[2].split()), validate=True)
    except ValueError:
        raise KeyStoreError(f"the private key cannot be read (its base64 text is damaged): {_NEW_FILE}") from None


def _check_derivations(encoded: bytes, what: str = "") -> None:
    """Raise KeyStoreError if the password must not be tried, because that would take too long."""
    if problem := derivation_problem(encoded):
        raise KeyStoreError(f"{what} {problem}: {_NEW_FILE}".lstrip())


def _ascii(data: bytes) -> str:
    return data.decode("ascii", "replace")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _matching(key: object, certificates: Sequence[Certificate]) -> KeyPair:
    """Return the key with its chain, leaf first.  Raises KeyStoreError if no certificate belongs to the key."""
    if not isinstance(
        key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
    ):
        raise KeyStoreError("the private key is neither RSA nor EC nor EdDSA: create another key")
    leaf = next((entry for entry in certificates if entry.public_key() == key.public_key()), None)
    if leaf is None:
        raise KeyStoreError("the private key does not match the certificate: use the key of the certificate")
    return KeyPair(_chain(leaf, certificates), key)


def _chain(leaf: Certificate, certificates: Sequence[Certificate]) -> tuple[Certificate, ...]:
    """Return the leaf and its issuers in order; stores keep them in any order."""
    chain = [leaf]
    others = [entry for entry in certificates if entry != leaf]
    while others and chain[-1].issuer != chain[-1].subject:
        issuer = next((entry for entry in others if entry.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        others.remove(issuer)
        chain.append(issuer)
    return tuple(chain)


def _pkcs12_key_pair(data: bytes, password: str | None) -> KeyPair:
    _check_derivations(data)
    try:
        key, certificate, others = load_key_and_certificates(data, None if password is None else password.encode())
    except Exception:
        raise KeyStoreError("cannot be decrypted: correct the password, or use another PKCS12 file") from None
    if key is None or certificate is None:
        raise KeyStoreError("has no private key with a certificate: name the key store, not the trust store")
    return _matching(key, [certificate, *others])


def _pkcs12_certificates(data: bytes, password: str | None) -> tuple[Certificate, ...]:
    _check_derivations(data)
    try:
        _, certificate, others = load_key_and_certificates(data, None if password is None else password.encode())
    except Exception:
        if password is None:
            raise KeyStoreError("is a PKCS12 file, whose certificates are encrypted: set its password") from None
        raise KeyStoreError("cannot be decrypted: correct the password, or use another PKCS12 file") from None
    return tuple(entry for entry in (certificate, *others) if entry is not None)


def _load_jks(data: bytes, password: str | None) -> JavaKeyStore:
    try:
        return read_java_key_store(data, password)
    except WrongPassword:
        raise KeyStoreError("the password is wrong or the file is damaged: correct the password") from None
    except DamagedStore as error:
        raise KeyStoreError(f"is damaged ({error}): {_NEW_FILE}") from None


def _jks_key_pair(data: bytes, store_password: str | None, key_password: str | None) -> KeyPair:
    keys = _load_jks(data, store_password).keys
    if not keys:
        raise KeyStoreError("has no private key: name the key store, not the trust store")
    encrypted, chain = keys[0]
    _check_derivations(encrypted, "the private key")
    try:
        key = load_der_private_key(_decrypted(encrypted, key_password or ""), None)
    except (ValueError, IndexError, TypeError, UnsupportedAlgorithm):
        raise KeyStoreError("the private key cannot be decrypted: correct ssl.key.password") from None
    return _matching(key, _x509(chain))


def _decrypted(encrypted: bytes, password: str) -> bytes:
    """Return the PKCS8 key of an EncryptedPrivateKeyInfo in a store of Java.  Raises ValueError and IndexError."""
    (whole,), _ = _elements(encrypted, 0, len(encrypted), 0)
    algorithm, content = whole.children
    if algorithm.children[0].content == _JKS_PROTECTION:
        return decrypt_jks_key(content.content, password)
    if algorithm.children[0].content == _JCEKS_PROTECTION:
        salt, iterations = algorithm.children[1].children
        return decrypt_jceks_key(
            content.content, password, salt=salt.content, iterations=int.from_bytes(iterations.content)
        )
    raise ValueError("an unknown protection")


def _jks_certificates(data: bytes, password: str | None) -> tuple[Certificate, ...]:
    store = _load_jks(data, password)
    return _x509([*store.certificates, *(key.chain[0] for key in store.keys if key.chain)])


def _x509(encoded: Iterable[bytes]) -> tuple[Certificate, ...]:
    try:
        return tuple(map(load_der_x509_certificate, encoded))
    except ValueError as error:
        raise KeyStoreError(f"has a damaged certificate ({_first_line(error)}): {_NEW_FILE}") from None


def pem(certificates: Sequence[Certificate]) -> str:
    """Return the certificates as PEM text."""
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)


def der(certificates: Sequence[Certificate]) -> bytes:
    """Return the certificates, DER encoded, one after the other."""
    return b"".join(certificate.public_bytes(Encoding.DER) for certificate in certificates)
