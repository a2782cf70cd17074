"""SCRAM credentials: derived from a password, and as text in Kafka's format.  RFC 5802, section 3.

A server stores no password, but two keys derived from it: one verifies the client, the other one proves the identity
of the server.

Kafka: ScramFormatter, ScramCredentialUtils (2.8).

Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import IntEnum

from kctl.limits import SCRAM_ITERATIONS_MAX, SCRAM_SALT_BYTES_MAX
from kctl.security.scram_messages import ITERATIONS_MIN, ScramError


class Mechanism(IntEnum):
    """A mechanism, by its number in the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def config_key(self) -> str:
        """The name of the mechanism and the key of a stored credential: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name in hashlib."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()

    @property
    def key_bytes(self) -> int:
        """The size in bytes of the hash and of every key."""
        return 32 if self is Mechanism.SCRAM_SHA_256 else 64

    @classmethod
    def named(cls, name: str) -> Mechanism | None:
        """The mechanism with a name such as `SCRAM-SHA-256`, or None."""
        return next((each for each in cls if each.config_key == name), None)


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """The stored credential.  It is a secret: anyone who has it can act as the server."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The key from which all others are derived.  4,096 iterations take about 2 ms, so call it in a thread.

    Like Kafka's, the password is not prepared by SASLprep.
    """
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: Mechanism, salted: bytes) -> bytes:
    """The key that the client proves to have."""
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def server_key(mechanism: Mechanism, salted: bytes) -> bytes:
    """The key that the server proves to have."""
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def stored_key(mechanism: Mechanism, key: bytes) -> bytes:
    """The hash of the client key, which the server stores."""
    return hashlib.new(mechanism.hash_name, key).digest()


def credential_of_salted(mechanism: Mechanism, salted: bytes, *, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    return ScramCredential(
        salt=salt,
        stored_key=stored_key(mechanism, client_key(mechanism, salted)),
        server_key=server_key(mechanism, salted),
        iterations=iterations,
    )


def credential_of_password(mechanism: Mechanism, password: str, *, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password; see `salted_password` for the time that it takes."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of_salted(mechanism, salted, salt=salt, iterations=iterations)


def credential_text(credential: ScramCredential) -> str:
    """The credential as it is stored in ZooKeeper: `salt=...,stored_key=...,server_key=...,iterations=4096`."""
    return ",".join(
        (
            f"salt={base64.b64encode(credential.salt).decode()}",
            f"stored_key={base64.b64encode(credential.stored_key).decode()}",
            f"server_key={base64.b64encode(credential.server_key).decode()}",
            f"iterations={credential.iterations}",
        )
    )


_PARTS = frozenset({"salt", "stored_key", "server_key", "iterations"})
_ITERATIONS = re.compile("[0-9]{1,10}")


def parse_credential(mechanism: Mechanism, text: str) -> ScramCredential:
    """Reads a stored credential.  Raises ScramError, whose text contains no part of the credential.

    Fewer than 4,096 iterations are refused, as clients refuse them.
    """
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if parts.keys() != _PARTS:
        raise ScramError("the credential does not consist of salt, stored_key, server_key and iterations")
    keys = {}
    for name in ("salt", "stored_key", "server_key"):
        try:
            keys[name] = base64.b64decode(parts[name], validate=True)
        except (binascii.Error, ValueError):
            raise ScramError(f"{name} of the credential is not base64") from None
        if name != "salt" and len(keys[name]) != mechanism.key_bytes:
            raise ScramError(f"{name} of the credential has {len(keys[name])} bytes, not {mechanism.key_bytes}")
    if len(keys["salt"]) > SCRAM_SALT_BYTES_MAX:  # Kafka stores an empty one as well.
        raise ScramError(f"the salt of the credential has {len(keys['salt'])} bytes, more than {SCRAM_SALT_BYTES_MAX}")
    digits = parts["iterations"]
    iterations = int(digits) if _ITERATIONS.fullmatch(digits) else -1
    if not ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
        raise ScramError(f"iterations of the credential are not between {ITERATIONS_MIN} and {SCRAM_ITERATIONS_MAX}")
    return ScramCredential(keys["salt"], keys["stored_key"], keys["server_key"], iterations)
