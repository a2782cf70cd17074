"""Performs the rounds of a comparison.

A round has the same share of the offsets of every partition, because exports that run often write files with a little
of each partition: so most files are read in one round only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kctl.errors import ApiError
from kctl.limits import Subject, bound
from kctl.model import TopicPartition
from kctl.tables.commits.existing import ExportedTopic
from kctl.tables.exec.decoding.batch_decoder import BatchDecoder
from kctl.tables.exec.decoding.decode import decode
from kctl.tables.exec.decoding.rows import RowFilter
from kctl.tables.exec.outcome import CorruptRecords, DataLoss
from kctl.tables.exec.reading.chunk import Memories, chunks
from kctl.tables.exec.reading.fetch import OffsetRange
from kctl.tables.exec.selection.columns import formed, within_calendar
from kctl.tables.exec.task import OpenReader
from kctl.tables.plans.cluster_view import ISOLATION_LEVELS
from kctl.tables.plans.live_topic import LiveLog, LiveTopic
from kctl.tables.plans.plan import Isolation
from kctl.tables.verification.data_files import DataFiles, RowGroup, Rows
from kctl.tables.verification.ledger import AllowedGaps, Difference, Gap, Judgement, Ledger, Span, SpanIndex
from kctl.tables.verification.record_hash import record_hashes
from kctl.tables.verification.rows import DIFFERENT, EQUAL, NOT_COMPARED, GapRow, VerifiedRange

VERIFIED_OFFSETS_PER_ROUND_MAX = bound(
    Subject.EXPORTS,
    "offsets that `kctl tables verify` compares at once, with 22 bytes each",
    1 << 20,
    "offsets",
    on_excess="the topic is compared in several rounds",
)


# Which offsets of a topic the files should have, and which of them can be compared.


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
    """Return the claims of all partitions, in ascending order; only `partitions` are compared, by default all.

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
            Gap(
                range_.start,
                range_.end,
                f"{REPLACED}, leader epoch {range_.leader_epoch}, incarnation {range_.incarnation}",
            )
            for range_ in exported.position.replaced
            if range_.partition == partition and is_same
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
    """Return the offsets [low, high) of an exported range that the topic still has."""
    readable = log.stable_end if isolation is Isolation.READ_COMMITTED else log.high_watermark
    low = min(max(start, log.start), end)
    return low, max(min(end, readable), low)


# Adds up the results of the rounds.


GAPS_MAX = 100
"""Ranges that are listed per partition; further ones are only counted."""
_HASH_MASK = (1 << 64) - 1


