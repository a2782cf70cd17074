"""Plans the offsets and files of an export.  Pure.

A run compares the exported offsets (Positions, from the last commit) with the cluster (ClusterView) and cuts the
difference into files (Plan).  Per partition:

- a partition without a position starts at --from (default: earliest); one with a position continues
  there, regardless of --from, and one that was added to the topic since then starts at its beginning;
- the end is --until, never beyond the last stable offset (read_committed) or the high watermark (read_uncommitted);
- if the log starts after the position or ends before it, or the topic was deleted and created again, records are
  missing or have other offsets: DataLoss, or with --on-data-loss=warn a warning and a restart at the log start;
- a position has the leader epoch and the end of the log when it was planned.  If the leader's log does not have that
  history up to the position any more (KIP-320), records that were exported are lost, and others may have their offsets:
  DataLoss, or with --on-data-loss=warn the export goes on where the histories part, in a new incarnation.  The rows
  after that are recorded (Replaced).

A topic is unchanged if both topic ids are known and equal; brokers older than 2.8 have no ids, so the cluster id is
compared there.  A restart gets a new incarnation, which is part of the paths, so that reused offsets do not collide
with existing files.

Files are cut by size.  A large range is cut into parts of equal bytes, estimated from samples of the log; small ranges
share a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kctl.client.consuming.positions import Position as History
from kctl.errors import UsageError
from kctl.model import ZERO_UUID, TopicPartition
from kctl.tables.commits.layout import NamedRange, data_path
from kctl.tables.exec.outcome import DataLoss
from kctl.tables.exec.reading.histories import UNKNOWN_HISTORY, affects
from kctl.tables.plans.density import Sample, cut_by_size
from kctl.tables.plans.plan import (
    ClusterView,
    FileOptions,
    FileRange,
    OnDataLoss,
    PartitionRange,
    PartitionView,
    Plan,
    PlannedTopic,
    Position,
    Positions,
    Replaced,
    TopicPosition,
    TopicView,
    kept_positions,
)

FILE_BYTES_MIN = 16 << 20
"""Files are not cut smaller than this only to keep every core busy."""
SHARED_FILES_PER_CORE = 4
"""Shared files are kept small enough for this many per core, so that tasks of unequal size end together."""
SHARED_FILE_RANGES_MAX = 500
"""Maximum ranges of a file: one task reads them in sequence, and the footer lists all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """Parameters for cutting ranges into files."""

    target_file_bytes: int
    parallelism: int
    """Tasks that can run at once; ranges are cut further to have that many, down to FILE_BYTES_MIN."""


def make_plan(
    positions: Positions,
    view: ClusterView,
    *,
    options: FileOptions,
    split: SplitRule,
    on_data_loss: OnDataLoss,
    now_ms: int,
) -> tuple[Plan | None, list[str]]:
    """Return the next batch, or None if nothing is new; and descriptions of lost records.

    Raises DataLoss with OnDataLoss.FAIL, UsageError if the options do not match the folder.
    """
    _check_columns(positions, options)
    losses: list[str] = []
    topics: dict[str, PlannedTopic] = {}
    spans: list[_Span] = []
    for topic, topic_view in sorted(view.topics.items()):
        before = positions.topics.get(topic)
        beginning = _begin(topic, topic_view, before, view.cluster_id, losses)
        topic_spans = _topic_spans(topic, topic_view, before, beginning, losses)
        if topic_spans:
            topics[topic] = PlannedTopic(topic_view.topic_id, beginning.incarnation)
            spans.extend(topic_spans)
    if losses and on_data_loss is OnDataLoss.FAIL:
        raise DataLoss("; ".join(losses))
    if not spans:
        return None, losses
    file_bytes = _file_bytes(spans, split, files_per_core=1)
    shared_bytes = _file_bytes(spans, split, files_per_core=SHARED_FILES_PER_CORE)
    plan = Plan(
        batch=positions.last_batch + 1,
        created_ms=now_ms,
        cluster_id=view.cluster_id,
        options=options,
        topics=topics,
        ranges=tuple(range_ for group in _groups(spans, shared_bytes) for range_ in _into_files(group, file_bytes)),
    )
    return plan, losses


