"""Reads the records of topics, alone or in a consumer group, and shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.records.latest import read_last
from kctl.admin.topics.offsets import Anchor, offset_ranges, partitions_of, resolve
from kctl.client.consuming.consumer import Consumer
from kctl.client.consuming.fetching.batches import CHUNKS, FetchLimits
from kctl.client.consuming.following import TopicFollower
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import LogTruncated, reset_positions
from kctl.commands.consume.group import group_reading, read_in_group
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.values import format_time, known_time
from kctl.commands.reading.items import (
    RecordRow,
    TopicRecordRow,
    csv_rows,
    decoded_item,
    plain_rows,
    record_item,
    record_lines,
    record_row,
)
from kctl.commands.reading.options import (
    CONTINUE_REMEDY,
    ScanProgress,
    drop_finished,
    inside,
    reachable,
    select_partitions,
    starts,
)
from kctl.commands.reading.topics import named_topics
from kctl.errors import MalformedRequest, PositionLost
from kctl.output.console import Format
from kctl.output.quantities import counted
from kctl.records.header import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence

    from kctl.admin.topics.offsets import OffsetRange, OffsetSpec
    from kctl.client.cluster import ClusterClient
    from kctl.commands.consume.presenting import DecodedRecord, Presenting, ToText
    from kctl.commands.frame.invocation import Invocation
    from kctl.commands.reading.options import Selecting
    from kctl.commands.reading.topics import TopicSelection
    from kctl.model import TopicPartition
    from kctl.output.console import Console, RowStream

    Write = Callable[[TopicPartition, Record], bool]
    """Shows one record; False if it was skipped."""
    Show = Callable[[TopicPartition, DecodedRecord], bool]
    """Shows one record that has been decoded and masked; False if it was skipped."""
    ShowAll = Callable[[TopicPartition, Sequence[Record]], None]
    """Shows records that are neither decoded nor masked nor skipped."""


RecordText = Callable[[Record], str | None]
"""The text of a record; None if it is left out.  Raises MalformedRequest for bytes that do not decode."""
_LINES_AT_ONCE = 1000


class Reading(NamedTuple):
    """The partitions to read, their ranges of offsets, and the form of output."""

    topics: TopicSelection
    lower: OffsetSpec
    upper: OffsetSpec | None
    """Exclusive; None for the current end, unless `follows`."""
    records_max: int | None
    partitions: list[int] | None
    """None for all partitions."""
    follows: bool
    """Wait for more records at the end."""
    group: str | None
    assignor: str | None
    reads_committed: bool
    formatter: str | None
    formatter_text: RecordText | None
    """What is written for a record of the formatter; None for rows."""
    presenting: Presenting
    """Decodes and masks records before they are selected."""
    text: ToText | None
    """How records are written as text; None for rows."""
    selecting: Selecting
    expected: int | None
    """The number of records to show; another number is exit status 3."""
    limits: FetchLimits = CHUNKS
    """The limits of fetches without a group."""
    has_reset: bool = True
    """False for auto.offset.reset=none."""
    last: int | None = None
    """Show only this number of selected records, those with the latest timestamps; None for all."""
    continues_after_truncation: bool = False
    """Whether reading continues where the histories part if a log no longer has the records before a position."""


class DecodedRecordItem(NamedTuple):
    """A record of an internal topic; key and value are JSON objects."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    time: str | None
    key: object
    value: object


class Source(NamedTuple):
    """The partitions to read."""

    topics: list[str]
    held: dict[TopicPartition, OffsetRange]
    """The first and the last offset of each partition that can be read."""
    bounds: dict[TopicPartition, tuple[int, int | None]]
    """Where to start and where to stop; empty for a group, None for a partition that is followed."""
    isolation: IsolationLevel


class Writers(NamedTuple):
    """The functions that show records in one form of output."""

    write: Show
    flush: Callable[[], None]
    write_all: ShowAll | None = None


