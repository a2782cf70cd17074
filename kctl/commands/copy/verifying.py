"""Verifies that a topic and its copy have the same records, when the copy has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from kctl.admin.copy.comparing import NotComparable, Side, compare, read_kind, stable_ranges
from kctl.admin.topics.offsets import START, OffsetRange, offset_ranges
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kctl.admin.copy.copying import CopyPlan
    from kctl.client.cluster import ClusterClient
    from kctl.client.consuming.fetching.batches import FetchLimits
    from kctl.commands.copy.running import Copying


class Verified(NamedTuple):
    """The result for one topic."""

    status: str
    records: int | None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """What is compared after a copy of one topic.  Owner: event loop."""

    source: ClusterClient
    target: ClusterClient
    plan: CopyPlan
    limits: FetchLimits
    begins: Mapping[TopicPartition, int] | None
    """Where the copy began to write, by source partition; None: all records of both topics are compared."""

    @classmethod
    async def begin(
        cls, source: ClusterClient, target: ClusterClient, copying: Copying, plan: CopyPlan, limits: FetchLimits
    ) -> Self:
        """Prepare the verification before the copy.  Raises ApiError and ClusterUnreachable.

        All records are compared if those of earlier runs are the first ones, and no others were accepted.
        """
        is_whole = copying.resume_group is not None and copying.lower == START and copying.progress == "check"
        begins = None
        if not is_whole:
            copies = {tp: TopicPartition(plan.target, tp.partition) for tp in plan.bounds}
            ranges = await offset_ranges(target, copies.values())
            begins = {tp: ranges[copy].end for tp, copy in copies.items()}
        return cls(source, target, plan, limits, begins)

    async def run(self, positions: Mapping[TopicPartition, int]) -> Verified:
        """Compare the records before these positions with the copy.  Raises ApiError and ClusterUnreachable."""
        compared, deleted = 0, []
        try:
            topic = next(iter(self.plan.bounds)).topic
            is_compacted, with_times = await read_kind(self.source, topic, self.target, self.plan.target)
            for source, target in await self._sides(positions):
                partition = await compare(source, target, is_compacted=is_compacted, with_times=with_times)
                compared += partition.records
                if partition.difference:
                    return Verified("different", compared, partition.difference)
                if partition.deleted:
                    deleted.append(f"{source.tp}: without {partition.deleted}")
        except NotComparable as error:
            return Verified("not verified", None, str(error))
        return Verified("verified", compared, "; ".join(deleted) or None)

    async def _sides(self, positions: Mapping[TopicPartition, int]) -> list[tuple[Side, Side]]:
        copies = {tp: TopicPartition(self.plan.target, tp.partition) for tp in positions}
        of_source = await offset_ranges(self.source, positions)
        of_target = await stable_ranges(self.target, copies.values())
        sides = []
        for tp, copy in sorted(copies.items()):
            start, target_range = of_source[tp].start, of_target[copy]
            if self.begins is not None:
                start = self.plan.bounds[tp][0]
                target_range = OffsetRange(self.begins[tp], target_range.end)
            source = Side(
                self.source,
                tp,
                OffsetRange(start, positions[tp]),
                self.plan.isolation,
                self.limits,
                self.plan.records,
                may_begin_later=self.begins is None and start > 0,
            )
            target = Side(
                self.target,
                copy,
                target_range,
                IsolationLevel.READ_COMMITTED,
                self.limits,
                may_begin_later=self.begins is None and target_range.start > 0,
            )
            sides.append((source, target))
        return sides
