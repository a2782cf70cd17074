"""Performs the rounds of a comparison.

A round has the same share of the offsets of every partition, because exports that run often write files with a little
of each partition: so most files are read in one round only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kctl.limits import VERIFIED_OFFSETS_PER_ROUND_MAX
from kctl.model import TopicPartition
from kctl.spark.cluster_view import ISOLATION_LEVELS
from kctl.spark.exec.batch_decoder import BatchDecoder
from kctl.spark.exec.chunk import Memories, chunks
from kctl.spark.exec.columns import within_calendar
from kctl.spark.exec.decode import decode
from kctl.spark.exec.fetch import OffsetRange
from kctl.spark.exec.headers import formed
from kctl.spark.exec.outcome import CorruptRecords, DataLoss
from kctl.spark.exec.rows import RowFilter
from kctl.spark.exec.task import OpenReader
from kctl.spark.live_topic import LiveTopic
from kctl.spark.plan import Isolation
from kctl.spark.verification.claims import Claim
from kctl.spark.verification.data_files import DataFiles, RowGroup, Rows
from kctl.spark.verification.ledger import AllowedGaps, Ledger, Span, SpanIndex
from kctl.spark.verification.record_hash import record_hashes
from kctl.spark.verification.tally import GAPS_MAX, Tally

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
    """Of an export with variants."""
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
        """Compares all offsets.  Raises CorruptRecords, UnreadableFile, DataLoss, ApiError, ClusterUnreachable."""
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
        """Enters the records of a span; if the start of the log passes it meanwhile, only those that are left."""
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
                        for part in self._as_exported(records):
                            offsets = part.column("offset").to_numpy()
                            part = formed(part, self._data.header_form)  # noqa: PLW2901 - as exported
                            ledger.add_records(number, offsets, record_hashes(part, columns))
                except CorruptRecords as error:
                    raise CorruptRecords(f"{tp}: {error}") from error

    def _as_exported(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The records with variants if the export has them; dead letters are as they were."""
        if self._topic.decoder is None:
            yield records
            return
        fitting, misfits = self._topic.decoder.decode(records)
        yield fitting
        if misfits is not None:
            yield misfits

    def _is_odd(self, group: RowGroup) -> bool:
        """Whether a group may have rows with offsets that were not exported, as far as its statistics tell."""
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
    """The offsets of a span in one of `count` rounds."""
    width = _width(span)
    return span._replace(start=span.start + width * number // count, end=span.start + width * (number + 1) // count)


def _overlaps(group: RowGroup, spans: Mapping[int, Span]) -> bool:
    """Whether the group may have rows of the spans, which are given by partition."""
    low, high = group.partitions or (0, 1 << 31)
    first, last = group.offsets or (0, 1 << 63)
    if low == high:
        possible = [spans[low]] if low in spans else []
    else:
        possible = [span for span in spans.values() if low <= span.partition <= high]
    return any(first < span.end and span.start <= last for span in possible)