class _Showing:
    """Shows the selected records, and counts them."""

    def __init__(self, reading: Reading, writers: Writers, progress: ScanProgress) -> None:
        self.count = 0
        self._presenting = reading.presenting
        self._matches = reading.selecting.records.matches
        self._selects_all = reading.selecting.records.selects_all
        self._shows_all = self._selects_all and reading.presenting.changes_nothing
        self._writers = writers
        self._progress = progress

    def is_selected(self, tp: TopicPartition, record: Record) -> bool:
        """Return whether `show` would select the record."""
        return self._selects_all or self._matches(tp, self._presenting(tp, record).record)

    def show_selected(self, tp: TopicPartition, record: Record) -> None:
        """Show a record for which `is_selected` has returned True, and which was decoded then if there is a filter."""
        self._show(tp, self._presenting(tp, record, counts_failures=self._selects_all))

    def show(self, tp: TopicPartition, record: Record) -> bool:
        """Show the record if it is selected; False if it was not shown."""
        decoded = self._presenting(tp, record)
        return self._matches(tp, decoded.record) and self._show(tp, decoded)

    def _show(self, tp: TopicPartition, decoded: DecodedRecord) -> bool:
        self._progress.hide()
        is_shown = self._writers.write(tp, decoded)
        self.count += is_shown
        return is_shown

    def show_several(self, tp: TopicPartition, records: Sequence[Record], count_max: int | None) -> int:
        """Show the selected records, at most `count_max`; return their number."""
        write_all = self._writers.write_all
        before = self.count
        if write_all is None or not self._shows_all:
            for record in records:
                if self.count - before == count_max:
                    break
                self.show(tp, record)
            return self.count - before
        chosen = records[:count_max]
        self._progress.hide()
        write_all(tp, chosen)
        self.count += len(chosen)
        return len(chosen)


async def read_topics(run: Invocation, client: ClusterClient, reading: Reading) -> ExitStatus:
    """Show the records; FAILED if some of the partitions could not be read, UNMET if their number is not the expected.

    Raises ApiError, KctlError and UsageError.
    """
    isolation = IsolationLevel.READ_COMMITTED if reading.reads_committed else IsolationLevel.READ_UNCOMMITTED
    with client.one_deadline(follows_elections=True):
        names = await _look_up_topics(run, client, reading)
        tps = await _selected_partitions(client, names, reading)
        held = await reachable(run.console, client, tps, isolation)
        bounds = {} if reading.group is not None else await _bounds(run, client, held, reading)
    source = Source(names, held, bounds, isolation)
    if reading.formatter_text is not None:
        writers = Writers(_formatter_writer(run, reading.formatter_text), run.console.flush)
        shown = await _show_records(run, client, reading, source, writers)
    elif reading.text is not None:
        shown = await _show_records(run, client, reading, source, _text_writers(run.console, reading.text))
    else:
        with run.console.stream(TopicRecordRow if reading.topics.has_several else RecordRow) as stream:
            shown = await _show_records(run, client, reading, source, _row_writers(run, stream, reading))
    reading.selecting.warn_of_shortened(run.console)
    reading.presenting.summarise()
    if len(held) != len(tps) or reading.presenting.has_failed:
        return ExitStatus.FAILED
    if reading.expected is not None and shown != reading.expected:
        run.console.note(
            f"{counted(shown, 'record was', 'records were')} shown, {counted(reading.expected, 'was', 'were')} expected"
        )
        return ExitStatus.UNMET
    return ExitStatus.DONE


async def _look_up_topics(run: Invocation, client: ClusterClient, reading: Reading) -> list[str]:
    """Return the names of the topics.  Raises KctlError if none matches a pattern, unless --follow awaits one."""
    names = await reading.topics.look_up(client)
    if reading.topics.pattern is not None and names:
        run.console.note(f"reading {named_topics(names)}")
    elif not names and not reading.follows:
        raise reading.topics.no_match()
    elif not names:
        run.console.note(f"no topic matches {reading.topics.text}; waiting until one is created")
    return names


