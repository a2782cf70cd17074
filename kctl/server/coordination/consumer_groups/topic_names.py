"""The topics that match the regular expressions of a group.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kctl.limits import Subject, bound
from kctl.regex.automaton import Matcher
from kctl.regex.syntax import InvalidRegex
from kctl.system.steps import Steps

REGEX_WORK_MAX = bound(
    Subject.COORDINATION,
    "work to find the topics that match the regular expressions of a group",
    5_000_000,
    "places of the expressions that are examined, about 4 s of a processor",
    on_excess="the expressions that are left match no topic",
)
WORK_PER_STEP = 5_000
"""About 5 ms."""


def find_topics(
    regexes: Iterable[str], topics: Iterable[str], work_max: int = REGEX_WORK_MAX
) -> Steps[Mapping[str, frozenset[str]]]:
    """Return the topics that match each expression; yields after each part of the work.

    Expressions that are not valid match nothing: they were checked when their members joined, or another broker with
    other bounds has stored them.
    """
    names = list(topics)
    left = work_max
    matching: dict[str, frozenset[str]] = {}
    for regex in regexes:
        found: list[str] = []
        try:
            matcher = Matcher(regex)
        except InvalidRegex:
            matching[regex] = frozenset()
            continue
        pause_at = WORK_PER_STEP
        for name in names:
            if matcher.work > left:
                found.clear()
                break
            if matcher.matches(name):
                found.append(name)
            if matcher.work >= pause_at:
                pause_at = matcher.work + WORK_PER_STEP
                yield
        left -= matcher.work
        matching[regex] = frozenset(found)
        yield
    return matching
