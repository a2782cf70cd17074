"""Commits the offsets of groups for the copy of a topic, translated, while the copy runs.

An offset is committed as soon as the records up to it are stored, and before the progress of the copy that includes
them.  Its metadata names the source offset.  A later run, which reads nothing before the offset where it continues,
knows from it which offsets an earlier run has committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from kctl.admin.groups.offsets import commit_offsets
from kctl.admin.topics.offsets import offset_ranges
from kctl.client.consuming.committed_offsets import CommittedOffset, committed_offsets
from kctl.client.outcome import Outcome, failure_of
from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient


# Translates offsets of a source partition to offsets of its copy. Pure.
#
# A copy leaves out records, so offsets differ. An offset is translated to that of the first copied record at or after
# it: a group that continues there reads every copied record that it has not read in the source, and no other.


class OffsetTranslation:
    """Offsets of one source partition, and of the target partition that gets its copied records in order."""

    def __init__(self, watched: Iterable[int], begin: int) -> None:
        """`watched`: the source offsets to translate; those before `begin` have no translation."""
        self.begin = begin
        self.translated: dict[int, int] = {}
        """Target offsets by source offset."""
        self._waiting = deque(sorted({offset for offset in watched if offset >= begin}))
        self._sent: deque[tuple[int, int]] = deque()
        """(number of the record among those sent, source offset watched)."""
        self._records_sent = 0
        self._records_delivered = 0

    def sent(self, source_offset: int) -> None:
        """Note that a record has been handed to the producer; offsets up to its own are translated to it."""
        while self._waiting and self._waiting[0] <= source_offset:
            self._sent.append((self._records_sent, self._waiting.popleft()))
        self._records_sent += 1

    def delivered(self, base_offset: int, count: int) -> None:
        """Note that the next `count` records sent have been stored from `base_offset` on."""
        end = self._records_delivered + count
        while self._sent and self._sent[0][0] < end:
            number, watched = self._sent.popleft()
            self.translated[watched] = base_offset + number - self._records_delivered
        self._records_delivered = end

    def is_behind(self, source_position: int) -> bool:
        """Return whether an offset up to this position waits for a record at or after it."""
        return bool(self._waiting) and self._waiting[0] <= source_position

    def reached(self, source_position: int, target_end: int) -> None:
        """Note that the source has been copied up to this position: later records will be at `target_end` or after
        it.
        """
        while self.is_behind(source_position):
            self.translated[self._waiting.popleft()] = target_end


class Translated(NamedTuple):
    """The offset of a group in the copy of one partition."""

    offset: int | None
    """In the target; None if it is not known."""
    is_kept: bool
    """Whether the group was already at this offset in the target, or further."""
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CopiedGroups:
    """The groups whose offsets are copied, and what has been done.  Owner: event loop."""

    target: ClusterClient
    topic: str
    """The topic that is written to."""
    offsets: Mapping[str, Mapping[TopicPartition, int]]
    """Offsets in the source by group and source partition."""
    translations: Mapping[TopicPartition, OffsetTranslation]
    done: dict[tuple[str, TopicPartition], Translated] = field(default_factory=dict)
    """By group and source partition; those that failed are tried again."""

    @classmethod
    def of(
        cls,
        target: ClusterClient,
        topic: str,
        offsets: Mapping[str, Mapping[TopicPartition, int]],
        begins: Mapping[TopicPartition, int],
    ) -> Self:
        """Return the groups with these offsets; those before `begins` have no translation."""
        watched = {tp: {of_group[tp] for of_group in offsets.values() if tp in of_group} for tp in begins}
        translations = {tp: OffsetTranslation(watched[tp], begin) for tp, begin in begins.items()}
        return cls(target, topic, offsets, translations)

    async def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets whose translation is known and not yet committed.  Raises KctlError.

        `positions`: everything before these source offsets has been stored in the target or left out.
        """
        await self._translate_up_to(positions)
        for group, offsets in self.offsets.items():
            known = {
                tp: new
                for tp, offset in offsets.items()
                if (new := self.translations[tp].translated.get(offset)) is not None and not self._is_done(group, tp)
            }
            if known:
                await self._commit(group, known)

    async def find_earlier(self) -> None:
        """For offsets without a translation, finds those that an earlier run has committed.  Raises KctlError."""
        for group, offsets in self.offsets.items():
            left = [tp for tp in offsets if (group, tp) not in self.done]
            if not left:
                continue
            try:
                present = await self._present(group, left)
            except ApiError as error:
                self.done.update({(group, tp): Translated(None, False, failure_of(str(tp), error)) for tp in left})
                continue
            for tp in left:
                commit = present.get(self._copy_of(tp))
                new = commit.offset if commit is not None else None
                is_kept = commit is not None and commit.metadata == metadata_for(tp, offsets[tp])
                outcome = Outcome(str(tp)) if is_kept else self._without_translation(tp, offsets[tp], new)
                self.done[group, tp] = Translated(new if is_kept else None, is_kept, outcome)

    async def _translate_up_to(self, positions: Mapping[TopicPartition, int]) -> None:
        """Translate offsets after which no record was copied: the next one will be at the end of the target."""
        passed = [tp for tp, translation in self.translations.items() if translation.is_behind(positions[tp])]
        if passed:
            ends = await offset_ranges(self.target, [self._copy_of(tp) for tp in passed])
            for tp in passed:
                self.translations[tp].reached(positions[tp], ends[self._copy_of(tp)].end)

    def _is_done(self, group: str, tp: TopicPartition) -> bool:
        result = self.done.get((group, tp))
        return result is not None and result.outcome.is_done

    async def _commit(self, group: str, known: Mapping[TopicPartition, int]) -> None:
        try:
            present = await self._present(group, known)
        except ApiError as error:
            self.done.update(
                {(group, tp): Translated(new, False, failure_of(str(tp), error)) for tp, new in known.items()}
            )
            return
        none = CommittedOffset(-1)
        moved = {tp: new for tp, new in known.items() if new > present.get(self._copy_of(tp), none).offset}
        commits = {
            self._copy_of(tp): CommittedOffset(new, metadata=metadata_for(tp, self.offsets[group][tp]))
            for tp, new in moved.items()
        }
        outcomes = await commit_offsets(self.target, group, commits) if commits else {}
        for tp, new in known.items():
            copy = self._copy_of(tp)
            is_kept = tp not in moved
            offset = present[copy].offset if is_kept else new
            self.done[group, tp] = Translated(offset, is_kept, outcomes.get(copy, Outcome(str(copy))))

    async def _present(self, group: str, tps: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the commits of the group in the target."""
        copies = [self._copy_of(tp) for tp in tps]
        return await self.target.on_coordinator(group, lambda connection: committed_offsets(connection, group, copies))

    def _copy_of(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(self.topic, tp.partition)

    def _without_translation(self, tp: TopicPartition, offset: int, present: int | None) -> Outcome:
        begin = self.translations[tp].begin
        reason = (
            f"The offset is before {begin}, where this run began."
            if offset < begin
            else "The copy ended before this offset."
        )
        left = "no offset" if present is None else f"the offset {present}"
        return Outcome(str(tp), ErrorCode.OFFSET_OUT_OF_RANGE, f"{reason}  In the target the group has {left}.")


def metadata_for(source: TopicPartition, offset: int) -> str:
    """Return the metadata of a commit that says which source offset it stands for."""
    return f"copied from {source} at {offset}"
