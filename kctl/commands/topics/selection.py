"""Which topics `kctl topics alter` and `delete` change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.admin.topics import list_topics
from kctl.commands.expectation import parse_expectation
from kctl.commands.timed_search import NamePattern
from kctl.commands.topics.rows import CHANGE_COLUMNS
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.commands.invocation import Invocation
    from kctl.console import Column


def selected_names(
    run: Invocation,
    names: list[str] | None,
    topic_regex: str | None,
    expect: str | None,
    columns: Sequence[Column] = CHANGE_COLUMNS,
) -> list[str] | None:
    """The named topics, or those that match; None if there are not as many as expected.

    Then a warning and an empty list with these columns are shown.

    Raises UsageError unless names or a regular expression are given, and KctlError if no topic matches.
    """
    expected = parse_expectation(expect) if expect else None
    if bool(names) == (topic_regex is not None):
        raise UsageError("give topics or --topic-regex")
    found = names or matching_topics(run, NamePattern("--topic-regex", topic_regex or ""))
    found = list(dict.fromkeys(found))
    if expected is not None and not expected.holds(len(found)):
        run.console.warn(f"--expect {expected.text}: selected are {len(found)}, and nothing is changed")
        run.console.show(columns, [])
        return None
    if not found:
        raise KctlError(f"no topic matches --topic-regex '{topic_regex}'")
    return found


def matching_topics(run: Invocation, pattern: NamePattern) -> list[str]:
    """The names of the topics that match, except internal topics."""
    topics = run.on_cluster(list_topics)
    return pattern.select(topic.name for topic in topics if not topic.is_internal)
