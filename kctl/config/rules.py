"""Validation rules for single values, with a text for errors and the reference page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kctl.config.subjects.versions import significant

T = TypeVar("T")

_ADDRESS_AND_COUNT = re.compile(r"\s*(\[[0-9A-Fa-f.:]+\]|[0-9A-Za-z.:_%-]{1,255}):[0-9]{1,9}\s*\Z")
_THROTTLED_REPLICA = re.compile(r"([0-9]+:[0-9]+)?\Z")


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """`text` completes the sentence "the value must be ..."."""

    text: str
    accepts: Callable[[T], bool]


def at_least(low: int) -> Rule[int]:
    """A lower bound, inclusive."""
    return Rule(f"at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> Rule[float]:
    """Bounds of a decimal number, both inclusive."""
    return Rule(f"between {low} and {high}", lambda value: low <= value <= high)


def in_range(low: int, high: int) -> Rule[int]:
    """Bounds of a whole number, both inclusive."""
    return Rule(f"between {low} and {high}", lambda value: low <= value <= high)


def one_of(*names: str) -> Rule[str]:
    """One of these names."""
    return Rule(f"one of {', '.join(names)}", lambda value: value in names)


def each_of(*names: str) -> Rule[tuple[str, ...]]:
    """A list of some of these names."""
    return Rule(f"a list of {', '.join(names)}", lambda values: set(values) <= set(names))


def known_version(versions: Sequence[str]) -> Rule[str]:
    """A Kafka version such as 2.8-IV1; text after its significant part is ignored.  `versions` is in order."""
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
