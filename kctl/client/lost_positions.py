"""Positions that are outside the log, because records were deleted or the log was truncated."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.list_offsets import EARLIEST, LATEST, list_offsets_at
from kctl.errors import ApiError
from kctl.model import TopicPartition


async def lost_positions(client: ClusterClient, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions whose position is before the start or after the end of the log.  Raises ApiError."""
    lost: list[TopicPartition] = []
    for tp, bounds in (await list_offsets_at(client, positions, (EARLIEST, LATEST))).items():
        if isinstance(bounds, ApiError):
            raise bounds
        start, end = bounds
        if not start.offset <= positions[tp] <= end.offset:
            lost.append(tp)
    return lost
