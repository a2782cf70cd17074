"""Positions of topics as JSON, in commits of folders and of tables.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kctl.client.positions import NO_EPOCH
from kctl.client.positions import Position as History
from kctl.spark.exec.histories import UNKNOWN_HISTORY, history_of
from kctl.spark.plan import Position, Replaced, TopicPosition


def topics_to_json(topics: Mapping[str, TopicPosition]) -> dict[str, Any]:
    """Positions by topic.

    Histories and replaced ranges are members of their own, which versions before them do not read.
    """
    return {
        topic: {
            "topic_id": str(position.topic_id),
            "cluster_id": position.cluster_id,
            "incarnation": position.incarnation,
            "partitions": {str(p): list(at[:2]) for p, at in sorted(position.partitions.items())},
            **_histories_to_json(position),
            **({"replaced": [list(one) for one in position.replaced]} if position.replaced else {}),
        }
        for topic, position in topics.items()
    }


def topics_from_json(document: Mapping[str, Any]) -> dict[str, TopicPosition]:
    """The inverse of `topics_to_json`.  Raises KeyError, TypeError and ValueError for other documents."""
    return {
        topic: TopicPosition(
            UUID(position["topic_id"]),
            position["cluster_id"],
            position["incarnation"],
            {
                int(p): Position(at[0], at[1], history_from_json(position.get("histories", {}).get(p)))
                for p, at in position["partitions"].items()
            },
            tuple(Replaced(*one) for one in position.get("replaced", ())),
        )
        for topic, position in document.items()
    }


def history_to_json(history: History) -> list[int]:
    """High watermark and leader epoch."""
    return [history.offset, history.leader_epoch]


def history_from_json(document: list[int] | None) -> History:
    """The inverse of `history_to_json`; None is an unknown one."""
    return UNKNOWN_HISTORY if document is None else history_of(document[0], document[1])


def _histories_to_json(position: TopicPosition) -> dict[str, Any]:
    histories = {
        str(p): history_to_json(at.history)
        for p, at in sorted(position.partitions.items())
        if at.history.leader_epoch != NO_EPOCH
    }
    return {"histories": histories} if histories else {}
