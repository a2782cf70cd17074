"""`kctl topics list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.topics.topics import list_topics
from kctl.admin.topics.topics import list_topics as all_topics
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.parameters import with_groups
from kctl.commands.frame.options.values import Expectation
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand, note_omissions
from kctl.commands.reading.searches import NamePattern
from kctl.commands.topics.options import (
    NO_FILTERS,
    FilterOptions,
    TopicChangeRow,
    TopicRow,
    topic_row,
)
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.output.console import TypedRow


verbs = typer.Typer(add_completion=False)


@verbs.command(
    "list", cls=QueryCommand, epilog=examples("kctl topics list", "kctl topics list --internal --format jsonl")
)
@shows(TopicRow)
@with_groups
def list_verb(
    ctx: typer.Context,
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    filters: FilterOptions,
) -> ExitStatus:
    """List topics.

    Only topics that match all filters are listed.  Of the filters for partitions, a partition of the topic has to match
    one; if any does, the exit status is 3.
    """
    run: Invocation = ctx.obj
    has_problems = False
    if filters == NO_FILTERS:
        found = run.on_cluster(all_topics)
        topics = [topic for topic in found if internal or not topic.is_internal]
    else:
        from kctl.commands.topics.describe import filtered_topics  # noqa: PLC0415 - without filters it starts faster

        selected = filtered_topics(run, filters, internal=internal)
        topics, has_problems = selected.topics, bool(selected.partitions)
    rows = [topic_row(topic) for topic in topics]
    run.console.show(TopicRow, rows)
    if filters == NO_FILTERS:
        note_omissions(run, rows, "topics")
    status = run.status_of(rows)
    return ExitStatus.UNMET if has_problems and status is ExitStatus.DONE else status


# Which topics `kctl topics alter` and `delete` change.


def selected_names(
    run: Invocation,
    names: list[str] | None,
    topic_regex: str | None,
    expected: Expectation | None,
    row: type[TypedRow] = TopicChangeRow,
) -> list[str] | None:
    """Return the named topics, or those that match; None if there are not as many as expected.

    Then a warning and an empty list of such rows are shown.

    Raises UsageError unless names or a regular expression are given, and KctlError if no topic matches.
    """
    if bool(names) == (topic_regex is not None):
        raise UsageError("give topics or --topic-regex")
    found = names or matching_topics(run, NamePattern("--topic-regex", topic_regex or ""))
    found = list(dict.fromkeys(found))
    if expected is not None and not expected.holds(len(found)):
        run.console.warn(f"--expect {expected.text}: selected are {len(found)}, and nothing is changed")
        run.console.show(row, [])
        return None
    if not found:
        raise KctlError(f"no topic matches --topic-regex '{topic_regex}'")
    return found


def matching_topics(run: Invocation, pattern: NamePattern) -> list[str]:
    """Return the names of the topics that match, except internal topics."""
    topics = run.on_cluster(list_topics)
    return pattern.select(topic.name for topic in topics if not topic.is_internal)
