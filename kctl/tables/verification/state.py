"""Compares a table with the current state by key with its topic: computes the state again, and compares row by row.

The topic is read from its beginning up to the exported offsets into a temporary folder of this machine (TMPDIR), as an
export does it.  Both states are then read in parts by the hashes of keys, so that memory does not grow with the table.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kctl.client.settings import ClientSettings
from kctl.errors import ApiError
from kctl.model import TopicPartition
from kctl.tables.commits.existing import ExportedTopic
from kctl.tables.engines.job import check_outcomes
from kctl.tables.exec.decoding.changed_rows import key_ids
from kctl.tables.exec.file_task import FileTask, changes_path
from kctl.tables.exec.reading.fetch import OffsetRange
from kctl.tables.exec.schema.column_types import UNDECODED, Columns, columns_from_json, leaves
from kctl.tables.exec.selection.column_layout import PLAIN_LAYOUT, ColumnLayout
from kctl.tables.exec.selection.columns import IS_CURRENT, schema, state_schema
from kctl.tables.exec.selection.laid_out import as_records, record_schema
from kctl.tables.exec.selection.row_selection import HeaderForm
from kctl.tables.exec.selection.upserts import UpsertOptions
from kctl.tables.exec.targets.damage import damage_as_arrow_error
from kctl.tables.exec.targets.files import DiskFiles, Files
from kctl.tables.exec.task import COLUMNS_KEY, OpenReader, export_file
from kctl.tables.plans.cluster_view import ISOLATION_LEVELS
from kctl.tables.plans.live_topic import LiveLog
from kctl.tables.plans.plan import Isolation
from kctl.tables.upserts.buckets import Bucket, bucket_of_name, key_hashes, select
from kctl.tables.upserts.changed_keys import is_closed_name
from kctl.tables.upserts.rows import has_equal_values
from kctl.tables.upserts.state import StateRequest, with_all_columns, write_state
from kctl.tables.verification.ledger import Difference
from kctl.tables.verification.rows import DIFFERENT, EQUAL, GapRow, VerifiedRange

PART_BYTES = 64 << 20
"""Bytes of files that are compared together."""
PARTS_DEPTH_MAX = 10
DELETED = "the topic no longer has the record"


@dataclass(slots=True)
class _Tally:
    """The result of one partition."""

    topic_rows: int = 0
    table_rows: int = 0
    counts: Counter[Difference] = field(default_factory=Counter)
    first: tuple[int, Difference] | None = None
    deleted: list[int] = field(default_factory=list)
    """Offsets of rows whose records the topic no longer has."""
    not_compared: int = 0

    def add(self, kind: Difference, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self.counts[kind] += 1
            self.first = min(self.first or (offset, kind), (offset, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSource:
    """The topic of a comparison."""

    settings: ClientSettings
    logs: dict[int, LiveLog | ApiError]
    open_reader: OpenReader
    on_progress: Callable[[int], None]


GAPS_MAX = 100


def verify_state(
    files: Files,
    exported: ExportedTopic,
    options: UpsertOptions,
    headers: HeaderForm,
    source: StateSource,
    layout: ColumnLayout = PLAIN_LAYOUT,
) -> list[VerifiedRange]:
    """Return the comparison of each partition; `layout` is that of the files.

    Raises ApiError, and what tasks and `write_state` raise.
    """
    paths = [path for path in exported.paths if not is_closed_name(path)]
    columns, has_headers = _columns(files, paths)
    options = replace(options, history=False)  # topics may not have the records of earlier versions any more
    with tempfile.TemporaryDirectory(prefix="kctl-verify-") as folder:
        own = DiskFiles(Path(folder))
        rows = state_schema(schema(include_headers=has_headers, columns=columns, headers=headers))
        changes = _read_topic(own, exported, options, headers, source, columns, has_headers=has_headers)
        state = write_state(
            own,
            StateRequest(
                changes=changes,
                current=(),
                is_cleared=False,
                place=lambda name: f"state/{exported.topic}{name}.parquet",
                schema=rows,
                columns=columns,
                options=options,
                compression="none",
                layout=layout,
            ),
        )
        starts = {number: log.start for number, log in source.logs.items() if isinstance(log, LiveLog)}
        tallies: dict[int, _Tally] = {partition: _Tally() for partition in exported.position.partitions}
        sides = (
            _Side(own, [file.path for file in state.files], rows, options),
            _Side(files, paths, rows, options),
        )
        total = sum(side.size() for side in sides)
        depth = min((total // PART_BYTES).bit_length(), PARTS_DEPTH_MAX)
        for bits in range(1 << depth):
            bucket = Bucket(depth, bits)
            _compare(sides[0].rows(bucket), sides[1].rows(bucket), options, starts, tallies)
        ends = {partition: at.offset for partition, at in exported.position.partitions.items()}
        return [
            _row(exported.topic, partition, starts.get(partition, 0), ends[partition], tally)
            for partition, tally in sorted(tallies.items())
        ]


def _columns(files: Files, paths: Sequence[str]) -> tuple[Columns, bool]:
    """Return the decodings of the file with most columns, and whether there are headers."""
    found = []
    for path in paths:
        with damage_as_arrow_error(), files.open(path) as file:
            columns = pq.read_schema(file)
        text = (columns.metadata or {}).get(COLUMNS_KEY.encode(), b"{}")
        found.append((columns_from_json(json.loads(text)), "headers" in record_schema(columns).names))
    return max(found, key=lambda decoded: _column_count(decoded[0]), default=(UNDECODED, False))


def _column_count(columns: Columns) -> int:
    return len(leaves(columns.key.type, "key") + leaves(columns.value.type, "value"))


def _read_topic(
    own: Files,
    exported: ExportedTopic,
    options: UpsertOptions,
    headers: HeaderForm,
    source: StateSource,
    columns: Columns,
    *,
    has_headers: bool,
) -> list[str]:
    isolation = ISOLATION_LEVELS[exported.isolation or Isolation.READ_COMMITTED]
    outcomes = {}
    done = 0
    for partition, at in sorted(exported.position.partitions.items()):
        log = source.logs.get(partition)
        if isinstance(log, ApiError):
            raise log
        if log is None or log.start >= at.offset:
            continue
        tp = TopicPartition(exported.topic, partition)
        task = FileTask(
            settings=source.settings,
            target=own.location,
            path=changes_path(f"{partition}.parquet"),
            ranges=(OffsetRange(tp, exported.position.topic_id, log.start, at.offset, isolation),),
            include_headers=has_headers,
            headers=headers,
            compression="none",
            columns=columns,
            upsert=options,
            keeps_bad=True,
            may_skip=True,
        )

        @contextlib.contextmanager
        def readers(_: FileTask) -> Iterator[OpenReader]:
            yield source.open_reader

        outcomes[task.path] = export_file(task, files=own, open_readers=readers)
        done += at.offset - log.start
        source.on_progress(done)
    check_outcomes(outcomes)
    return [file.path for outcome in outcomes.values() for file in outcome.written]


class _Side:
    """The files of one of the two states."""

    def __init__(self, files: Files, paths: Sequence[str], rows: pa.Schema, options: UpsertOptions) -> None:
        self._files = files
        self._paths = paths
        self._schema = rows
        self._options = options

    def size(self) -> int:
        return sum(self._files.size(path) or 0 for path in self._paths)

    def rows(self, bucket: Bucket) -> pa.Table:
        """Return the rows of the keys of a bucket."""
        found = [self._schema.empty_table()]
        for path in self._paths:
            held = bucket_of_name(path)
            if held is not None and not (held.has(bucket) or bucket.has(held)):
                continue
            with damage_as_arrow_error(), self._files.open(path) as file:
                table = pq.ParquetFile(file, pre_buffer=False).read(use_threads=False).combine_chunks()
                whole = [pa.Table.from_batches([_current(as_records(batch))]) for batch in table.to_batches()]
                rows = with_all_columns(pa.concat_tables(whole), self._schema) if whole else found[0]
            if held is None or not bucket.has(held):
                ids, _ = key_ids(rows, self._options)
                rows = rows.filter(pa.array(select(bucket, key_hashes(pc.fill_null(ids, b"")))))
            found.append(rows)
        return pa.concat_tables(found).combine_chunks()


def _current(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without earlier versions."""
    return rows.filter(rows.column(IS_CURRENT)) if IS_CURRENT in rows.schema.names else rows


