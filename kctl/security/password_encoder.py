"""Encrypts the passwords of dynamic properties, which are stored in ZooKeeper.  Kafka: PasswordEncoder (2.8), KIP-226.

The text has the names and values of the parameters, `name:value` separated by commas, so that another broker with the
same password.encoder.secret can decrypt it.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass, field

from kctl.errors import KctlError

_DIGESTS = {"PBKDF2WithHmacSHA512": "sha512", "PBKDF2WithHmacSHA256": "sha256", "PBKDF2WithHmacSHA1": "sha1"}
_CIPHER = "AES/CBC/PKCS5Padding"
_SALT_BYTES = 256
_BLOCK_BYTES = 16
_ITERATIONS_MAX = 100_000
"""About 50 ms of work; Kafka's default is 4,096."""
_KEY_BITS = (128, 192, 256)


class PasswordEncoderError(KctlError):
    """A password cannot be encrypted or decrypted; the text has no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordEncoder:
    """The password.encoder.* properties."""

    secret: str = field(repr=False)
    old_secret: str | None = field(default=None, repr=False)
    """The previous secret; passwords may still be encrypted with it."""
    key_factory: str = "PBKDF2WithHmacSHA512"
    cipher: str = _CIPHER
    key_bits: int = 128
    iterations: int = 4096

    def encode(self, password: str) -> str:
        """Return the encrypted text of a password.  Raises PasswordEncoderError for unsupported parameters."""
        _check(self.key_factory, self.cipher, self.key_bits, self.iterations)
        salt, vector = os.urandom(_SALT_BYTES), os.urandom(_BLOCK_BYTES)
        key = _key(self.secret, self.key_factory, salt, self.iterations, self.key_bits)
        data = password.encode()
        padding = _BLOCK_BYTES - len(data) % _BLOCK_BYTES
        encrypted = _crypt(key, vector, data + bytes([padding]) * padding, is_encrypting=True)
        fields = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": str(self.key_bits),
            "salt": _base64(salt),
            "iterations": str(self.iterations),
            "encryptedPassword": _base64(encrypted),
            "passwordLength": str(_java_length(password)),
            "initializationVector": _base64(vector),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password.  Raises PasswordEncoderError."""
        secrets = [self.secret, *([self.old_secret] if self.old_secret is not None else [])]
        for secret in secrets:
            password = _decoded(secret, text)
            if password is not None:
                return password
        raise PasswordEncoderError(
            "cannot be decrypted: set password.encoder.secret or password.encoder.old.secret to that of the last change"
        )


def _decoded(secret: str, text: str) -> str | None:
    """Return the password; None if it was encrypted with another secret.  Raises PasswordEncoderError."""
    try:
        fields = dict(entry.split(":", 1) for entry in text.split(","))
        key_bits, iterations = int(fields["keyLength"]), int(fields["iterations"])
        _check(fields["keyFactoryAlgorithm"], fields["cipherAlgorithm"], key_bits, iterations)
        salt, vector, encrypted = (
            base64.b64decode(fields[name], validate=True)
            for name in ("salt", "initializationVector", "encryptedPassword")
        )
        length = int(fields["passwordLength"])
    except (ValueError, KeyError):
        raise PasswordEncoderError("is not an encrypted password: set it again") from None
    if len(vector) != _BLOCK_BYTES or not encrypted or len(encrypted) % _BLOCK_BYTES:
        raise PasswordEncoderError("is not an encrypted password: set it again")
    padded = _crypt(_key(secret, fields["keyFactoryAlgorithm"], salt, iterations, key_bits), vector, encrypted)
    padding = padded[-1]
    if not 1 <= padding <= _BLOCK_BYTES or padded[-padding:] != bytes([padding]) * padding:
        return None
    try:
        password = padded[:-padding].decode()
    except UnicodeDecodeError:
        return None
    return password if _java_length(password) == length else None


def _check(key_factory: str, cipher: str, key_bits: int, iterations: int) -> None:
    if key_factory not in _DIGESTS:
        raise PasswordEncoderError(
            f"password.encoder.keyfactory.algorithm={key_factory} is not supported: use {', '.join(_DIGESTS)}"
        )
    if cipher != _CIPHER:
        raise PasswordEncoderError(f"password.encoder.cipher.algorithm={cipher} is not supported: use {_CIPHER}")
    if key_bits not in _KEY_BITS:
        raise PasswordEncoderError(f"password.encoder.key.length={key_bits} is not supported: use 128, 192 or 256")
    if not 1 <= iterations <= _ITERATIONS_MAX:
        raise PasswordEncoderError(f"password.encoder.iterations={iterations} is above {_ITERATIONS_MAX}")


def _key(secret: str, key_factory: str, salt: bytes, iterations: int, key_bits: int) -> bytes:
    return hashlib.pbkdf2_hmac(_DIGESTS[key_factory], secret.encode(), salt, iterations, key_bits // 8)


def _crypt(key: bytes, vector: bytes, data: bytes, *, is_encrypting: bool = False) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 - rarely needed

    cipher = Cipher(algorithms.AES(key), modes.CBC(vector))
    context = cipher.encryptor() if is_encrypting else cipher.decryptor()
    return context.update(data) + context.finalize()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _java_length(text: str) -> int:
    """Return the number of characters, as Java counts them: UTF-16 units."""
    return len(text.encode("utf-16-le")) // 2
