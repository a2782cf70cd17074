"""What DescribeConfigs tells about a topic or a broker: each value, where it comes from, and what it hides.

Sources are ordered: a topic's own override, then this broker's dynamic value, the cluster's dynamic default, the file,
the built-in default.  All that have a value are the synonyms, and the first of them is the source.

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
from kctl.config.topic import TOPIC_PROPERTIES, topic_config_ignoring_errors


class ConfigSource(IntEnum):
    """Where a value comes from, as numbered in DescribeConfigs version 1 and later."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place that gives a value, whether or not it is the one that counts."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One property with the value in force; a sensitive one has no value to show."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str
    synonyms: tuple[Synonym, ...]


def describe_topic(view: ConfigView, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Every property of a topic that has, or is about to have, these overrides."""
    config, _ = topic_config_ignoring_errors(view.current, overrides)
    described = []
    for entry in TOPIC_PROPERTIES.values():
        value = entry.format(getattr(config, entry.attribute))
        synonyms = tuple(_broker_synonyms(view, entry.server)) if entry.server is not None else ()
        if entry.name in overrides:
            synonyms = (Synonym(entry.name, value, ConfigSource.TOPIC_CONFIG), *synonyms)
        described.append(_described(entry, value, synonyms, read_only=False))
    return described


def describe_broker(view: ConfigView) -> list[DescribedConfig]:
    """Every property of this broker; those given under names it does not know come last, as sensitive."""
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
    """What is set for all brokers at run time, and nothing else."""
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
    """A property without a type may well be a plug-in's password, so its value is not shown."""
    entry = DYNAMIC_ONLY_PROPERTIES.get(name)
    if entry is not None:
        value = synonyms[0].value if synonyms else None
        return _described(entry, value, tuple(synonyms), read_only=False)
    hidden = tuple(Synonym(synonym.name, None, synonym.source) for synonym in synonyms)
    source = hidden[0].source if hidden else ConfigSource.DEFAULT_CONFIG
    return DescribedConfig(name, None, ConfigType.UNKNOWN, source, True, True, "", hidden)


def _broker_synonyms(view: ConfigView, name: str) -> Iterator[Synonym]:
    """All that gives `name` a value, itself or through a fallback, from the first place where `name` itself stands.

    So log.retention.ms has no synonyms while only log.retention.hours is set; Kafka 2.8 tells it that way.
    """
    family = _family(name)
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


def _family(name: str) -> tuple[str, ...]:
    """The property with those that stand in for it, or those that it stands in for."""
    for entry in BROKER_PROPERTIES.values():
        if entry.falls_back_to and name in {entry.name, *entry.falls_back_to}:
            return (entry.name, *entry.falls_back_to)
    return (name,)


def _defaults(family: Iterable[str]) -> Iterator[tuple[str, str]]:
    for member in family:
        entry = BROKER_PROPERTIES.get(member)
        default = None if entry is None else entry.format(entry.default)
        if default is not None:
            yield member, default