class _Beginning(NamedTuple):
    """Start of the partitions of one topic: those without a position start with `incarnation`."""

    incarnation: int
    positions: dict[int, Position]
    """Known partitions, with the new position after a restart."""
    is_anew: bool
    """Whether partitions without a position start at the log start, regardless of --from."""
    replaced: Mapping[int, Replaced] = MappingProxyType({})
    """By partition."""


class _Span(NamedTuple):
    """A PartitionRange before it is cut into files."""

    tp: TopicPartition
    start: int
    end: int
    topic_id: UUID
    incarnation: int
    lost: int
    size_bytes: float
    """Estimated size on the broker; 0 when unknown."""
    samples: tuple[Sample, ...]
    history: History
    replaced: Replaced | None

    @property
    def width(self) -> int:
        return self.end - self.start


def _check_columns(positions: Positions, options: FileOptions) -> None:
    if positions.include_headers is None or positions.include_headers == options.include_headers:
        return
    has, remedy = ("with", "add") if positions.include_headers else ("without", "leave out")
    raise UsageError(f"the folder was exported {has} headers: {remedy} --include-headers, or export to another folder")


def _begin(topic: str, view: TopicView, before: TopicPosition | None, cluster_id: str, losses: list[str]) -> _Beginning:
    """Compare the topic with its positions; add differences that lose records to `losses`."""
    if before is None:
        return _Beginning(0, {}, is_anew=False)
    positions = kept_positions(before, view.topic_id, cluster_id)
    if before.partitions and not positions:
        losses.append(f"topic {topic} was deleted and created again since the last export")
        return _Beginning(before.incarnation + 1, {}, is_anew=True)
    incarnation = before.incarnation
    replaced: dict[int, Replaced] = {}
    for partition, position in before.partitions.items() if positions else ():
        there = view.partitions.get(partition)
        if there is None or not _is_truncated(position, there):
            continue
        incarnation = before.incarnation + 1
        losses.append(_truncation_text(TopicPartition(topic, partition), position, there))
        if ZERO_UUID in {view.topic_id, before.topic_id} and not _has_earlier_epochs(there):
            return _Beginning(incarnation, {}, is_anew=True)
        start = _parting(position, there)
        positions[partition] = Position(start, incarnation)
        if start < position.offset:
            replaced[partition] = Replaced(
                partition, position.incarnation, start, position.offset, position.history.leader_epoch
            )
    return _Beginning(incarnation, positions, is_anew=False, replaced=replaced)


def _is_truncated(position: Position, there: PartitionView) -> bool:
    """Return whether the log does not have the records before a position any more."""
    # The high watermark, not the end: the last stable offset may be below the position of a read_uncommitted run.
    if position.offset > there.high_watermark:
        return True
    return there.divergence is not None and affects(there.divergence, position.offset)


def _parting(position: Position, there: PartitionView) -> int:
    """Return the first offset at which the log may have other records than those that were exported."""
    if there.divergence is None:
        return there.high_watermark
    end = there.divergence.end_offset
    return min(position.offset, there.high_watermark, there.log_start if end is None else end)


def _has_earlier_epochs(there: PartitionView) -> bool:
    """Return whether the log was truncated for certain: it has an earlier part of the history.

    Otherwise the topic of a broker without topic ids may have been created again.
    """
    divergence = there.divergence
    return (
        divergence is not None
        and divergence.end_offset is not None
        and divergence.leader_epoch < divergence.position.leader_epoch
    )


def _truncation_text(tp: TopicPartition, position: Position, there: PartitionView) -> str:
    start, last = _parting(position, there), position.offset - 1
    if there.divergence is None:
        text = f"{tp} was exported up to offset {position.offset} but ends at {there.high_watermark}: it was truncated"
        return f"{text}, or the topic was deleted and created again"
    epoch = position.history.leader_epoch
    if there.divergence.end_offset is None:
        text = f"{tp}: the log has no history with leader epoch {epoch}, from which it was exported up to offset {last}"
        return (
            f"{text}: it was replaced, so that any exported row from offset {start} on may be of a record that is lost"
        )
    return (
        f"{tp}: the log was truncated at offset {start}, for example by an unclean leader election: the rows of "
        f"offsets {start} to {last} were exported with leader epoch {epoch}, and their records are lost; the topic has "
        f"leader epoch {there.history.leader_epoch} now, and may have other records at these offsets"
    )


