"""The identity of a group member and the generation in which it has read records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kctl.client.consuming.membership.assignors import NO_GENERATION
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.model import TopicPartition


class GroupMetadata(NamedTuple):
    """A group, and the member and generation in whose name offsets are committed (KIP-447)."""

    group_id: str
    generation: int = NO_GENERATION
    """NO_GENERATION for a commit that is not checked against the members of the group."""
    member_id: str = ""
    group_instance_id: str | None = None


def require_offsets(offsets: Mapping[TopicPartition, object]) -> None:
    """Raise UsageError unless the keys are partitions: the number of a partition alone does not name its topic."""
    for tp in offsets:
        if not isinstance(tp, TopicPartition):
            raise UsageError(f"offsets are given by TopicPartition, not by {tp!r}")


class CommitFailed(ApiError):
    """The member does not own a partition any more, or the group rebalances: the commit has no effect.

    Java's CommitFailedException and RebalanceInProgressException.  The records after the last commit are read again by
    the new owner.
    """

    def __init__(self, group_id: str, tp: TopicPartition, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            why = "the group rebalances; call poll, and commit what is still assigned"
        else:
            why = (
                "a rebalance has taken it away, so that others read the records after the last commit again; if poll "
                "is called too rarely, raise max_poll_interval_ms or lower max_poll_records"
            )
        super().__init__(code, f"group '{group_id}': cannot commit {tp}: {why}")
        self.tp = tp


# The callbacks of a group consumer for changes of its partitions.


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
