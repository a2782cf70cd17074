"""The callbacks of a group consumer for changes of its partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.model import TopicPartition


class RebalanceListener:
    """Called during `poll` and `close`; subclasses override what they need.  ConsumerRebalanceListener.

    A cooperative member receives only the partitions that are added or revoked, an eager one all of them.
    """

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were added and have start positions, which `seek` can change."""

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are about to be revoked; their offsets can still be committed."""

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were lost, for example because the session has expired; others may own them already."""
