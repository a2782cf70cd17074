"""Matches names with an expression, in time linear in their length.

The tree becomes an automaton (Thompson's construction); a name is matched by the set of places where the automaton may
be after each character, and what follows from a set and a character is remembered.  A step without memory costs the
number of places, which is bounded.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kctl.limits import Subject, bound
from kctl.regex.syntax import (
    TOPIC_NAMES,
    Alphabet,
    Alternatives,
    At,
    Characters,
    InvalidRegex,
    Node,
    Position,
    Repeat,
    Sequence,
    parse,
)

REGEX_PLACES_MAX = bound(
    Subject.COORDINATION,
    "size of a regular expression of a member's subscription, with its repetitions written out",
    2_000,
    "characters",
    on_excess="INVALID_REGULAR_EXPRESSION",
)
TRANSITIONS_MAX = 5_000
"""What is remembered of an expression; it is forgotten when there is more."""
_WORK_PER_NAME = 20
_MATCH = -1


class _Place(NamedTuple):
    """Where the automaton may be: before characters, at a position, or with several ways on."""

    bits: int
    position: Position | None
    following: tuple[int, ...]


class Matcher:
    """An expression that can be matched with names."""

    def __init__(self, expression: str, alphabet: Alphabet = TOPIC_NAMES, *, is_whole: bool = True) -> None:
        """`is_whole` is False for an expression that may match a part of the name.

        Raises InvalidRegex if the expression is not valid, or too large.
        """
        self._alphabet = alphabet
        self.work = 0
        """The places that were examined."""
        self._places: list[_Place] = []
        node = parse(expression, alphabet)
        if not is_whole:
            others = Repeat(Characters(alphabet.all), 0, None)
            node = Sequence((others, node, others))
        self._start = self._build(node, _MATCH)
        self._transitions: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def work_max(self, name: str) -> int:
        """Return how many places are examined at most to match a name."""
        return (len(name) + 1) * len(self._places)

    def matches(self, name: str) -> bool:
        """Return whether the expression matches the name."""
        self.work += _WORK_PER_NAME
        places: frozenset[int] = frozenset((self._start,))
        before = ""
        for character in name:
            key = places, before, character
            following = self._transitions.get(key)
            if following is None:
                following = self._step(places, before, character)
                if len(self._transitions) >= TRANSITIONS_MAX:
                    self._transitions.clear()
                self._transitions[key] = following
            if not following:
                return False
            places = following
            before = "w" if self._alphabet.bits.get(character, 0) & self._alphabet.word else "-"
        return _MATCH in self._reachable(places, before, "")

    def _step(self, places: frozenset[int], before: str, character: str) -> frozenset[int]:
        bit = self._alphabet.bits.get(character, 0)
        return frozenset(
            self._places[place].following[0]
            for place in self._reachable(places, before, character)
            if place != _MATCH and self._places[place].bits & bit
        )

    def _reachable(self, places: Iterable[int], before: str, character: str) -> set[int]:
        """Return the places that can be reached without a character; `before` is empty at the start."""
        reached: set[int] = set()
        waiting = list(places)
        while waiting:
            index = waiting.pop()
            if index in reached:
                continue
            reached.add(index)
            self.work += 1
            if index == _MATCH:
                continue
            place = self._places[index]
            if place.bits or (place.position is not None and not self._holds(place.position, before, character)):
                continue
            if place.position is not None or place.bits == 0:
                waiting += place.following
        return reached

    def _add(self, bits: int, position: Position | None, *following: int) -> int:
        if len(self._places) >= REGEX_PLACES_MAX:
            raise InvalidRegex(f"expression is larger than {REGEX_PLACES_MAX} characters")
        self._places.append(_Place(bits, position, following))
        return len(self._places) - 1

    def _build(self, node: Node, following: int) -> int:
        """Add the places of a tree, after which `following` comes; return the first one."""
        match node:
            case Characters(bits):
                # Without a character that a topic can have, there is no way on.
                return self._add(bits, None, following) if bits else self._add(0, None)
            case At(position):
                return self._add(0, position, following)
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case Alternatives(parts):
                return self._add(0, None, *[self._build(part, following) for part in parts])
            case Repeat(part, least, most):
                return self._build_repeat(part, least, most, following)

    def _build_repeat(self, part: Node, least: int, most: int | None, following: int) -> int:
        if most is None:
            loop = self._add(0, None)
            first = self._build(part, loop)
            self._places[loop] = _Place(0, None, (first, following))
            following = loop
        else:
            end = following
            for _ in range(most - least):
                following = self._add(0, None, self._build(part, following), end)
        for _ in range(least):
            following = self._build(part, following)
        return following

    def _holds(self, position: Position, before: str, character: str) -> bool:
        if position is Position.START:
            return before == ""
        if position is Position.END:
            return character == ""
        is_boundary = (before == "w") != bool(self._alphabet.bits.get(character, 0) & self._alphabet.word)
        return is_boundary is (position is Position.WORD_BOUNDARY)
