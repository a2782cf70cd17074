"""Policies that the operator installs, for the creation of topics and changes of configurations.  KIP-108, KIP-133.

create.topic.policy.class.name and alter.config.policy.class.name name an entry point: a callable that takes the
broker's properties and returns a CreateTopicPolicy or an AlterConfigPolicy.  Kafka: ZkAdminManager (2.8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

from kctl.errors import ApiError, ConfigError, ErrorCode

log = logging.getLogger(__name__)

CREATE_TOPIC_GROUP = "kctl.create_topic_policies"
ALTER_CONFIG_GROUP = "kctl.alter_config_policies"


class PolicyViolation(Exception):
    """Raised by a policy; the client gets its text with the error POLICY_VIOLATION."""


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A topic that is to be created.  Kafka: CreateTopicPolicy.RequestMetadata."""

    topic: str
    partitions: int | None
    """None if the replicas are assigned."""
    replication_factor: int | None
    """None if the replicas are assigned."""
    assignment: Mapping[int, tuple[int, ...]] | None
    """The assigned replicas of each partition; None if the broker assigns them."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """Properties that are to be changed.  Kafka: AlterConfigPolicy.RequestMetadata."""

    resource_type: str
    """TOPIC or BROKER."""
    name: str
    """A topic, or the id of a broker; empty for the defaults of all brokers."""
    configs: Mapping[str, str | None]
    """The properties in the request.  With IncrementalAlterConfigs, None for one that is deleted."""


class CreateTopicPolicy(Protocol):
    """Called before a topic is created, also with validate_only.  It runs on the event loop and must not block."""

    def validate(self, creation: TopicCreation) -> None:
        """Raise PolicyViolation if the topic may not be created."""
        ...


class AlterConfigPolicy(Protocol):
    """Called before properties are changed, also with validate_only.  It runs on the event loop and must not block."""

    def validate(self, alteration: ConfigAlteration) -> None:
        """Raise PolicyViolation if the properties may not be changed."""
        ...


def _allow(_: object) -> None:
    """Allow everything: the policy of a broker without one."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a broker; without one, everything is allowed."""

    create_topic: Callable[[TopicCreation], None] = _allow
    alter_config: Callable[[ConfigAlteration], None] = _allow

    def check_creation(self, creation: TopicCreation) -> None:
        """Raise ApiError(POLICY_VIOLATION) if the topic may not be created."""
        _check(self.create_topic, creation, f"creation of topic {creation.topic}")

    def check_alteration(self, alteration: ConfigAlteration) -> None:
        """Raise ApiError(POLICY_VIOLATION) if the properties may not be changed."""
        _check(self.alter_config, alteration, f"change of {alteration.resource_type} {alteration.name}")


def policies_of(properties: Mapping[str, str]) -> Policies:
    """Return the policies that the properties name.  Raises ConfigError."""
    return Policies(
        _loaded("create.topic.policy.class.name", CREATE_TOPIC_GROUP, properties),
        _loaded("alter.config.policy.class.name", ALTER_CONFIG_GROUP, properties),
    )


def _loaded(prop: str, group: str, properties: Mapping[str, str]) -> Callable[[Any], None]:
    name = properties.get(prop, "").strip()
    if not name:
        return _allow
    found = entry_points(group=group, name=name)
    if not found:
        known = sorted(entry_points(group=group).names)
        installed = f"installed policies: {', '.join(known)}" if known else "no policy is installed"
        raise ConfigError(prop, name, f"expected the name of a policy in the entry point group {group} ({installed})")
    try:
        validate: Callable[[Any], None] = next(iter(found)).load()(properties).validate
    except Exception as error:
        raise ConfigError(prop, name, f"the policy failed: {error}") from error
    return validate


def _check(validate: Callable[[Any], None], subject: object, what: str) -> None:
    try:
        validate(subject)
    except PolicyViolation as violation:
        raise ApiError(ErrorCode.POLICY_VIOLATION, str(violation)) from None
    except Exception:
        log.exception("policy failed, refusing what it checks subject=%s", what)
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The policy failed for the {what}") from None
