"""Topics, ACLs, quotas and users that a cluster should have: the document of `kctl plan` and `kctl apply`.  Pure.

    version: 1
    managed: {topics: [orders, team-*], acls: ["User:team-*"], quotas: [user=team-*], users: [team-*]}
    topics:
      orders: {partitions: 6, replication_factor: 3, configs: {retention.ms: 86400000}}
    acls:
    - {resource_type: Topic, resource_name: orders, principal: "User:alice", operation: Read, permission: Allow}
    quotas:
    - {user: alice, client_id: app, values: {producer_byte_rate: 1048576}}
    users:
    - {name: alice, mechanism: SCRAM-SHA-512, iterations: 8192, password: "${env:ALICE_PASSWORD}"}

All sections may be left out.  `managed` names what the document covers completely: only that is deleted, with --delete,
where it is in the cluster and not in the document.  A name that ends in * is a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kctl.admin.security.acls import binding_of, fields
from kctl.admin.security.quotas import Entity
from kctl.config.properties import is_reference
from kctl.errors import KctlError, UsageError
from kctl.limits import SCRAM_ITERATIONS_MAX
from kctl.output.quantities import INT16_MAX, INT32_MAX, parse_integer, property_value
from kctl.output.yaml_text import Yaml, plain
from kctl.security.acls import AclBinding
from kctl.security.quotas import CLIENT_KEYS, IP_KEYS, EntityType, joined_names, name_text, parse_name
from kctl.security.scram import ITERATIONS_MIN, Mechanism

VERSION = "1"
_SECTIONS = ("topics", "acls", "quotas", "users")
_ENTITY_FIELDS = {"user": EntityType.USER, "client_id": EntityType.CLIENT_ID, "ip": EntityType.IP}
_ITERATIONS = 4096


@dataclass(frozen=True, slots=True)
class DesiredTopic:
    """A topic; None leaves what the cluster has, or for a new topic the broker's default."""

    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] | None = None


class UserKey(NamedTuple):
    """A SCRAM credential of a user."""

    name: str
    mechanism: Mechanism


@dataclass(frozen=True, slots=True)
class DesiredUser:
    """Iterations, and a reference to the password, which is None in an export."""

    iterations: int
    password: str | None


@dataclass(frozen=True, slots=True)
class Scope:
    """The resources that a document covers completely: names, or prefixes that end in *."""

    topics: Sequence[str] = ()
    acls: Sequence[str] = ()
    quotas: Sequence[str] = ()
    users: Sequence[str] = ()

    def has_topic(self, name: str) -> bool:
        """Return whether the topic is covered; names that begin with two underscores only if the pattern does too."""
        return any(_matches(topic, name) and name.startswith("__") <= topic.startswith("__") for topic in self.topics)

    def has_acl(self, binding: AclBinding) -> bool:
        """Return whether the ACL is covered, which depends on its principal."""
        return any(_matches(acl, binding.entry.principal) for acl in self.acls)

    def has_quota(self, entity: Entity) -> bool:
        """Return whether the quotas of the entity are covered."""
        return any(_matches(quota, entity_key(entity)) for quota in self.quotas)

    def has_user(self, name: str) -> bool:
        """Return whether the user is covered."""
        return any(_matches(user, name) for user in self.users)


@dataclass(frozen=True, slots=True)
class DesiredState:
    """A document; a section that is None is not compared."""

    topics: Mapping[str, DesiredTopic] = field(default_factory=dict)
    acls: Sequence[AclBinding] | None = None
    quotas: Mapping[Entity, Mapping[str, float]] | None = None
    users: Mapping[UserKey, DesiredUser] | None = None
    managed: Scope = field(default_factory=Scope)


def entity_key(entity: Entity) -> str:
    """Return the entity as in `managed`, such as `user=alice,client-id=<default>`.

    In the name of a user, `,client-id=` is `+,client-id=`, so that none reads as a pair of a user and a client id.
    """
    return f"{entity[0][0]}={joined_names(entity, f',{EntityType.CLIENT_ID}=')}"


