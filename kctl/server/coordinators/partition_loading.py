"""Loads a partition of an internal topic while other requests are served.  Kafka: CoordinatorLoader.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging

from kctl.model import TopicPartition
from kctl.server.coordinators.ports import CoordinatorLog
from kctl.server.coordinators.replay import PartitionReplay, Playback

log = logging.getLogger(__name__)

RECORDS_PER_TURN = 500
"""How many records are replayed before other requests are served."""


async def play_back(coordinator_log: CoordinatorLog, partition: TopicPartition, playback: Playback) -> None:
    """Replays the whole partition; records that had to be skipped are logged.  Raises KctlError."""
    replay = PartitionReplay(playback)
    async for piece in coordinator_log.read_all(partition.partition):
        records = 0
        for count in replay.steps(piece):
            records += count
            if records >= RECORDS_PER_TURN:
                records = 0
                await asyncio.sleep(0)
    for skipped in sorted(replay.skipped, key=lambda each: each.offset):
        log.warning(
            "skipping records that cannot be read topic=%s partition=%d offset=%d last_offset=%d keys=%s error=%s",
            partition.topic,
            partition.partition,
            skipped.offset,
            max(skipped.offset, skipped.last_offset),
            ",".join(map(repr, skipped.keys)) or None,
            skipped.reason,
        )
