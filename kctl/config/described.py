"""Values, sources and synonyms of properties for DescribeConfigs.

Sources in order of precedence: the topic's override, the broker's dynamic value, the cluster's dynamic default, the
file, the built-in default.  The sources with a value are the synonyms; the first is in force.

Kafka's ConfigHelper and DynamicBrokerConfig.brokerConfigSynonyms (2.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kctl.config.broker import BROKER_PROPERTIES
from kctl.config.definition import Dynamic, Property
from kctl.config.dynamic import DYNAMIC_ONLY_PROPERTIES, ConfigView
from kctl.config.kinds import ConfigType
from kctl.config.subjects.groups import GROUP_PROPERTIES
from kctl.config.topic import TOPIC_PROPERTIES, topic_config_ignoring_errors

_FAMILIES: Mapping[str, tuple[str, ...]] = {
    member: (entry.name, *entry.falls_back_to)
    for entry in reversed(list(BROKER_PROPERTIES.values()))
    if entry.falls_back_to
    for member in (entry.name, *entry.falls_back_to)
}
"""A property with those that it falls back to, by the name of each; of several, the first that is declared."""


class ConfigSource(IntEnum):
    """Sources of a value, as numbered in DescribeConfigs version 1 and later."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value in one source, in force or not."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One property with the value in force, None if it is sensitive."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str
    synonyms: tuple[Synonym, ...]


def describe_topic(view: ConfigView, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Return every property of a topic with these overrides."""
    config, _ = topic_config_ignoring_errors(view.current, overrides)
    described = []
    for entry in TOPIC_PROPERTIES.values():
        value = entry.format(getattr(config, entry.attribute))
        synonyms = tuple(_broker_synonyms(view, entry.server)) if entry.server is not None else ()
        if entry.name in overrides:
            synonyms = (Synonym(entry.name, value, ConfigSource.TOPIC_CONFIG), *synonyms)
        described.append(_described(entry, value, synonyms, read_only=False))
    return described


def describe_group(view: ConfigView, group_id: str) -> list[DescribedConfig]:
    """Return every property of a group."""
    config, overrides = view.group(group_id), view.group_overrides.get(group_id, {})
    described = []
    for entry in GROUP_PROPERTIES.values():
        value = entry.format(getattr(config, entry.attribute))
        synonyms = tuple(_broker_synonyms(view, entry.server)) if entry.server is not None else ()
        if entry.server is None:
            synonyms = (Synonym(entry.name, entry.format(entry.default), ConfigSource.DEFAULT_CONFIG),)
        if entry.name in overrides:
            synonyms = (Synonym(entry.name, value, ConfigSource.DYNAMIC_GROUP_CONFIG), *synonyms)
        described.append(_described(entry, value, synonyms, read_only=False))
    return described


def describe_broker(view: ConfigView) -> list[DescribedConfig]:
    """Return every property of this broker; unknown properties are last and sensitive."""
    described = []
    for entry in BROKER_PROPERTIES.values():
        value = entry.format(getattr(view.current, entry.attribute))
        synonyms = tuple(_broker_synonyms(view, entry.name))
        described.append(_described(entry, value, synonyms, read_only=entry.dynamic is Dynamic.READ_ONLY))
    others = dict.fromkeys(name for place in (view.dynamic_broker, view.dynamic_default, view.static) for name in place)
    described += [
        _foreign(name, list(_broker_synonyms(view, name))) for name in others if name not in BROKER_PROPERTIES
    ]
    return described


def describe_broker_defaults(view: ConfigView) -> list[DescribedConfig]:
    """Return the dynamic defaults of all brokers."""
    described = []
    for name, text in view.dynamic_default.items():
        entry = BROKER_PROPERTIES.get(name)
        synonyms = [Synonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)]
        if entry is None:
            described.append(_foreign(name, synonyms))
        else:
            hidden = [Synonym(name, None, synonyms[0].source)] if entry.sensitive else synonyms
            described.append(_described(entry, text, tuple(hidden), read_only=False))
    return described


def _described(
    entry: Property, value: str | None, synonyms: tuple[Synonym, ...], *, read_only: bool
) -> DescribedConfig:
    return DescribedConfig(
        name=entry.name,
        value=None if entry.sensitive else value,
        type=entry.kind.type,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=entry.sensitive,
        documentation=entry.doc,
        synonyms=synonyms,
    )


def _foreign(name: str, synonyms: list[Synonym]) -> DescribedConfig:
    """Return an unknown property; its value is hidden, because it may be a password of a plug-in."""
    entry = DYNAMIC_ONLY_PROPERTIES.get(name)
    if entry is not None:
        value = synonyms[0].value if synonyms else None
        return _described(entry, value, tuple(synonyms), read_only=False)
    hidden = tuple(Synonym(synonym.name, None, synonym.source) for synonym in synonyms)
    source = hidden[0].source if hidden else ConfigSource.DEFAULT_CONFIG
    return DescribedConfig(name, None, ConfigType.UNKNOWN, source, True, True, "", hidden)


def _broker_synonyms(view: ConfigView, name: str) -> Iterator[Synonym]:
    """Yield the synonyms of `name`, including fallbacks, starting with the first source that sets `name` itself.

    As in Kafka 2.8, log.retention.ms has no synonyms if only log.retention.hours is set.
    """
    family = _FAMILIES.get(name, (name,))
    places = (
        (view.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (view.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (view.static, ConfigSource.STATIC_BROKER_CONFIG),
    )
    candidates = [(member, place[member], source) for place, source in places for member in family if member in place]
    candidates += [(member, default, ConfigSource.DEFAULT_CONFIG) for member, default in _defaults(family)]
    started = False
    for member, text, source in candidates:
        started = started or member == name
        if started:
            entry = BROKER_PROPERTIES.get(member)
            yield Synonym(member, None if entry is not None and entry.sensitive else text, source)


def _defaults(family: Iterable[str]) -> Iterator[tuple[str, str]]:
    for member in family:
        entry = BROKER_PROPERTIES.get(member)
        default = None if entry is None else entry.format(entry.default)
        if default is not None:
            yield member, default
