"""Declaration of properties: dataclass fields whose metadata are Kafka's names, types, defaults and rules."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Generic, TypeVar, cast, overload

from kctl.config.kinds import ConfigType, Kind
from kctl.config.subjects.versions import significant
from kctl.errors import ConfigError, shown_value

# Validation rules for single values, with a text for errors and the reference page.


T = TypeVar("T")

_ADDRESS_AND_COUNT = re.compile(r"\s*(\[[0-9A-Fa-f.:]+\]|[0-9A-Za-z.:_%-]{1,255}):[0-9]{1,9}\s*\Z")
_THROTTLED_REPLICA = re.compile(r"([0-9]+:[0-9]+)?\Z")


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """`text` completes the sentence "the value must be ..."."""

    text: str
    accepts: Callable[[T], bool]
    choices: tuple[str, ...] = ()
    """The accepted names, if they are few."""


def at_least(low: int) -> Rule[int]:
    """Return a lower bound, inclusive."""
    return Rule(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> Rule[float]:
    """Return the rule that a decimal number is within these bounds, both inclusive."""
    return Rule(f"between {low} and {high}", lambda value: low <= value <= high)


def in_range(low: int, high: int) -> Rule[int]:
    """Return the rule that a whole number is within these bounds, both inclusive."""
    return Rule(f"between {low} and {high}", lambda value: low <= value <= high)


def one_of(*names: str) -> Rule[str]:
    """Return the rule that the value is one of these names."""
    return Rule(f"one of {', '.join(names)}", lambda value: value in names, names)


def each_of(*names: str) -> Rule[tuple[str, ...]]:
    """Return a list of some of these names."""
    return Rule(f"a list of {', '.join(names)}", lambda values: set(values) <= set(names), names)


def known_version(versions: Sequence[str]) -> Rule[str]:
    """Return a Kafka version such as 2.8-IV1; text after its significant part is ignored.  `versions` is in order."""
    return Rule(f"a Kafka version up to {versions[-1]}", lambda value: significant(value) in versions)


THROTTLED_REPLICAS: Rule[tuple[str, ...]] = Rule(
    "* or a list of partition:broker pairs",
    lambda values: values == ("*",) or all(_THROTTLED_REPLICA.match(value) for value in values),
)
"""Kafka's ThrottledReplicaListValidator."""

COUNT_BY_ADDRESS: Rule[str] = Rule(
    "a list of address:count pairs, as in 10.0.0.1:50,[::1]:10,host.example:20",
    lambda text: all(_ADDRESS_AND_COUNT.match(entry) for entry in text.split(",") if entry.strip()),
)


# Declaration of properties: dataclass fields whose default is `prop(...)`. All other views are derived from them.
#
#   log_segment_bytes: int = prop("log.segment.bytes", INT, at_least(14), default=1 << 30, dynamic=Dynamic.CLUSTER_WIDE,
#                                   doc="Size at which a segment is closed and a new one started.")
#
# The attribute is the property's name with underscores for dots; mypy checks the annotation against the kind.


class Dynamic(Enum):
    """Whether and where a property can be changed while the broker runs."""

    READ_ONLY = "read-only"
    """Set in server.properties only."""
    PER_BROKER = "per-broker"
    """Set in /config/brokers/N."""
    PER_LISTENER = "per-broker, with the prefix of a listener"
    """Set in /config/brokers/N, as `listener.name.NAME.` and the name only."""
    CLUSTER_WIDE = "cluster-wide"
    """Set in /config/brokers/N or /config/brokers/<default>."""


class Importance(Enum):
    """Kafka's ConfigDef.Importance, as the configuration reference shows it."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Property:
    """Definition of one property."""

    name: str
    kind: Kind[Any]
    rules: tuple[Rule[Any], ...]
    default: object
    doc: str
    dynamic: Dynamic
    importance: Importance
    falls_back_to: tuple[str, ...]
    """Properties whose value is used, in this order, if this one is not set."""
    server: str | None
    """For a topic's property: the broker's property with its default."""
    unused: str | None
    """Why it has no effect: an equivalent does not exist here.  None if it has one."""

    @property
    def attribute(self) -> str:
        """The name of the dataclass field: the property's name with underscores for dots."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value is hidden."""
        return self.kind.type is ConfigType.PASSWORD

    def parse(self, text: str) -> object:
        """Return the value of `text`.  Raises ValueError with the reason."""
        value = self.kind.parse(text)
        for rule in self.rules:
            if not rule.accepts(value):
                raise ValueError(f"must be {rule.text}")
        return cast(object, value)

    def format(self, value: object) -> str | None:
        """Return the text of a value; None if there is none."""
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
    unused: str | None = ...,
) -> T:
    """Return a property that always has a value."""


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
    unused: str | None = ...,
) -> T | None:
    """Return a property without a default."""


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
    unused: str | None = None,
) -> Any:
    """Declare a dataclass field that holds the property `name`.

    A default of None means no value; other properties always have one.  `unused` is the reason why a property has no
    effect, without a period; existing configurations may have it.  The repr of the dataclass leaves passwords out.
    """
    described = Property(name, kind, rules, default, doc, dynamic, importance, falls_back_to, server, unused)
    return field(default=default, repr=not described.sensitive, metadata={"property": described})


@functools.cache
def properties_of(table: type) -> Mapping[str, Property]:
    """Return the properties declared by a class, by name, in the order of declaration."""
    declared = (entry.metadata.get("property") for entry in fields(table))
    return {described.name: described for described in declared if described is not None}


# Problems of a configuration.


@dataclass(frozen=True, slots=True)
class Problem:
    """An invalid property.  `reason` and `remedy` are sentences without a full stop."""

    name: str
    value: str | None
    reason: str
    remedy: str

    def __str__(self) -> str:
        shown = self.name if self.value is None else f"{self.name}={shown_value(self.value)}"
        return f"{shown}: {self.reason}; {self.remedy}"


class BrokerConfigError(ConfigError):
    """An invalid broker configuration; the text has one line per problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(first.name, first.value, first.reason)
        self.args = ("\n".join(str(problem) for problem in problems),)
        self.problems = tuple(problems)
