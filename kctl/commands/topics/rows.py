"""Rows that several verbs of `kctl topics` show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl.commands.rows import code_error, outcome_error
from kctl.console import ERROR_COLUMNS, Column

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


def topic_row(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions) if topic.partitions else None,
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else None,
        "internal": topic.is_internal,
        **code_error(topic.error),
    }


def change_row(outcome: Outcome, status: str) -> dict[str, Any]:
    return {
        "topic": outcome.name,
        "partitions": None,
        "replication_factor": None,
        "status": status if outcome.is_done else None,
        **outcome_error(outcome),
    }