class Tally:
    """The result of one partition.  Owner: the verifier."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.compared_from = claim.compared.start
        """Later than in the claim if records were deleted from the topic meanwhile."""
        self._counts = dict.fromkeys(Difference, 0)
        self._topic = [0, 0]
        self._table = [0, 0]
        self._uncompared = 0
        self._gaps: list[Gap] = []
        self._first: tuple[int, Difference] | None = None

    def add(self, judgement: Judgement) -> None:
        """Add the result of one round; rounds are in ascending order of offsets."""
        self._topic[0] += judgement.topic_records
        self._topic[1] = (self._topic[1] + judgement.topic_hash) & _HASH_MASK
        self._table[0] += judgement.table_records
        self._table[1] = (self._table[1] + judgement.table_hash) & _HASH_MASK
        self._uncompared += judgement.uncompared
        for kind, count in judgement.differences.items():
            self._counts[kind] += count
        self._first = self._first or judgement.first
        self._gaps = (self._gaps + judgement.gaps)[:GAPS_MAX]

    def add_outside(self, count: int, offset: int) -> None:
        """Add rows whose offsets were not exported."""
        self._counts[Difference.UNEXPECTED] += count
        self._table[0] += count
        self._first = min(self._first or (offset, Difference.UNEXPECTED), (offset, Difference.UNEXPECTED))

    def rows(self, topic: str) -> list[VerifiedRange]:
        """Return the ranges of the partition, in ascending order."""
        claim = self.claim
        gaps = list(claim.gaps)
        if self.compared_from > claim.compared.start:
            gaps.append(Gap(claim.compared.start, self.compared_from, "deleted from the topic meanwhile"))
        partition = claim.exported.partition
        rows = [_gap_row(topic, partition, gap) for gap in gaps]
        if self.compared_from < claim.compared.end or self._first or not rows:
            rows.append(self._compared_row(topic, partition))
        return sorted(rows, key=lambda row: (row.start, row.end))

    def _compared_row(self, topic: str, partition: int) -> VerifiedRange:
        return VerifiedRange(
            topic=topic,
            partition=partition,
            start=self.compared_from,
            end=max(self.compared_from, self.claim.compared.end),
            status=DIFFERENT if self._first else EQUAL,
            topic_records=self._topic[0],
            table_records=self._table[0],
            topic_hash=f"{self._topic[1]:016x}",
            table_hash=f"{self._table[1]:016x}",
            missing=self._counts[Difference.MISSING],
            twice=self._counts[Difference.TWICE],
            different=self._counts[Difference.DIFFERENT],
            unexpected=self._counts[Difference.UNEXPECTED],
            not_compared=self._uncompared,
            offset=self._first[0] if self._first else None,
            difference=self._first[1].value if self._first else None,
            reason=", ".join(sorted({gap.reason for gap in self._gaps})) or None,
            gaps=[GapRow(*gap) for gap in self._gaps],
        )


def _gap_row(topic: str, partition: int, gap: Gap) -> VerifiedRange:
    return VerifiedRange(topic, partition, gap.start, gap.end, NOT_COMPARED, *(None,) * 11, gap.reason, [])


UNKNOWN_PARTITIONS_MAX = 100
"""Partitions with rows that were never exported, which are listed."""


class Topic(NamedTuple):
    """How the records of the topic are read."""

    name: str
    live: LiveTopic
    isolation: Isolation
    allowed: AllowedGaps
    open_reader: OpenReader
    row_filter: RowFilter | None
    """Of an export with --where."""
    decoder: BatchDecoder | None
    """Of an export whose decoded keys or values are compared."""
    letters: Mapping[int, NDArray[np.int64]]
    """Offsets of the records that are in dead letters, in ascending order, by partition."""
    log_start: Callable[[TopicPartition], int]
    """Looks up the start of a log, when records are gone that were there."""


class Verifier:
    """One comparison."""

    def __init__(
        self,
        topic: Topic,
        claims: Sequence[Claim],
        data: DataFiles,
        *,
        is_table: bool,
        on_progress: Callable[[int], None],
    ) -> None:
        """`on_progress` is called with the number of offsets that have been compared."""
        self._topic = topic
        self._data = data
        self._is_table = is_table
        self._on_progress = on_progress
        self._tallies = [Tally(claim) for claim in claims]
        self._exported = SpanIndex([claim.exported for claim in claims])
        self._unknown: dict[int, Tally] = {}
        self._seen: set[RowGroup] = set()
        self.filtered = 0
        """Records of the topic that the export leaves out."""

    def run(self) -> list[Tally]:
        """Compare all offsets.  Raises CorruptRecords, UnreadableFile, DataLoss, ApiError, ClusterUnreachable."""
        width = sum(_width(tally.claim.compared) for tally in self._tallies)
        count = max(1, -(-width // VERIFIED_OFFSETS_PER_ROUND_MAX))
        done = 0
        for number in range(count):
            numbered = [
                (tally, span)
                for tally in self._tallies
                if _width(span := _share(tally.claim.compared, number, count)) > 0
            ]
            self._compare(numbered, is_first=number == 0)
            done += sum(_width(span) for _, span in numbered)
            self._on_progress(done)
        return sorted([*self._tallies, *self._unknown.values()], key=lambda tally: tally.claim.exported.partition)

    def _compare(self, numbered: Sequence[tuple[Tally, Span]], *, is_first: bool) -> None:
        spans = [span for _, span in numbered]
        ledger = Ledger(spans)
        for number, (tally, span) in enumerate(numbered):
            self._read_topic(ledger, number, tally, span)
        by_partition = {span.partition: span for span in spans}
        groups = [
            group for group in self._data.groups if _overlaps(group, by_partition) or (is_first and self._is_odd(group))
        ]
        for group, rows in self._data.rows(groups):
            if spans:
                ledger.add_rows(*rows)
            if group not in self._seen:
                self._add_outside(rows)
        self._seen.update(groups)
        for number, (tally, _) in enumerate(numbered):
            tally.add(
                ledger.judge(number, log_start=tally.compared_from, allowed=self._topic.allowed, gaps_max=GAPS_MAX)
            )

    def _read_topic(self, ledger: Ledger, number: int, tally: Tally, span: Span) -> None:
        """Enter the records of a span; if the start of the log passes it meanwhile, only those that are left."""
        tp = TopicPartition(self._topic.name, span.partition)
        while True:
            start = max(span.start, tally.compared_from)
            if start >= span.end:
                return
            try:
                self._read_range(ledger, number, span, start)
            except DataLoss:
                log_start = self._topic.log_start(tp)
                if log_start <= start:
                    raise
                tally.compared_from = min(log_start, tally.claim.compared.end)
                ledger.forget(number)
            else:
                return

    def _read_range(self, ledger: Ledger, number: int, span: Span, start: int) -> None:
        tp = TopicPartition(self._topic.name, span.partition)
        isolation = ISOLATION_LEVELS[self._topic.isolation]
        columns = self._data.columns
        memories = Memories()
        with self._topic.open_reader(OffsetRange(tp, self._topic.live.topic_id, start, span.end, isolation)) as reader:
            reader.on_unreadable = lambda found: ledger.add_unreadable(number, found.start, found.end)
            for fetched in reader.responses():
                for batch in fetched.aborted:
                    ledger.add_aborted(number, max(batch.base_offset, start), batch.last_offset)
                try:
                    for chunk in chunks(
                        fetched.data,
                        fetched.batches,
                        memories=memories,
                        on_corrupt=lambda batch, _: ledger.add_unreadable(number, batch.base_offset, batch.next_offset),
                    ):
                        records = decode(
                            chunk,
                            topic=tp.topic,
                            partition=tp.partition,
                            start=start,
                            end=span.end,
                            include_headers="headers" in columns,
                        )
                        if self._is_table:
                            records = within_calendar(records)
                        if self._topic.row_filter:
                            records, removed = self._topic.row_filter.filtered_records(records)
                            self.filtered += removed
                        for part in self._as_exported(tp.partition, records):
                            offsets = part.column("offset").to_numpy()
                            part = formed(part, self._data.header_form)  # noqa: PLW2901 - as exported
                            hashes = record_hashes(part, columns, self._data.decoded_names, self._data.raws)
                            ledger.add_records(number, offsets, hashes)
                except CorruptRecords as error:
                    raise CorruptRecords(f"{tp}: {error}") from error

    def _as_exported(self, partition: int, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the records decoded as those of the export; dead letters are as they were.

        A record that did not fit the columns at the time of its export may fit those of now.
        """
        if self._topic.decoder is None:
            yield records
            return
        letters = self._topic.letters.get(partition)
        if letters is not None:
            is_letter = pa.array(np.isin(records.column("offset").to_numpy(), letters))
            yield records.filter(is_letter)
            records = records.filter(pc.invert(is_letter))
        fitting, misfits, _ = self._topic.decoder.decode(records)
        yield fitting
        if misfits is not None:
            yield misfits

    def _is_odd(self, group: RowGroup) -> bool:
        """Return whether a group may have rows with offsets that were not exported, as far as its statistics tell."""
        if group.partitions is None or group.offsets is None or group.partitions[0] != group.partitions[1]:
            return True
        exported = [tally.claim.exported for tally in self._tallies]
        return not any(
            span.partition == group.partitions[0] and span.start <= group.offsets[0] and group.offsets[1] < span.end
            for span in exported
        )

    def _add_outside(self, rows: Rows) -> None:
        if not self._tallies:
            return
        mask = self._exported.outside(rows.partitions, rows.incarnations, rows.offsets)
        for partition in np.unique(rows.partitions[mask]).tolist():
            offsets = rows.offsets[mask & (rows.partitions == partition)]
            tally = self._tally_of(partition)
            if tally is not None:
                tally.add_outside(len(offsets), int(offsets.min()))

    def _tally_of(self, partition: int) -> Tally | None:
        known = next((tally for tally in self._tallies if tally.claim.exported.partition == partition), None)
        if known is None and len(self._unknown) < UNKNOWN_PARTITIONS_MAX:
            none = Span(partition, 0, 0, 0)
            known = self._unknown.setdefault(partition, Tally(Claim(none, none, [])))
        return known


def _width(span: Span) -> int:
    return span.end - span.start


def _share(span: Span, number: int, count: int) -> Span:
    """Return the offsets of a span in one of `count` rounds."""
    width = _width(span)
    return span._replace(start=span.start + width * number // count, end=span.start + width * (number + 1) // count)


def _overlaps(group: RowGroup, spans: Mapping[int, Span]) -> bool:
    """Return whether the group may have rows of the spans, which are given by partition."""
    low, high = group.partitions or (0, 1 << 31)
    first, last = group.offsets or (0, 1 << 63)
    if low == high:
        possible = [spans[low]] if low in spans else []
    else:
        possible = [span for span in spans.values() if low <= span.partition <= high]
    return any(first < span.end and span.start <= last for span in possible)
