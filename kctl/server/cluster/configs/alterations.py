"""Computes the overrides of a resource after AlterConfigs or IncrementalAlterConfigs.  KIP-133, KIP-339.

Kafka: ZkAdminManager.alterConfigs and incrementalAlterConfigs (2.8).

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kctl.config.broker import BROKER_PROPERTIES, BrokerConfig
from kctl.config.definition import Property
from kctl.config.kinds import ConfigType
from kctl.config.topic import TOPIC_PROPERTIES, validate_topic_overrides
from kctl.errors import ApiError, ErrorCode
from kctl.security.password_encoder import PasswordEncoder, PasswordEncoderError


class ResourceType(IntEnum):
    """The owner of a configuration, by the numbers in the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


class Operation(IntEnum):
    """The operation of IncrementalAlterConfigs on one property."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(Operation)


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of one property; `operation` is the number in the request."""

    name: str
    operation: int
    value: str | None


def replaced(given: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """AlterConfigs: the given properties replace all others.  Raises ApiError(INVALID_REQUEST) for nulls."""
    _refuse_nulls([name for name, value in given if value is None])
    return {name: value for name, value in given if value is not None}


def altered(
    current: Mapping[str, str], alterations: Sequence[Alteration], properties: Mapping[str, Property]
) -> dict[str, str]:
    """IncrementalAlterConfigs: the overrides after the alterations.

    Raises ApiError: INVALID_REQUEST for a property listed twice, a missing value, an unknown operation, or appending to
    a property that is not a list; INVALID_CONFIG for appending to an unknown property.
    """
    check_alterations(alterations)
    overrides = dict(current)
    for alteration in alterations:
        name, value = alteration.name, alteration.value or ""
        match alteration.operation:
            case Operation.SET:
                overrides[name] = value
            case Operation.DELETE:
                overrides.pop(name, None)
            case Operation.APPEND:
                entries = _entries(overrides, name, properties)
                overrides[name] = ",".join([*entries, *(added for added in _split(value) if added not in entries)])
            case Operation.SUBTRACT:
                removed = set(_split(value))
                kept = [entry for entry in _entries(overrides, name, properties) if entry not in removed]
                overrides[name] = ",".join(kept)
    return overrides


def check_alterations(alterations: Sequence[Alteration]) -> None:
    """Raise ApiError(INVALID_REQUEST) for alterations that are invalid for any resource."""
    repeated = sorted(
        name for name, count in Counter(alteration.name for alteration in alterations).items() if count > 1
    )
    if repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {','.join(repeated)}")
    _refuse_nulls(
        [
            alteration.name
            for alteration in alterations
            if alteration.value is None and alteration.operation != Operation.DELETE
        ]
    )
    for alteration in alterations:
        if alteration.operation not in _OPERATIONS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation {alteration.operation} for config {alteration.name}"
            )


def check_topic_overrides(overrides: Mapping[str, str]) -> None:
    """Raise ApiError for invalid overrides: INVALID_CONFIG for unknown names and contradictions, INVALID_REQUEST for
    invalid values.

    Kafka 2.8 distinguishes them when a topic is altered, not when it is created.
    """
    known = {name: text for name, text in overrides.items() if name in TOPIC_PROPERTIES}
    if len(known) == len(overrides):
        for name, text in known.items():
            try:
                TOPIC_PROPERTIES[name].parse(text)
            except ValueError as error:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid value {text} for {name}: it {error}") from None
    validate_topic_overrides(overrides)


def _entries(overrides: Mapping[str, str], name: str, properties: Mapping[str, Property]) -> list[str]:
    described = properties.get(name)
    if described is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if described.kind.type is not ConfigType.LIST:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Config {name} is not a list, so nothing can be appended or subtracted"
        )
    return _split(overrides[name] if name in overrides else described.format(described.default) or "")


def _split(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _refuse_nulls(names: Sequence[str]) -> None:
    if names:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {','.join(sorted(names))}")


# Passwords among the dynamic properties of brokers: encrypted in ZooKeeper, never stored as they are.
#
# Kafka: DynamicBrokerConfig.toPersistentProps and fromPersistentProps (2.8).


_PASSWORDS = tuple(name for name, described in BROKER_PROPERTIES.items() if described.sensitive)


def is_password(name: str) -> bool:
    """Return whether the property is secret, also with the prefix of a listener and of a mechanism."""
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
        """Return the overrides to store.  Raises ApiError(INVALID_REQUEST) for a password that cannot be encrypted."""
        return {name: self._encoded(name, text) if is_password(name) else text for name, text in overrides.items()}

    def decoded(self, stored: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Return the overrides in force, and the problems of passwords that cannot be decrypted, which are left out."""
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
