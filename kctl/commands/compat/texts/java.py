"""What Kafka's tools print because of Java: its hash orders, texts and exceptions, and which version is imitated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

import typer

from kctl.model import TopicPartition, java_hash

# Iteration orders of Java's and Scala's hash tables, because Kafka's tools print in these orders. Pure.


_SMALL_SCALA_MAP = 4
_BITS_PER_LEVEL = 5
_LEVELS = 7

K = TypeVar("K", str, int, TopicPartition)


def java_order(keys: Iterable[K], *, room: int = 16) -> list[K]:
    """Return the order of a java.util.HashMap or HashSet with initial capacity `room`; `keys` are in order of
    insertion.
    """
    unique = list(dict.fromkeys(keys))
    length = 1 << max(room - 1, 0).bit_length()
    while len(unique) > length * 3 // 4:
        length *= 2
    return sorted(unique, key=lambda key: _folded(_hash(key)) & (length - 1))


def java_merged_order(first: Sequence[K], second: Sequence[K]) -> list[K]:
    """Return the order of a java.util.HashMap that is a copy of a map, with another map added."""
    together: list[K] = list(first)
    together.extend(second)
    return java_order(together, room=int(len(first or second) / 0.75) + 1)


def java_copy_order(keys: Iterable[K]) -> list[K]:
    """Return the order of a java.util.HashSet that is a copy of a collection."""
    unique = list(dict.fromkeys(keys))
    return java_order(unique, room=max(int(len(unique) / 0.75) + 1, 16))


def scala_mutable_order(keys: Iterable[K]) -> list[K]:
    """Return the order of a scala.collection.mutable.HashMap of 2.13: by bucket, and in a bucket by hash."""
    unique = list(dict.fromkeys(keys))
    length = 16
    while len(unique) >= length * 3 // 4:
        length *= 2
    return sorted(unique, key=lambda key: (_folded(_hash(key)) & (length - 1), signed(_folded(_hash(key)))))


def scala_map_order(keys: Iterable[K]) -> list[K]:
    """Return the order of scala.Predef.Map of 2.13: up to four keys in order of insertion, more as an immutable
    HashMap.
    """
    unique = list(dict.fromkeys(keys))
    return unique if len(unique) <= _SMALL_SCALA_MAP else _trie([(_improved(_hash(key)), key) for key in unique], 0)


class ScalaHashTable:
    """A table with the iteration order of scala.collection.mutable.HashMap and HashSet of 2.13."""

    _LOAD_FACTOR = 0.75

    def __init__(self) -> None:
        self._length = 16
        self._nodes: dict[Any, tuple[int, Any]] = {}

    def expect(self, count: int) -> None:
        """`sizeHint`, which precedes the addition of a collection."""
        capacity = max(int((count + 1) / self._LOAD_FACTOR) - 1, 4)
        self._length = max(self._length, 1 << capacity.bit_length())

    def add(self, key: Any, hashed: int, value: Any, *, may_resize: bool = True) -> None:
        """Add an element; replace the value of an existing key."""
        if may_resize and len(self._nodes) + 1 >= int(self._length * self._LOAD_FACTOR):
            self._length *= 2
        self._nodes[key] = (signed(hashed ^ (hashed & 0xFFFFFFFF) >> 16), value)

    def keys(self) -> list[Any]:
        """Return the keys by bucket, and in a bucket by hash."""
        mask = self._length - 1
        return sorted(self._nodes, key=lambda key: (self._nodes[key][0] & mask, self._nodes[key][0]))

    def __iter__(self) -> Iterator[Any]:
        return (self._nodes[key][1] for key in self.keys())


def _trie(keys: list[tuple[int, K]], level: int) -> list[K]:
    """Return the order within a node: first the keys that are alone on their branch, then the nodes below."""
    if level == _LEVELS:
        return [key for _, key in keys]
    branches: dict[int, list[tuple[int, K]]] = {}
    for hashed, key in keys:
        branches.setdefault(hashed >> level * _BITS_PER_LEVEL & 31, []).append((hashed, key))
    ordered = [branches[number] for number in sorted(branches)]
    alone = [branch[0][1] for branch in ordered if len(branch) == 1]
    return alone + [key for branch in ordered if len(branch) > 1 for key in _trie(branch, level + 1)]


def _hash(key: str | int | TopicPartition) -> int:
    """Return the key's hashCode without its sign; an int is a java.lang.Long."""
    if isinstance(key, TopicPartition):
        return (31 * (31 + key.partition) + java_hash(key.topic)) & 0xFFFFFFFF
    if isinstance(key, str):
        return java_hash(key) & 0xFFFFFFFF
    return (key ^ (key & 0xFFFFFFFFFFFFFFFF) >> 32) & 0xFFFFFFFF


def _folded(hashed: int) -> int:
    return hashed ^ hashed >> 16


def _improved(hashed: int) -> int:
    """scala.collection.Hashing.improve."""
    mixed = (hashed + ~(hashed << 9)) & 0xFFFFFFFF
    mixed ^= mixed >> 14
    mixed = (mixed + (mixed << 4)) & 0xFFFFFFFF
    return mixed ^ mixed >> 10


def signed(number: int) -> int:
    """Return the number as a Java int: its lowest 32 bits, signed."""
    return ((number + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


# Lengths and padding of texts as in Java, in UTF-16 code units (some characters have two), and numbers in Java's
# notation. Pure.


_PLAIN_MIN, _PLAIN_STOP = 1e-3, 1e7


def java_length(text: str) -> int:
    """String.length."""
    return len(text) + sum(character > "\uffff" for character in text)


def padded(text: object, width: int) -> str:
    """Return the result of `%-<width>s` of java.util.Formatter."""
    whole = str(text)
    return whole + " " * (width - java_length(whole))


def java_double(value: float) -> str:
    """Double.toString: plain from 0.001 up to 10 million, otherwise with an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_MIN <= abs(value) < _PLAIN_STOP:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits))
    fraction = significant[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{significant[0]}.{fraction}E{exponent + len(digits) - 1}"


# The option --compat: the versions of Kafka whose output commands print, and what holds for all of them.


KAFKA_28 = "kafka-2.8"
KAFKA_3 = "kafka-3"
KAFKA_4 = "kafka-4"

CompatVersion = Literal["kafka-2.8", "kafka-3", "kafka-4"]
COMPAT_HELP = (
    "Print what Kafka's own tool of that version (kafka-3: 3.9) prints on stdout; the exit status stays that of kctl."
)
Compat = Annotated[CompatVersion | None, typer.Option("--compat", help=COMPAT_HELP)]
