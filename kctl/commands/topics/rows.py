"""Rows that several verbs of `kctl topics` show."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.rows import code_error, outcome_error
from kctl.console import ERROR_COLUMNS, Column
from kctl.model import uuid_text

if TYPE_CHECKING:
    from kctl.admin.outcome import Outcome
    from kctl.client.metadata import Topic

TOPIC_COLUMNS = (
    Column("topic"),
    Column("partitions", numeric=True),
    Column("replication_factor", numeric=True),
    *ERROR_COLUMNS,
)
CHANGE_COLUMNS = (*TOPIC_COLUMNS[:3], Column("status"), *ERROR_COLUMNS)


class TopicRow(NamedTuple):
    """A topic in a list; without counts if it could not be described."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    internal: bool
    error: str | None = None
    message: str | None = None


class TopicChangeRow(NamedTuple):
    """A topic that is created, altered or deleted."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    status: str | None
    """The past or expected result; None if it failed."""
    error: str | None = None
    message: str | None = None


def topic_row(topic: Topic) -> TopicRow:
    """A topic as the metadata describes it."""
    return TopicRow(
        topic=topic.name,
        partitions=len(topic.partitions) if topic.partitions else None,
        replication_factor=len(topic.partitions[0].replicas) if topic.partitions else None,
        internal=topic.is_internal,
        **code_error(topic.error),
    )


def topic_id(topic: Topic) -> str | None:
    """The id as text; None from brokers before 2.8."""
    if not topic.topic_id.int:
        return None
    return uuid_text(topic.topic_id)


def change_row(
    outcome: Outcome, status: str, *, partitions: int | None = None, replication_factor: int | None = None
) -> TopicChangeRow:
    """The outcome of a change; `status` is shown if it succeeded."""
    return TopicChangeRow(
        topic=outcome.name,
        partitions=partitions,
        replication_factor=replication_factor,
        status=status if outcome.is_done else None,
        **outcome_error(outcome),
    )
