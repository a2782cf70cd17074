"""How a property is declared: a dataclass field whose default is `prop(...)`.  Everything else is derived from that.

    log_segment_bytes: int = prop("log.segment.bytes", INT, at_least(14), default=1 << 30, dynamic=Dynamic.CLUSTER_WIDE,
                                  doc="Size at which a segment is closed and a new one started.")

The attribute is the property's name with underscores for dots; mypy holds the annotation against the kind.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar, cast, overload

from kctl.config.kinds import ConfigType, Kind
from kctl.config.rules import Rule

T = TypeVar("T")


class Dynamic(Enum):
    """Whether a running broker takes a new value, and from where."""

    READ_ONLY = "read-only"
    """Only from server.properties, at start."""
    PER_BROKER = "per-broker"
    """From /config/brokers/N."""
    CLUSTER_WIDE = "cluster-wide"
    """From /config/brokers/N and from /config/brokers/<default>."""


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Property:
    """What is known about one property besides its value."""

    name: str
    kind: Kind[Any]
    rules: tuple[Rule[Any], ...]
    default: object
    doc: str
    dynamic: Dynamic
    importance: Importance
    falls_back_to: tuple[str, ...]
    """Properties that stand in, in this order, while this one has no value."""
    server: str | None
    """For a topic's property: the broker's property that gives its default."""
    inert: bool
    """Accepted and described, but nothing acts on it yet."""

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.kind.type is ConfigType.PASSWORD

    def parse(self, text: str) -> object:
        """The value of `text`; raises ValueError with what is wrong with it."""
        value = self.kind.parse(text)
        for rule in self.rules:
            if not rule.accepts(value):
                raise ValueError(f"must be {rule.text}")
        return cast(object, value)

    def format(self, value: object) -> str | None:
        """The text of a value; None for no value."""
        return None if value is None else self.kind.format(value)


@overload
def prop(
    name: str,
    kind: Kind[T],
    *rules: Rule[Any],
    default: T,
    doc: str,
    dynamic: Dynamic = ...,
    importance: Importance = ...,
    falls_back_to: tuple[str, ...] = ...,
    server: str | None = ...,
    inert: bool = ...,
) -> T: ...


@overload
def prop(
    name: str,
    kind: Kind[T],
    *rules: Rule[Any],
    default: None,
    doc: str,
    dynamic: Dynamic = ...,
    importance: Importance = ...,
    falls_back_to: tuple[str, ...] = ...,
    server: str | None = ...,
    inert: bool = ...,
) -> T | None: ...


def prop(
    name: str,
    kind: Kind[Any],
    *rules: Rule[Any],
    default: object,
    doc: str,
    dynamic: Dynamic = Dynamic.READ_ONLY,
    importance: Importance = Importance.MEDIUM,
    falls_back_to: tuple[str, ...] = (),
    server: str | None = None,
    inert: bool = False,
) -> Any:
    """Declares a dataclass field that holds the property `name`.

    A default of None means: no value, which only such properties may have.  `inert` marks a property that is accepted
    for the sake of existing configurations although nothing in the broker acts on it.
    """
    described = Property(name, kind, rules, default, doc, dynamic, importance, falls_back_to, server, inert)
    return field(default=default, metadata={"property": described})


@functools.cache
def properties_of(table: type) -> Mapping[str, Property]:
    """The properties that a table class declares, by name, in the order of their declaration."""
    declared = (entry.metadata.get("property") for entry in fields(table))
    return {described.name: described for described in declared if described is not None}