async def _selected_partitions(client: ClusterClient, names: list[str], reading: Reading) -> list[TopicPartition]:
    by_topic: dict[str, list[TopicPartition]] = {name: [] for name in names}
    for tp in await partitions_of(client, names) if names else ():
        by_topic[tp.topic].append(tp)
    key = reading.selecting.key_for_partition
    return [tp for tps in by_topic.values() for tp in select_partitions(tps, reading.partitions, key)]


async def _show_records(
    run: Invocation, client: ClusterClient, reading: Reading, source: Source, writers: Writers
) -> int:
    """Show the selected records of all partitions; return their number."""
    bounds = source.bounds
    ends = {tp: end for tp, (_, end) in bounds.items() if end is not None}
    with ScanProgress(
        run.console, {tp: (bounds[tp][0], max(bounds[tp][0], end)) for tp, end in ends.items()}
    ) as progress:
        showing = _Showing(reading, writers, progress)
        if reading.group is not None:
            await _read_in_group(run, client, reading, reading.group, source, showing.show, writers.flush)
            return showing.count
        begins = {tp: start for tp, (start, _) in bounds.items()}
        if reading.last is not None:
            begins = await _show_last(client, reading, source, showing)
            writers.flush()
            if not reading.follows:
                return showing.count
        consumer = Consumer(client, begins, limits=reading.limits, isolation=source.isolation)
        follower = _follower(run, client, consumer, reading, source, ends) if reading.follows else None
        next_records = consumer.poll if follower is None else follower.poll
        awaits_new = reading.topics.pattern is not None and reading.upper is None

        def is_complete() -> bool:
            drop_finished(consumer, ends)
            is_waiting = follower is not None and (awaits_new or follower.awaits_topics)
            return not consumer.positions and not is_waiting

        def polled() -> None:
            if reading.follows:
                writers.flush()
            else:
                progress.update(consumer.positions, found=showing.count)

        async def poll() -> list[tuple[TopicPartition, list[Record]]]:
            try:
                return await next_records()
            except LogTruncated as truncated:
                if not reading.continues_after_truncation:
                    raise PositionLost(f"{truncated}: {CONTINUE_REMEDY}") from truncated
                progress.hide()
                await _continue_after(run, client, reading, source, consumer, truncated, ends)
                return []

        await _copy(is_complete, poll, showing.show_several, ends, reading.records_max, polled)
        return showing.count


async def _show_last(
    client: ClusterClient, reading: Reading, source: Source, showing: _Showing
) -> dict[TopicPartition, int]:
    """Show the last records before the end of each partition, or before --until; return where they end."""
    assert reading.last is not None
    ends = {tp: range_.end for tp, range_ in source.held.items()}
    ends.update((tp, min(end, ends[tp])) for tp, (_, end) in source.bounds.items() if end is not None)
    bounds = {tp: (start, ends[tp]) for tp, (start, _) in source.bounds.items()}
    try:
        latest = await read_last(
            client, bounds, reading.last, showing.is_selected, limits=reading.limits, isolation=source.isolation
        )
    except LogTruncated as truncated:
        raise PositionLost(f"{truncated}: start the command again") from truncated
    for tp, record in latest:
        showing.show_selected(tp, record)
    return {tp: max(bounds[tp][0], end) for tp, end in ends.items()}


