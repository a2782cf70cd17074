"""Passwords among the dynamic properties of brokers: encrypted in ZooKeeper, never stored as they are.

Kafka: DynamicBrokerConfig.toPersistentProps and fromPersistentProps (2.8).
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig
from kctl.errors import ApiError, ErrorCode
from kctl.security.password_encoder import PasswordEncoder, PasswordEncoderError

_PASSWORDS = tuple(name for name, described in BROKER_PROPERTIES.items() if described.sensitive)


def is_password(name: str) -> bool:
    """Whether the property is secret, also with the prefix of a listener and of a mechanism."""
    return name in _PASSWORDS or (
        name.startswith("listener.name.") and any(name.endswith("." + password) for password in _PASSWORDS)
    )


class DynamicPasswords:
    """Encrypts and decrypts the overrides of brokers."""

    def __init__(self, config: BrokerConfig) -> None:
        self._encoder = (
            None
            if config.password_encoder_secret is None
            else PasswordEncoder(
                secret=config.password_encoder_secret,
                old_secret=config.password_encoder_old_secret,
                key_factory=config.password_encoder_keyfactory_algorithm or "PBKDF2WithHmacSHA512",
                cipher=config.password_encoder_cipher_algorithm,
                key_bits=config.password_encoder_key_length,
                iterations=config.password_encoder_iterations,
            )
        )

    def encoded(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """The overrides to store.  Raises ApiError(INVALID_REQUEST) for a password that cannot be encrypted."""
        return {name: self._encoded(name, text) if is_password(name) else text for name, text in overrides.items()}

    def decoded(self, stored: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """The overrides in force, and the problems of passwords that cannot be decrypted, which are left out."""
        overrides, problems = {}, []
        for name, text in stored.items():
            try:
                overrides[name] = self._decoded(text) if is_password(name) else text
            except PasswordEncoderError as error:
                problems.append(f"{name}: {error}")
        return overrides, problems

    def _encoded(self, name: str, text: str) -> str:
        if self._encoder is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is a password, which is stored encrypted: set password.encoder.secret in server.properties",
            )
        try:
            return self._encoder.encode(text)
        except PasswordEncoderError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def _decoded(self, text: str) -> str:
        if self._encoder is None:
            raise PasswordEncoderError("password.encoder.secret is not set in server.properties")
        return self._encoder.decode(text)