def parse_state(document: Yaml, path: str) -> DesiredState:
    """Return the document.  Raises UsageError with the path and the item that is wrong."""
    try:
        return _state(document)
    except (ValueError, KctlError) as error:
        raise UsageError(f"{path}: {error}") from None


def format_state(state: DesiredState) -> dict[str, Any]:
    """Return the document for `write_yaml`, sorted."""
    document: dict[str, Any] = {"version": int(VERSION)}
    managed = {name: list(getattr(state.managed, name)) for name in _SECTIONS if getattr(state.managed, name)}
    if managed:
        document["managed"] = managed
    document["topics"] = {name: _topic_fields(state.topics[name]) for name in sorted(state.topics)}
    if state.acls is not None:
        document["acls"] = [fields(binding) for binding in sorted(set(state.acls))]
    if state.quotas is not None:
        document["quotas"] = [_quota_fields(entity, state.quotas[entity]) for entity in sorted(state.quotas, key=str)]
    if state.users is not None:
        document["users"] = [_user_fields(key, state.users[key]) for key in sorted(state.users)]
    return document


def number_text(value: float) -> str:
    """Return a quota as text, without a fraction if it is a whole number."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


def _state(document: Yaml) -> DesiredState:
    top = _mapping(document, "the document", ("version", "managed", *_SECTIONS))
    if top.get("version") != VERSION:
        raise ValueError(f"expected version: {VERSION}")
    topics = _mapping(top.get("topics") or {}, "topics", None)
    acls, quotas, users = (top.get(name) for name in _SECTIONS[1:])
    return DesiredState(
        topics={name: _topic(name, topic) for name, topic in topics.items()},
        acls=None if acls is None else _acls(acls),
        quotas=None if quotas is None else _quotas(quotas),
        users=None if users is None else _users(users),
        managed=_scope(top.get("managed") or {}),
    )


def _scope(value: Yaml) -> Scope:
    given = _mapping(value, "managed", _SECTIONS)
    return Scope(
        **{name: tuple(_text(pattern, f"managed {name}") for pattern in _list(given[name], name)) for name in given}
    )


def _topic(name: str, value: Yaml) -> DesiredTopic:
    what = f"topic '{name}'"
    given = _mapping(value or {}, what, ("partitions", "replication_factor", "configs"))
    configs = given.get("configs")
    texts = {key: _text(value, f"{key} of {what}") for key, value in _mapping(configs or {}, what, None).items()}
    return DesiredTopic(
        _number(given.get("partitions"), f"partitions of {what}", INT32_MAX),
        _number(given.get("replication_factor"), f"replication_factor of {what}", INT16_MAX),
        None if configs is None else {key: property_value(key, text) for key, text in texts.items()},
    )


def _acls(value: Yaml) -> list[AclBinding]:
    bindings: dict[AclBinding, None] = {}
    for number, acl in enumerate(_list(value, "acls"), start=1):
        try:
            bindings[binding_of(acl)] = None
        except ValueError as error:
            raise ValueError(f"ACL {number}: {error}") from None
    return list(bindings)


def _quotas(value: Yaml) -> dict[Entity, dict[str, float]]:
    quotas: dict[Entity, dict[str, float]] = {}
    for number, quota in enumerate(_list(value, "quotas"), start=1):
        what = f"quota {number}"
        given = _mapping(quota, what, (*_ENTITY_FIELDS, "values"))
        entity = tuple(
            (kind.value, parse_name(_text(given[name], f"{name} of {what}")))
            for name, kind in _ENTITY_FIELDS.items()
            if name in given
        )
        if not entity or ("ip" in given and len(entity) > 1):
            raise ValueError(f"{what}: expected user, client_id or both of them, or ip")
        if entity in quotas:
            raise ValueError(f"{what}: {entity_key(entity)} is given twice")
        known = IP_KEYS if "ip" in given else CLIENT_KEYS
        values = _mapping(given.get("values"), f"values of {what}", known)
        quotas[entity] = {key: _quota(text, f"{key} of {what}") for key, text in values.items()}
    return quotas


def _users(value: Yaml) -> dict[UserKey, DesiredUser]:
    credentials: dict[UserKey, DesiredUser] = {}
    for number, user in enumerate(_list(value, "users"), start=1):
        what = f"user {number}"
        given = _mapping(user, what, ("name", "mechanism", "iterations", "password"))
        mechanism = Mechanism.named(_text(given.get("mechanism"), f"mechanism of {what}"))
        if mechanism is None:
            raise ValueError(f"{what}: mechanism must be one of {', '.join(known.config_key for known in Mechanism)}")
        password = given.get("password")
        if password is not None and not (isinstance(password, str) and is_reference(password)):
            raise ValueError(
                f"{what}: password must be a reference, such as ${{env:NAME}}, ${{file:PATH:KEY}} or"
                " ${directory:PATH:NAME}; documents must not contain secrets"
            )
        key = UserKey(_text(given.get("name"), f"name of {what}"), mechanism)
        if key in credentials:
            raise ValueError(f"{what}: {key.name} with {mechanism.config_key} is given twice")
        iterations = given.get("iterations") or str(_ITERATIONS)
        count = parse_integer(
            _text(iterations, what), f"iterations of {what}", low=ITERATIONS_MIN, high=SCRAM_ITERATIONS_MAX
        )
        credentials[key] = DesiredUser(count, password)
    return credentials


def _topic_fields(topic: DesiredTopic) -> dict[str, Any]:
    topic_fields: dict[str, Any] = {}
    if topic.partitions is not None:
        topic_fields["partitions"] = topic.partitions
    if topic.replication_factor is not None:
        topic_fields["replication_factor"] = topic.replication_factor
    if topic.configs is not None:
        topic_fields["configs"] = {key: plain(topic.configs[key]) for key in sorted(topic.configs)}
    return topic_fields


def _quota_fields(entity: Entity, values: Mapping[str, float]) -> dict[str, Any]:
    names = {kind.value: name for name, kind in _ENTITY_FIELDS.items()}
    parts = {names[kind]: name_text(name) for kind, name in entity}
    return {**parts, "values": {key: plain(number_text(values[key])) for key in sorted(values)}}


def _user_fields(key: UserKey, user: DesiredUser) -> dict[str, Any]:
    user_fields: dict[str, Any] = {
        "name": key.name,
        "mechanism": key.mechanism.config_key,
        "iterations": user.iterations,
    }
    return user_fields if user.password is None else {**user_fields, "password": user.password}


def _matches(pattern: str, name: str) -> bool:
    """Return whether a pattern of `managed` covers the name; `[*]` at its end is the character, as in `User:[*]`."""
    if pattern.endswith("[*]"):
        return name == f"{pattern[:-3]}*"
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _mapping(value: Yaml, what: str, known: Sequence[str] | None) -> dict[str, Yaml]:
    if not isinstance(value, dict):
        raise ValueError(f"{what}: expected a mapping")
    unknown = [] if known is None else [name for name in value if name not in known]
    if unknown:
        raise ValueError(f"{what} has an unknown field '{unknown[0]}'; known fields: {', '.join(known or ())}")
    return value


def _list(value: Yaml, what: str) -> list[Yaml]:
    if not isinstance(value, list):
        raise ValueError(f"{what}: expected a list")
    return value


def _text(value: Yaml, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what}: expected a value")
    return value


def _number(value: Yaml, what: str, high: int) -> int | None:
    return None if value is None else parse_integer(_text(value, what), what, low=1, high=high)


def _quota(value: Yaml, what: str) -> float:
    try:
        number = float(_text(value, what))
    except ValueError:
        raise ValueError(f"{what}: expected a number") from None
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{what}: expected a number greater than 0")
    return number