def _follower(
    run: Invocation,
    client: ClusterClient,
    consumer: Consumer,
    reading: Reading,
    source: Source,
    ends: dict[TopicPartition, int],
) -> TopicFollower:
    """Read partitions that are added, and topics that are created (again), from the start; add to `ends`."""
    requested, key = reading.partitions, reading.selecting.key_for_partition

    async def begin(tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        held = await offset_ranges(client, tps)
        if reading.upper is not None:
            ends.update(await resolve(client, held, reading.upper))
        return {tp: range_.start for tp, range_ in held.items()}

    return TopicFollower(
        client,
        consumer,
        source.topics,
        select=lambda tps: select_partitions(tps, requested, key),
        begin=begin,
        note=run.console.warn,
        matches=None if reading.topics.pattern is None else reading.topics.matching,
    )


async def _continue_after(
    run: Invocation,
    client: ClusterClient,
    reading: Reading,
    source: Source,
    consumer: Consumer,
    truncated: LogTruncated,
    ends: dict[TopicPartition, int],
) -> None:
    """Set positions to where the histories part, and ends to the ends of the logs as they are now."""
    positions = await reset_positions(
        truncated.divergences, lambda tps: starts(client, tps, reading.lower, source.isolation)
    )
    for divergence in truncated.divergences:
        run.console.warn(f"{divergence}; reading from {positions[divergence.tp].offset}")
    consumer.restart(positions)
    if renewed := [tp for tp in positions if tp in ends]:
        held = await offset_ranges(client, renewed, isolation=source.isolation)
        ends.update((tp, range_.end) for tp, range_ in held.items())


async def _read_in_group(
    run: Invocation,
    client: ClusterClient,
    reading: Reading,
    group: str,
    source: Source,
    write: Write,
    flush: Callable[[], None],
) -> None:

    in_group = group_reading(
        group,
        reading.topics,
        run.client_properties(),
        assignor=reading.assignor,
        lower=reading.lower,
        isolation=source.isolation,
        ends=None if reading.follows else {tp: range_.end for tp, range_ in source.held.items()},
        records_max=reading.records_max,
        continues_after_truncation=reading.continues_after_truncation,
        has_reset=reading.has_reset,
    )
    await read_in_group(client, run.console, in_group, write, flush)


async def _bounds(
    run: Invocation, client: ClusterClient, held: dict[TopicPartition, OffsetRange], reading: Reading
) -> dict[TopicPartition, tuple[int, int | None]]:
    """Start and end (None for never) of each partition, moved into its range."""
    requested = await resolve(client, held, reading.lower)
    ends = await resolve(client, held, reading.upper) if reading.upper is not None else {}
    bounds: dict[TopicPartition, tuple[int, int | None]] = {}
    for tp, range_ in held.items():
        start = inside(range_, requested[tp])
        if start != requested[tp] and reading.lower.anchor is Anchor.ZERO:
            bounds_text = f"{range_.start} to {range_.end}"
            run.console.note(f"{tp}: offset {requested[tp]} lies outside of {bounds_text}; reading from {start}")
        end = ends.get(tp)
        if not reading.follows:
            end = range_.end if end is None else min(end, range_.end)
        bounds[tp] = (start, end)
    return bounds


async def _copy(
    is_complete: Callable[[], bool],
    poll: Callable[[], Awaitable[list[tuple[TopicPartition, list[Record]]]]],
    write: Callable[[TopicPartition, Sequence[Record], int | None], int],
    ends: dict[TopicPartition, int],
    max_records: int | None,
    polled: Callable[[], None],
) -> None:
    """Show records until all are complete or `records_max` is reached; calls `polled` after each poll.

    `write` shows at most the given number of records and returns how many it has shown.
    """
    left = max_records
    while left != 0 and not is_complete():
        for tp, records in await poll():
            end = ends.get(tp)
            count = write(tp, records if end is None else _before(records, end), left)
            left = None if left is None else left - count
        polled()


def _before(records: list[Record], end: int) -> list[Record]:
    return records if records[-1].offset < end else [record for record in records if record.offset < end]


def _row_writers(run: Invocation, stream: RowStream, reading: Reading) -> Writers:
    """Return the functions that show records as rows or JSON."""
    if reading.formatter:
        return Writers(_decoding_writer(run, stream, reading.formatter), stream.flush)
    write_all = None
    has_topics = reading.topics.has_several
    if run.console.format is Format.JSONL:
        write_all = _line_writer(run.console)
    elif has_topics:  # rows of several topics have one more column
        pass
    elif run.console.format is Format.PLAIN and not run.console.is_human:
        write_all = _rows_writer(run.console, plain_rows)
    elif run.console.format is Format.CSV:
        write_all = _rows_writer(run.console, csv_rows)
    show = _writer(run, stream, decodes=reading.presenting.decodes, has_topics=has_topics)
    return Writers(show, stream.flush, write_all)


def _writer(run: Invocation, stream: RowStream, *, decodes: bool, has_topics: bool) -> Show:
    """Return the function that shows each record as a row."""

    def write_item(tp: TopicPartition, decoded: DecodedRecord) -> bool:
        stream.write(record_item(tp, decoded.record))
        return True

    def write_decoded(tp: TopicPartition, decoded: DecodedRecord) -> bool:
        record = decoded.record
        stream.write(decoded_item(tp, record, decoded.key_schema_id, decoded.value_schema_id))
        return True

    def write_row(tp: TopicPartition, decoded: DecodedRecord) -> bool:
        row = record_row(tp, decoded.record)
        stream.write(TopicRecordRow(tp.topic, *row) if has_topics else row)
        return True

    if not run.console.is_machine_readable:
        return write_row
    return write_decoded if decodes else write_item


def _line_writer(console: Console) -> ShowAll:
    """Return the function that shows records as jsonl."""

    def write_all(tp: TopicPartition, records: Sequence[Record]) -> None:
        for start in range(0, len(records), _LINES_AT_ONCE):
            console.encoded_lines(record_lines(tp, records[start : start + _LINES_AT_ONCE]))

    return write_all


def _rows_writer(console: Console, rows_of: Callable[[TopicPartition, Sequence[Record]], str]) -> ShowAll:
    """Return the function that shows records as rows of plain or csv."""

    def write_all(tp: TopicPartition, records: Sequence[Record]) -> None:
        for start in range(0, len(records), _LINES_AT_ONCE):
            console.rows(rows_of(tp, records[start : start + _LINES_AT_ONCE]))

    return write_all


def _text_writers(console: Console, to_text: ToText) -> Writers:
    """Return the functions that write records as text."""

    def write(tp: TopicPartition, decoded: DecodedRecord) -> bool:
        write_all(tp, [decoded.record])
        return True

    def write_all(tp: TopicPartition, records: Sequence[Record]) -> None:
        for start in range(0, len(records), _LINES_AT_ONCE):
            for text in to_text(tp, records[start : start + _LINES_AT_ONCE]):
                console.data(text)

    return Writers(write, console.flush, write_all)


def _decoding_writer(run: Invocation, stream: RowStream, formatter: str) -> Show:
    """Return the function that shows the decoded records of one kind."""
    from kctl.records.internal.entries import formatted_record  # noqa: PLC0415 - takes long to import

    def write(tp: TopicPartition, shown: DecodedRecord) -> bool:
        record = shown.record
        try:
            decoded = formatted_record(formatter, record)
        except MalformedRequest as error:
            run.console.warn(f"{tp}: the record at offset {record.offset} does not decode: {error}")
            return False
        if decoded is None:
            return False
        timestamp_ms, time_text = known_time(record.timestamp), format_time(record.timestamp)
        stream.write(DecodedRecordItem(tp.topic, tp.partition, record.offset, timestamp_ms, time_text, *decoded))
        return True

    return write


def _formatter_writer(run: Invocation, to_text: RecordText) -> Show:
    """Return the function that writes the records of one kind as text."""

    def write(tp: TopicPartition, shown: DecodedRecord) -> bool:
        record = shown.record
        try:
            text = to_text(record)
        except MalformedRequest as error:
            run.console.warn(f"{tp}: the record at offset {record.offset} does not decode: {error}")
            return False
        if text is not None:
            run.console.verbatim(text)
        return text is not None

    return write