def _topic_spans(
    topic: str, view: TopicView, before: TopicPosition | None, beginning: _Beginning, losses: list[str]
) -> list[_Span]:
    spans = []
    for partition, there in sorted(view.partitions.items()):
        tp = TopicPartition(topic, partition)
        known = beginning.positions.get(partition)
        is_at_log_start = beginning.is_anew or _is_added(partition, beginning.positions)
        fallback = there.log_start if is_at_log_start else there.start
        if known is None and fallback > there.high_watermark:
            raise UsageError(f"{tp} ends at offset {there.high_watermark}, before {fallback}")
        due, incarnation, _ = known or Position(fallback, beginning.incarnation)
        start = max(due, there.log_start)
        if start > due:
            losses.append(f"{tp}: offsets {due} to {start - 1} are gone, the log starts at {start}")
        end = max(min(there.end, there.until), start)
        held = before.partitions.get(partition) if before else None
        if held is not None and held[:2] == (end, incarnation) and _is_history_known(held, there):
            continue
        share = (end - start) / max(there.high_watermark - there.log_start, 1)
        size_bytes = there.size_bytes * share
        replaced = beginning.replaced.get(partition)
        spans.append(
            _Span(
                tp,
                start,
                end,
                view.topic_id,
                incarnation,
                start - due,
                size_bytes,
                there.samples,
                there.history,
                replaced,
            )
        )
    return spans


def _is_history_known(position: Position, there: PartitionView) -> bool:
    """Return whether a position without new records is recorded with a history already, if there is one."""
    return position.history != UNKNOWN_HISTORY or there.history == UNKNOWN_HISTORY


def _is_added(partition: int, positions: Mapping[int, Position]) -> bool:
    """Return whether a partition was added since the first export, as far as can be told: all before it were exported
    then.

    With --from latest it would otherwise lose the records from its creation to the next run.
    """
    return bool(positions) and partition > max(positions) and len(positions) > max(positions)


def _file_bytes(spans: Sequence[_Span], split: SplitRule, *, files_per_core: int) -> float:
    total = sum(span.size_bytes for span in spans)
    return min(split.target_file_bytes, max(total / (files_per_core * max(split.parallelism, 1)), FILE_BYTES_MIN))


def _groups(spans: Sequence[_Span], shared_bytes: float) -> list[list[_Span]]:
    """Return groups of neighbours that share a file.

    A span of unknown size, which may be large, and one without offsets, which has no file, are groups of their own.
    """
    groups: list[list[_Span]] = []
    for _, same_folder in groupby(spans, lambda span: (span.tp.topic, span.incarnation)):
        room = 0.0
        for span in same_folder:
            can_share = span.width > 0 and 0 < span.size_bytes <= room and len(groups[-1]) < SHARED_FILE_RANGES_MAX
            if can_share:
                groups[-1].append(span)
                room -= span.size_bytes
            else:
                groups.append([span])
                room = shared_bytes - span.size_bytes if span.width and span.size_bytes else 0.0
    return groups


def _into_files(group: list[_Span], file_bytes: float) -> list[PartitionRange]:
    if len(group) == 1:
        return [_cut(group[0], file_bytes)]
    path = _path(group[0], [NamedRange(span.tp.partition, span.start, span.end) for span in group])
    return [
        PartitionRange(
            span.tp,
            span.start,
            span.end,
            span.incarnation,
            (FileRange(span.start, span.end, path),),
            span.lost,
            span.history,
            span.replaced,
        )
        for span in group
    ]


def _cut(span: _Span, file_bytes: float) -> PartitionRange:
    """Cut a span into parts of equal bytes.

    Cuts may fall inside batches; each reader skips records of the other part.
    """
    count = min(max(round(span.size_bytes / file_bytes), 1), span.width)
    borders = cut_by_size(span.start, span.end, span.samples, count) if count else []
    files = tuple(
        FileRange(start, end, _path(span, [NamedRange(span.tp.partition, start, end)]))
        for start, end in pairwise(borders)
    )
    return PartitionRange(
        span.tp, span.start, span.end, span.incarnation, files, span.lost, span.history, span.replaced
    )


def _path(span: _Span, ranges: Sequence[NamedRange]) -> str:
    return data_path(span.tp.topic, ranges, topic_id=span.topic_id, incarnation=span.incarnation)
