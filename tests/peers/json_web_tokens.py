"""An issuer of JSON Web Tokens for OAUTHBEARER: a key pair, its public part as a key set, and tokens of any content."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.test", "kafka"


class Issuer:
    """Signs with RS256."""

    def __init__(self, key_id: str = "key-1") -> None:
        self.key_id = key_id
        self.private_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def key_set(self) -> bytes:
        """The public key as a JSON Web Key Set."""
        key = RSAAlgorithm.to_jwk(self.private_key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**key, "kid": self.key_id, "use": "sig", "alg": "RS256"}]}).encode()

    def write_key_set(self, path: Path) -> str:
        """Writes the key set; returns its file: address."""
        path.write_bytes(self.key_set())
        return path.as_uri()

    def token(self, subject: str | None = "oauth-user", *, lifetime_s: int = 600, **claims: Any) -> str:
        """A token for Kafka; `claims` replace those it would have, and None leaves one out."""
        now_s = int(time.time())
        whole = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "iat": now_s,
            "exp": now_s + lifetime_s,
            "scope": "kafka",
            **claims,
        }
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, self.private_key, algorithm="RS256", headers={"kid": self.key_id})
