"""Positions of topics as JSON, in commits of folders and of tables.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kctl.spark.plan import Position, TopicPosition


def topics_to_json(topics: Mapping[str, TopicPosition]) -> dict[str, Any]:
    """Positions by topic."""
    return {
        topic: {
            "topic_id": str(position.topic_id),
            "cluster_id": position.cluster_id,
            "incarnation": position.incarnation,
            "partitions": {str(p): list(at) for p, at in sorted(position.partitions.items())},
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
            {int(p): Position(*at) for p, at in position["partitions"].items()},
        )
        for topic, position in document.items()
    }
