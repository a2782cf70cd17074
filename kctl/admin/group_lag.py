"""The lag of one group and of its partitions.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.admin.group_description import GroupMember
from kctl.admin.lag_facts import LogRange
from kctl.admin.lag_rules import Judgement, Verdict
from kctl.admin.outcome import Outcome
from kctl.errors import ApiError
from kctl.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group.  With an error there is no judgement."""

    tp: TopicPartition
    committed: int | None
    log: LogRange | None
    member: GroupMember | None
    judgement: Judgement | None
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group; without partitions if its outcome is an error."""

    outcome: Outcome
    state: str = ""
    member_count: int = 0
    partitions: tuple[PartitionLag, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The most severe verdict of its partitions."""
        return max((one.judgement.verdict for one in self.partitions if one.judgement), default=Verdict.OK)
