"""Reads key stores in Java's own formats, JKS and JCEKS.  Pure.

    magic u4, version u4, number of entries u4
    entry       kind u4, alias, time u8; of a key the encrypted key and its certificates, else a certificate
    digest      SHA-1 of the password, `Mighty Aphrodite`, and everything before

Texts have a size of two bytes, encrypted keys and certificates one of four.  A certificate has its type before it since
version 2.  sun.security.provider.JavaKeyStore, com.sun.crypto.provider.JceKeyStore.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import NamedTuple

JKS, JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_DIGEST_SIZE = 20
_SALT_SIZE = 20
_PHRASE = b"Mighty Aphrodite"
_KEY, _CERTIFICATE = 1, 2
_HEADER = struct.Struct(">II")
_COUNT = struct.Struct(">I")
_TIME_SIZE = 8


class DamagedStore(ValueError):
    """The content is not that of a key store."""


class WrongPassword(ValueError):
    """The password is not that of the store or of the key, or the content is damaged."""


class StoredKey(NamedTuple):
    """A private key, encrypted as PKCS8 (EncryptedPrivateKeyInfo), and its DER certificates, that of the key first."""

    encrypted: bytes
    chain: tuple[bytes, ...]


class JavaKeyStore(NamedTuple):
    """The entries of a store, in the order of the file."""

    keys: tuple[StoredKey, ...]
    certificates: tuple[bytes, ...]
    """The trusted ones, DER encoded."""


def read_java_key_store(data: bytes, password: str | None) -> JavaKeyStore:
    """Return the entries.  Without a password the content is not checked, as in Java.

    Raises DamagedStore and WrongPassword.
    """
    content, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password is not None:
        expected = hashlib.sha1(_password_bytes(password) + _PHRASE + content, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise WrongPassword("the digest differs")
    return _Reader(content).store()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 4

    def store(self) -> JavaKeyStore:
        version, entries = self._unpack(_HEADER)
        if version not in {1, 2}:
            raise DamagedStore(f"version {version} is unknown")
        keys: list[StoredKey] = []
        certificates: list[bytes] = []
        for _ in range(entries):
            (kind,) = self._unpack(_COUNT)
            self._sized(2)  # The alias.
            self._take(_TIME_SIZE)
            if kind == _KEY:
                encrypted = self._sized(4)
                (length,) = self._unpack(_COUNT)
                keys.append(StoredKey(encrypted, tuple(self._certificate(version) for _ in range(length))))
            elif kind == _CERTIFICATE:
                certificates.append(self._certificate(version))
            else:
                raise DamagedStore(f"entries of kind {kind} cannot be read")
        return JavaKeyStore(tuple(keys), tuple(certificates))

    def _certificate(self, version: int) -> bytes:
        if version > 1:
            self._sized(2)  # X.509
        return self._sized(4)

    def _sized(self, size_bytes: int) -> bytes:
        return self._take(int.from_bytes(self._take(size_bytes)))

    def _unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self._take(form.size))

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._content):
            raise DamagedStore("it ends too early")
        taken = self._content[self._at : end]
        self._at = end
        return taken


def decrypt_jks_key(protected: bytes, password: str) -> bytes:
    """Return the PKCS8 key of a JKS store: a salt, the key combined with a chain of SHA-1 digests, and its digest.

    Raises WrongPassword.  sun.security.provider.KeyProtector.
    """
    secret = _password_bytes(password)
    digest, check = protected[:_SALT_SIZE], protected[-_DIGEST_SIZE:]
    combined = protected[_SALT_SIZE:-_DIGEST_SIZE]
    key = bytearray()
    for begin in range(0, len(combined), _DIGEST_SIZE):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        key += bytes(a ^ b for a, b in zip(combined[begin : begin + _DIGEST_SIZE], digest, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise WrongPassword("the digest differs")
    return bytes(key)


def decrypt_jceks_key(protected: bytes, password: str, *, salt: bytes, iterations: int) -> bytes:
    """Return the PKCS8 key of a JCEKS store, encrypted by PBEWithMD5AndTripleDES with a salt of 8 bytes.

    The caller has bounded the iterations.  Raises WrongPassword.  com.sun.crypto.provider.KeyProtector.
    """
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES  # noqa: PLC0415 - rare
    from cryptography.hazmat.primitives.ciphers import Cipher, modes  # noqa: PLC0415

    if len(salt) != 8 or iterations < 1:
        raise WrongPassword("a wrong salt")
    halves = [salt[:4], salt[4:]]
    if halves[0] == halves[1]:
        first = halves[0]
        halves[0] = bytes((first[3], first[0], first[1], first[3]))  # Java's code was to reverse it, and does this.
    secret = password.encode("ascii", "replace")  # Java accepts no other characters.
    derived = b"".join(_repeated(_md5, half, secret, iterations) for half in halves)
    cipher = Cipher(TripleDES(derived[:24]), modes.CBC(derived[24:]))
    try:
        padded = cipher.decryptor().update(protected)
    except ValueError as error:
        raise WrongPassword("a wrong size") from error
    padding = padded[-1:] or b"\0"
    if not 1 <= padding[0] <= 8 or padded[-padding[0] :] != padding * padding[0]:
        raise WrongPassword("wrong padding")
    return padded[: -padding[0]]


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _repeated(function: Callable[[bytes], bytes], value: bytes, secret: bytes, times: int) -> bytes:
    for _ in range(times):
        value = function(value + secret)
    return value


def _password_bytes(password: str) -> bytes:
    """Return the characters of Java, each of two bytes."""
    return password.encode("utf-16-be", "surrogatepass")
