"""Which offsets of a topic the files should have, and which of them can be compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kctl.errors import ApiError
from kctl.model import TopicPartition
from kctl.spark.existing import ExportedTopic
from kctl.spark.live_topic import LiveLog, LiveTopic
from kctl.spark.plan import Isolation
from kctl.spark.verification.ledger import Gap, Span

DELETED = "deleted from the topic"
TRUNCATED = "beyond the end of the topic"
RECREATED = "the topic was created again"
REPLACED = "rows of records that the topic lost after their export"
UNRECORDED = "before the first row; see --from-start"


class Claim(NamedTuple):
    """One partition: the exported offsets, those that can be compared, and the others."""

    exported: Span
    compared: Span
    gaps: list[Gap]


def claims_of(
    exported: ExportedTopic,
    live: LiveTopic,
    firsts: Mapping[int, int],
    isolation: Isolation,
    partitions: Collection[int] | None,
    *,
    from_start: bool,
) -> list[Claim]:
    """The claims of all partitions, in ascending order; only `partitions` are compared, by default all.

    `firsts` are the lowest offsets in the files, for exports that do not record where they began.  Raises ApiError for
    a partition without a leader.
    """
    claims = []
    is_same = live.is_topic_of(exported.position)
    for partition, position in sorted(exported.position.partitions.items()):
        log = live.logs.get(partition)
        if isinstance(log, ApiError) and (partitions is None or partition in partitions):
            raise ApiError(log.code, f"{TopicPartition(exported.topic, partition)}: {log}")
        end = position.offset
        replaced = [
            Gap(one.start, one.end, f"{REPLACED}, leader epoch {one.leader_epoch}, incarnation {one.incarnation}")
            for one in exported.position.replaced
            if one.partition == partition and is_same
        ]
        first = firsts.get(partition, end)
        if exported.starts is not None:
            start = min(exported.starts.get(partition, first), end)
        else:
            start = min(log.start if from_start and isinstance(log, LiveLog) else end, first, end)
        span = Span(partition, position.incarnation, start, end)
        if partitions is not None and partition not in partitions:
            claims.append(Claim(span, span._replace(start=end), []))
            continue
        if not isinstance(log, LiveLog) or not is_same:
            gaps = [Gap(start, end, RECREATED)] if start < end else []
            claims.append(Claim(span, span._replace(start=end), gaps))
            continue
        low, high = _comparable(log, isolation, start, end)
        gaps = [Gap(start, low, DELETED), Gap(high, end, TRUNCATED), *replaced]
        if exported.starts is None:
            gaps.insert(0, Gap(log.start, start, UNRECORDED))
        claims.append(Claim(span, span._replace(start=low, end=high), [gap for gap in gaps if gap.start < gap.end]))
    return claims


def _comparable(log: LiveLog, isolation: Isolation, start: int, end: int) -> tuple[int, int]:
    """The offsets [low, high) of an exported range that the topic still has."""
    readable = log.stable_end if isolation is Isolation.READ_COMMITTED else log.high_watermark
    low = min(max(start, log.start), end)
    return low, max(min(end, readable), low)
