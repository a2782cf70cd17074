"""Positions whose records are gone, because they were deleted or the log was truncated, and where to continue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.list_offsets import EARLIEST, LATEST, list_offsets_at
from kctl.client.positions import Divergence, Position
from kctl.errors import ApiError
from kctl.model import TopicPartition

Begin = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, Position]]]
"""Start positions of partitions by a reset policy, or an error."""


async def lost_positions(client: ClusterClient, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, bool]:
    """The partitions whose position is outside the log: True if it is after the end, as after a truncation.

    Raises ApiError.
    """
    lost: dict[TopicPartition, bool] = {}
    for tp, bounds in (await list_offsets_at(client, positions, (EARLIEST, LATEST))).items():
        if isinstance(bounds, ApiError):
            raise bounds
        start, end = bounds
        if not start.offset <= positions[tp] <= end.offset:
            lost[tp] = positions[tp] > end.offset
    return lost


async def reset_positions(divergences: Collection[Divergence], begin: Begin) -> dict[TopicPartition, Position]:
    """Where to continue: where the histories part, or by `begin` if that is unknown.  Raises what `begin` raises."""
    parted = {one.tp: Position(one.end_offset, one.leader_epoch) for one in divergences if one.end_offset is not None}
    unknown = [one.tp for one in divergences if one.tp not in parted]
    return {**parted, **(await begin(unknown) if unknown else {})}
