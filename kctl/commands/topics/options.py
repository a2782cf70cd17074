"""Options that several verbs of `kctl topics` take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.commands.frame.options.values import Expectation, parse_expectation
from kctl.commands.frame.output.rows import code_error, outcome_error
from kctl.model import uuid_text
from kctl.output.console import JSON_ONLY, ErrorName, ErrorText

if TYPE_CHECKING:
    from kctl.client.metadata import Topic
    from kctl.client.outcome import Outcome


DRY_RUN = typer.Option("--dry-run", help="Show what would be done without doing it.")
FILTER_PANEL = "Filters"

TopicRegex = Annotated[
    str | None,
    typer.Option(
        "--topic-regex",
        metavar="RE",
        help="Topics whose name matches this regular expression as a whole, except internal topics.",
        rich_help_panel=FILTER_PANEL,
    ),
]


class FilterOptions(NamedTuple):
    """The filters on a command line of `list` and `describe`."""

    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated-partitions",
            help="Only partitions with replicas that are not in sync.",
            rich_help_panel=FILTER_PANEL,
        ),
    ] = False
    unavailable: Annotated[
        bool,
        typer.Option(
            "--unavailable-partitions", help="Only partitions without a live leader.", rich_help_panel=FILTER_PANEL
        ),
    ] = False
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            help="Only partitions with fewer in-sync replicas than min.insync.replicas.",
            rich_help_panel=FILTER_PANEL,
        ),
    ] = False
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions",
            help="Only partitions with exactly min.insync.replicas in-sync replicas.",
            rich_help_panel=FILTER_PANEL,
        ),
    ] = False
    overrides: Annotated[
        bool,
        typer.Option(
            "--topics-with-overrides",
            help="Only topics that have properties of their own.",
            rich_help_panel=FILTER_PANEL,
        ),
    ] = False
    topic_regex: TopicRegex = None
    id_: Annotated[
        str | None,
        typer.Option(
            "--topic-id",
            metavar="RE",
            help="Only topics whose id matches this regular expression as a whole; an id matches itself.",
            rich_help_panel=FILTER_PANEL,
        ),
    ] = None


NO_FILTERS = FilterOptions()


Expect = Annotated[
    Expectation | None,
    typer.Option(
        "--expect",
        metavar="N",
        parser=parse_expectation,
        help="Change nothing, and exit with status 3, unless N topics are selected; also '>=N', '<=N' and others.",
    ),
]


# Rows that several verbs of `kctl topics` show.


class TopicRow(NamedTuple):
    """A topic in a list; without counts if it could not be described."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    internal: Annotated[bool, JSON_ONLY]
    error: ErrorName = None
    message: ErrorText = None


class TopicChangeRow(NamedTuple):
    """A topic that is created, altered or deleted."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    status: Annotated[str | None, "The past or expected result; null if it failed."]
    error: ErrorName = None
    message: ErrorText = None


def topic_row(topic: Topic) -> TopicRow:
    """Return a topic as the metadata describes it."""
    return TopicRow(
        topic=topic.name,
        partitions=len(topic.partitions) if topic.partitions else None,
        replication_factor=len(topic.partitions[0].replicas) if topic.partitions else None,
        internal=topic.is_internal,
        **code_error(topic.error),
    )


def topic_id(topic: Topic) -> str | None:
    """Return the id as text; None from brokers before 2.8."""
    if not topic.topic_id.int:
        return None
    return uuid_text(topic.topic_id)


def change_row(
    outcome: Outcome, status: str, *, partitions: int | None = None, replication_factor: int | None = None
) -> TopicChangeRow:
    """Return the outcome of a change; `status` is shown if it succeeded."""
    return TopicChangeRow(
        topic=outcome.name,
        partitions=partitions,
        replication_factor=replication_factor,
        status=status if outcome.is_done else None,
        **outcome_error(outcome),
    )