def _compare(
    expected: pa.Table,
    rows: pa.Table,
    options: UpsertOptions,
    starts: dict[int, int],
    tallies: dict[int, _Tally],
) -> None:
    """Compare the rows of some keys."""
    ids, _ = key_ids(expected, options)
    row_ids, _ = key_ids(rows, options)
    encoded = row_ids.dictionary_encode(null_encoding="encode").indices
    first = pc.index_in(encoded, value_set=encoded)
    is_twice = pc.not_equal(first, pa.array(range(len(row_ids)), first.type))
    places = pc.index_in(row_ids, value_set=ids)
    is_unexpected = places.is_null()
    _add(tallies, Difference.TWICE, rows.filter(is_twice))
    unexpected = rows.filter(pc.and_(is_unexpected, pc.invert(is_twice)))
    for partition, offset in _places(unexpected):
        tally = tallies.setdefault(partition, _Tally())
        if offset < starts.get(partition, 0):
            tally.not_compared += 1
            tally.deleted.append(offset)
        else:
            tally.add(Difference.UNEXPECTED, [offset])
    _add(tallies, Difference.MISSING, expected.filter(pc.invert(pc.is_in(ids, value_set=row_ids))))
    is_compared = pc.and_(pc.invert(is_unexpected), pc.invert(is_twice))
    compared = rows.filter(is_compared)
    wanted = expected.take(places.filter(is_compared))
    _add(tallies, Difference.DIFFERENT, compared.filter(pc.invert(has_equal_values(compared, wanted))))
    for table, name in ((expected, "topic_rows"), (rows, "table_rows")):
        for partition, count in Counter(table.column("partition").to_pylist()).items():
            tally = tallies.setdefault(partition, _Tally())
            setattr(tally, name, getattr(tally, name) + count)


def _places(rows: pa.Table) -> Iterator[tuple[int, int]]:
    return zip(rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), strict=True)


def _add(tallies: dict[int, _Tally], kind: Difference, rows: pa.Table) -> None:
    for partition, offset in _places(rows):
        tallies.setdefault(partition, _Tally()).add(kind, [offset])


def _row(topic: str, partition: int, start: int, end: int, tally: _Tally) -> VerifiedRange:
    return VerifiedRange(
        topic=topic,
        partition=partition,
        start=start,
        end=max(start, end),
        status=DIFFERENT if tally.first else EQUAL,
        topic_records=tally.topic_rows,
        table_records=tally.table_rows,
        topic_hash=None,
        table_hash=None,
        missing=tally.counts[Difference.MISSING],
        twice=tally.counts[Difference.TWICE],
        different=tally.counts[Difference.DIFFERENT],
        unexpected=tally.counts[Difference.UNEXPECTED],
        not_compared=tally.not_compared,
        offset=tally.first[0] if tally.first else None,
        difference=tally.first[1].value if tally.first else None,
        reason=DELETED if tally.not_compared else None,
        gaps=[GapRow(offset, offset + 1, DELETED) for offset in sorted(tally.deleted)[:GAPS_MAX]],
    )
