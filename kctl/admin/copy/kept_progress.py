"""Progress that is kept as committed offsets of a group, and whether it can be trusted.

An offset says nothing about the topic whose records were read up to it, nor about the one that they were written to.
The metadata of each commit is therefore a mark: a JSON object with the ids of both topics.  Where the topics, the
histories before the offsets or the mark do not fit, continuing would skip or repeat records.  All offsets of a group
expire in the end (offsets.retention.minutes), the marks with them: then only a target that never had a record shows
that nothing has been written yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from uuid import UUID

from kctl.admin.copy.stretches import OffsetMap, Stretch, flattened, parse_stretches
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.consuming.positions import Divergence, Position, check_positions
from kctl.errors import ApiError, UsageError
from kctl.model import ZERO_UUID, TopicPartition, uuid_text
from kctl.output.documents import read_json

_KEY = "kctl_progress"
_VERSION = 1
_STRETCHES = "stretches"
_MARK_LENGTH_MAX = 4_096
"""offset.metadata.max.bytes of Kafka."""


class ProgressMark(NamedTuple):
    """What a commit of progress says beside its offset; "" and 0 are unknown."""

    source: str = ""
    """The id of the topic that is read, or "" before Kafka 2.8."""
    target: str = ""
    """The id of the topic that is written."""
    source_cluster: str = ""
    target_cluster: str = ""
    phase: str = ""
    """The phase of a migration that the copy is a part of; "" while it goes on."""
    time_ms: int = 0
    """When a migration has last read what it is to copy."""
    partitions: int = 0
    """How many partitions the source had: those with a larger number were added later and have no progress yet."""

    @classmethod
    def of(
        cls,
        source: UUID = ZERO_UUID,
        target: UUID = ZERO_UUID,
        source_cluster: str | None = None,
        target_cluster: str | None = None,
        partitions: int = 0,
    ) -> Self:
        """Return the mark of a run between these topics as they are now."""
        ids = ["" if topic_id == ZERO_UUID else uuid_text(topic_id) for topic_id in (source, target)]
        return cls(ids[0], ids[1], source_cluster or "", target_cluster or "", partitions=partitions)

    def text(self, stretches: Sequence[Stretch] = ()) -> str:
        """As metadata of a commit, with the stretches of a partition that offsets of groups are translated by."""
        fields: dict[str, object] = {_KEY: _VERSION, **self._asdict()}
        if stretches:
            fields[_STRETCHES] = flattened(stretches)
        return json.dumps(fields, separators=(",", ":"))


def parse_mark(metadata: str) -> ProgressMark | None:
    """Return the mark in the metadata of a commit; None if another program, or an earlier version, has committed."""
    fields = _fields_in(metadata)
    if fields is None:
        return None
    known = {
        name: fields[name]
        for name, default in ProgressMark._field_defaults.items()
        if name in fields and type(fields[name]) is type(default)
    }
    return ProgressMark(**known)


def parse_offset_map(metadata: str) -> OffsetMap:
    """Return the stretches in the metadata of a commit; an empty map if it has none."""
    return OffsetMap(parse_stretches((_fields_in(metadata) or {}).get(_STRETCHES)))


def _fields_in(metadata: str) -> dict[str, Any] | None:
    if _KEY not in metadata or len(metadata) > _MARK_LENGTH_MAX:
        return None
    try:
        fields: Any = read_json(metadata)
    except UsageError:
        return None
    return fields if isinstance(fields, dict) and fields.get(_KEY) == _VERSION else None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the clusters say about one partition of the source, and the partitions that its records are written to."""

    commit: CommittedOffset | None
    end: int
    """The high watermark of the source."""
    history: Divergence | None
    """The result of check_positions, if the log does not have the history before the commit."""
    target_end: int
    """Above 0 if there have ever been records in a partition where those of this one are written."""


class Distrust(NamedTuple):
    """Why the progress of a partition is not trusted."""

    tp: TopicPartition
    reason: str
    parting: Position | None = None
    """Where the log and what was read part, if that is known."""


def distrusted(
    facts: Mapping[TopicPartition, PartitionFacts], now: ProgressMark
) -> tuple[list[Distrust], list[TopicPartition]]:
    """Return the partitions whose progress cannot be trusted, and those whose topics could not be compared."""
    marks = {tp: parse_mark(state.commit.metadata) for tp, state in facts.items() if state.commit is not None}
    partitions_then = max((mark.partitions for mark in marks.values() if mark is not None), default=0)
    found: list[Distrust] = []
    unidentified: list[TopicPartition] = []
    for tp, state in sorted(facts.items()):
        if state.commit is None:
            is_new = 0 < partitions_then <= tp.partition
            if state.target_end > 0 and not is_new:
                text = "no progress is committed, but the target has had records: the progress may have expired"
                found.append(Distrust(tp, text))
            continue
        mark = marks[tp]
        problem = None if mark is None else other_topic(mark, now)
        if problem is not None:
            found.append(Distrust(tp, problem))
        elif state.history is not None:
            lost = f"the log has lost {state.history.range_text} of them"
            text = f"records up to {state.commit.offset} were read, but {lost}"
            found.append(Distrust(tp, text, _parting(state.history, mark, now)))
        elif state.commit.offset > state.end:
            text = f"records up to {state.commit.offset} were read, but the log ends at {state.end}"
            found.append(Distrust(tp, text))
        elif mark is None or not is_identified(mark, now):
            unidentified.append(tp)
    return found, unidentified


def _parting(history: Divergence, mark: ProgressMark | None, now: ProgressMark) -> Position | None:
    """Return where the histories part.  Unknown if the topic may be another one, with other records at all offsets."""
    is_same_topic = mark is not None and mark.source != "" and mark.source == now.source
    if history.end_offset is None or not is_same_topic:
        return None
    return Position(history.end_offset, history.leader_epoch, is_of_record=True)


def other_topic(mark: ProgressMark, now: ProgressMark) -> str | None:
    """Return the reason if a topic is another one than when the progress was committed."""
    sides = (
        ("source", mark.source, now.source, mark.source_cluster, now.source_cluster),
        ("target", mark.target, now.target, mark.target_cluster, now.target_cluster),
    )
    for side, then_id, now_id, then_cluster, now_cluster in sides:
        if then_id and now_id and then_id != now_id:
            return f"the {side} topic is another one than when the progress was committed: deleted and created again"
        if not (then_id and now_id) and then_cluster and now_cluster and then_cluster != now_cluster:
            return f"the {side} topic is in another cluster than when the progress was committed"
    return None


def is_identified(mark: ProgressMark, now: ProgressMark) -> bool:
    """Return whether the ids of all topics that have a part in the progress could be compared (Kafka 2.8 and newer)."""
    has_source = bool(mark.source and now.source) or not (mark.source_cluster or mark.source)
    return has_source and bool(mark.target and now.target)


def committed_position(commit: CommittedOffset) -> Position:
    """Return the position of progress: with a mark, its epoch is that of a record."""
    return commit.position._replace(is_of_record=parse_mark(commit.metadata) is not None)


async def find_divergences(
    client: ClusterClient, commits: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, Divergence]:
    """Return the commits whose history is not in the log of their partition.

    Raises ApiError and ClusterUnreachable.
    """
    outcomes = await check_positions(client, {tp: committed_position(commit) for tp, commit in commits.items()})
    for tp, outcome in outcomes.items():
        if isinstance(outcome, ApiError):
            raise ApiError(outcome.code, f"{tp}: {outcome}")
    return {tp: outcome for tp, outcome in outcomes.items() if isinstance(outcome, Divergence)}
