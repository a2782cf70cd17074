"""Reads records in a format, as the bytes arrive.  Pure."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kctl.commands.frame.options.values import known_time
from kctl.commands.record_format.syntax import (
    NULL_ESCAPED,
    NUMBER_BYTES_MAX,
    Fixed,
    HeadersPiece,
    NumberPiece,
    Piece,
    TextForm,
    TextPiece,
    TimePiece,
    read_time,
)
from kctl.commands.record_format.writing import Step, check_readable, steps_of
from kctl.errors import UsageError
from kctl.output.quantities import INT32_MAX, counted

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record
from kctl.limits import Subject, bound

FORMATTED_RECORD_BYTES_MAX = bound(
    Subject.NAMED_FILES,
    "text of one record that `kctl produce -f` reads",
    256 << 20,
    "bytes",
    on_excess="the command fails",
)
FORMATTED_HEADERS_MAX = bound(
    Subject.NAMED_FILES,
    "headers of one record that `kctl produce -f` reads",
    100_000,
    "headers",
    on_excess="the command fails",
)


# A record that was read from text.


class ReadRecord(NamedTuple):
    """A record as a JSON object or a format contains it; None for missing fields."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None
    topic: str | None = None


_Wait = Generator[None, None, bytes]
"""Suspends until more bytes have arrived; returns some of them."""
_TIME_BYTES_MAX = 40


class FormatReader:
    """Splits bytes into records.

    The delimiter at the end of the format may be missing after the last record.  `null_marker` is the text of a null
    key or value without a size.  Raises UsageError for a format that cannot be read.
    """

    def __init__(self, pieces: tuple[Piece, ...], null_marker: bytes | None = None) -> None:
        check_readable(pieces)
        self._steps = steps_of(pieces)
        self._plain = _plain_pattern(self._steps)
        self._null_marker = null_marker
        self._input = _Input()
        self._reading: Generator[None, None, ReadRecord] | None = None

    def feed(self, data: bytes) -> Iterator[ReadRecord]:
        """Return the records that are complete with these bytes.  Raises UsageError for bytes not in the format."""
        self._input.add(data)
        return self._records()

    def finish(self) -> Iterator[ReadRecord]:
        """Return the last record, if its delimiter is missing.  Raises UsageError if the input ends within a record."""
        self._input.has_ended = True
        return self._records()

    def _records(self) -> Iterator[ReadRecord]:
        while True:
            if self._reading is None:
                if self._plain is not None:
                    yield from self._plain_records(self._plain)
                if not self._input.left:
                    return
                self._input.begin_record()
                self._reading = _record(self._input, self._steps, self._null_marker)
            try:
                next(self._reading)
            except StopIteration as end:
                self._reading = None
                yield end.value
            else:
                return

    def _plain_records(self, pattern: re.Pattern[bytes]) -> Iterator[ReadRecord]:
        """Yield the next records, as far as they are complete: as `_record` reads them, with fewer calls."""
        key, value = pattern.groupindex.get("key", 0) - 1, pattern.groupindex.get("value", 0) - 1
        null_marker = self._null_marker
        while (texts := self._input.matching(pattern)) is not None:
            read = [None if text == null_marker else text for text in (*texts, null_marker)]
            yield ReadRecord(read[key], read[value], (), None, None)


class _Input:
    """The bytes that have arrived and are not part of a record yet."""

    def __init__(self) -> None:
        self.has_ended = False
        self._buffer = bytearray()
        self._position = 0
        self._record_start = 0

    @property
    def left(self) -> int:
        return len(self._buffer) - self._position

    def add(self, data: bytes) -> None:
        self._record_start -= self._position
        del self._buffer[: self._position]
        self._position = 0
        self._buffer += data

    def begin_record(self) -> None:
        self._record_start = self._position

    def exactly(self, size: int) -> _Wait:
        """Read the next `size` bytes."""
        self._check_size(size)
        while self.left < size:
            if self.has_ended:
                self._end()
            yield
        return self._take(size)

    def until(self, delimiter: bytes, *, least: int = 0, most: int | None = None, is_last: bool = False) -> _Wait:
        """Read the bytes before the next delimiter, after the first `least` of them.

        The delimiter itself is dropped.  It may be missing at the end of the input if `is_last`.
        """
        searched = least
        while True:
            end = self._buffer.find(delimiter, self._position + searched)
            if end >= 0:
                data = self._take(end - self._position)
                self._position += len(delimiter)
                return data
            searched = max(least, self.left - len(delimiter) + 1)
            if most is not None and self.left > most + len(delimiter):
                raise UsageError(f"{_shown(delimiter)} expected after at most {counted(most, 'byte')}")
            self._check_size(self.left)
            if self.has_ended:
                if is_last:
                    return self._take(self.left)
                self._end(delimiter)
            yield

    def matching(self, pattern: re.Pattern[bytes]) -> tuple[bytes, ...] | None:
        """Return the groups of the pattern and take its bytes, if the next bytes match it."""
        match = pattern.match(self._buffer, self._position)
        if match is None:
            return None
        self._position = match.end()
        return match.groups()

    def _take(self, size: int) -> bytes:
        data = bytes(self._buffer[self._position : self._position + size])
        self._position += size
        return data

    def _check_size(self, size: int) -> None:
        if self._position - self._record_start + size > FORMATTED_RECORD_BYTES_MAX:
            raise UsageError(f"longer than {FORMATTED_RECORD_BYTES_MAX:,} bytes, the greatest length of a record")

    def _end(self, expected: bytes = b"") -> NoReturn:
        raise UsageError(f"the input ends within the record{f', before {_shown(expected)}' if expected else ''}")


def _record(source: _Input, steps: list[Step], null_marker: bytes | None) -> Generator[None, None, ReadRecord]:
    fields = yield from _fields(source, steps, null_marker, is_whole=True)
    partition, timestamp_ms = fields.numbers.get("partition"), fields.numbers.get("timestamp")
    if partition is not None and not 0 <= partition <= INT32_MAX:
        raise UsageError(f"the partition is {partition}, not a number from 0 to {INT32_MAX}")
    return ReadRecord(
        fields.texts.get("key"),
        fields.texts.get("value"),
        tuple(fields.headers),
        partition,
        None if timestamp_ms is None else known_time(timestamp_ms),
    )


def _plain_pattern(steps: list[Step]) -> re.Pattern[bytes] | None:
    """Match a record of texts without sizes and forms, each with a delimiter; None for other formats.

    The groups are atomic: each text ends at the first delimiter, as `_Input.until` reads it.
    """
    parts = []
    for index, step in enumerate(steps):
        match step.piece:
            case Fixed() if index % 2:
                continue
            case TextPiece(_, field, TextForm.RAW) if not index % 2 and not step.is_sized and step.delimiter:
                parts.append(b"(?>(?P<%b>.*?)%b)" % (field.encode(), re.escape(step.delimiter)))
            case _:
                return None
    return re.compile(b"".join(parts), re.DOTALL)


class _Found:
    def __init__(self) -> None:
        self.texts: dict[str, bytes | None] = {}
        self.numbers: dict[str, int] = {}
        self.headers: list[tuple[str, bytes | None]] = []


def _fields(
    source: _Input, steps: list[Step], null_marker: bytes | None, *, is_whole: bool
) -> Generator[None, None, _Found]:
    """Read the values of the steps; `is_whole` unless they are those of a header."""
    fields = _Found()
    is_delimited = False
    may_lack_end = is_whole and len(steps) > 1 and isinstance(steps[-1].piece, Fixed)
    for index, step in enumerate(steps, 1):
        if not isinstance(step.piece, Fixed):
            is_delimited = yield from _field(
                source, step, fields, null_marker, is_last=may_lack_end and index == len(steps) - 1
            )
        elif is_delimited:
            is_delimited = False
        else:
            yield from _expected(source, step.piece.data, is_last=may_lack_end and index == len(steps))
    return fields


def _expected(source: _Input, data: bytes, *, is_last: bool) -> Generator[None, None, None]:
    while is_last and not source.left:
        if source.has_ended:
            return
        yield
    given = yield from source.exactly(len(data))
    if given != data:
        raise UsageError(f"{_shown(data)} expected, not {_shown(given)}")


def _field(
    source: _Input, step: Step, fields: _Found, null_marker: bytes | None, *, is_last: bool
) -> Generator[None, None, bool]:
    """Add the value of the step to `found`; return whether its delimiter was read too."""
    delimiter = step.delimiter
    match step.piece:
        case NumberPiece(_, field, form) if form.is_fixed:
            fields.numbers[field] = form.read((yield from source.exactly(form.width)))
            return False
        case NumberPiece(_, field, form):
            data = yield from source.until(delimiter, least=1, most=NUMBER_BYTES_MAX + 1, is_last=is_last)
            fields.numbers[field] = form.read(data)
        case TimePiece():
            timestamp_ms = read_time((yield from source.until(delimiter, most=_TIME_BYTES_MAX, is_last=is_last)))
            fields.numbers["timestamp"] = -1 if timestamp_ms is None else timestamp_ms
        case TextPiece(_, field, form) if step.is_sized:
            size = fields.numbers[f"{field} size"]
            fields.texts[field] = None if size < 0 else form.read((yield from source.exactly(form.size(size) or 0)))
            return False
        case TextPiece(_, field, form):
            data = yield from source.until(delimiter, is_last=is_last)
            is_null = data == (NULL_ESCAPED if form is TextForm.ESCAPE else null_marker)
            fields.texts[field] = None if is_null else form.read(data)
        case HeadersPiece(_, None):
            fields.headers = _joined_headers((yield from source.until(delimiter, is_last=is_last)))
        case HeadersPiece(_, tuple() as pieces):
            fields.headers = yield from _each_header(source, pieces, fields.numbers["number of headers"], null_marker)
            return False
        case _:
            raise AssertionError(step)
    return True


def _each_header(
    source: _Input, pieces: tuple[Piece, ...], count: int, null_marker: bytes | None
) -> Generator[None, None, list[tuple[str, bytes | None]]]:
    if count > FORMATTED_HEADERS_MAX:
        raise UsageError(f"{count:,} headers; the greatest number is {FORMATTED_HEADERS_MAX:,}")
    steps = steps_of(pieces)
    headers = []
    for _ in range(count):
        header = yield from _fields(source, steps, null_marker, is_whole=False)
        headers.append((_name(header.texts["key"] or b""), header.texts.get("value")))
    return headers


def _joined_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    parts = data.split(b",") if data else []
    if len(parts) > FORMATTED_HEADERS_MAX:
        raise UsageError(f"{len(parts):,} headers; the greatest number is {FORMATTED_HEADERS_MAX:,}")
    headers: list[tuple[str, bytes | None]] = []
    for part in parts:
        name, equals, value = part.partition(b"=")
        plain = b"" if name == NULL_ESCAPED else TextForm.ESCAPE.read(name)
        headers.append((_name(plain), TextForm.ESCAPE.read(value) if equals else None))
    return headers


def _name(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the name of a header is not UTF-8: {_shown(data)}") from None


def _shown(data: bytes) -> str:
    return "'" + data[:40].decode(errors="backslashreplace").replace("\n", "\\n").replace("\t", "\\t") + "'"


# Checks that a record would be read back unchanged from its text. Pure.


class RoundTrip:
    """Raises UsageError for a format that cannot be read."""

    def __init__(self, pieces: tuple[Piece, ...], null_marker: bytes | None) -> None:
        check_readable(pieces)
        self._pieces = pieces
        self._null_marker = null_marker
        self._fields = set[str]()
        for piece in pieces:
            if isinstance(piece, (NumberPiece, TextPiece)):
                self._fields.add(piece.field)
            elif isinstance(piece, TimePiece):
                self._fields.add("timestamp")
            elif isinstance(piece, HeadersPiece):
                self._fields.add("headers" if _has_values(piece) else "names of headers")

    def expected(self, tp: TopicPartition, record: Record) -> ReadRecord:
        """Return the record with those of its fields that the format has."""
        headers = record.headers if "headers" in self._fields else ()
        if "names of headers" in self._fields:
            headers = tuple((name, None) for name, _ in record.headers)
        return ReadRecord(
            record.key if "key" in self._fields else None,
            record.value if "value" in self._fields else None,
            headers,
            tp.partition if "partition" in self._fields else None,
            known_time(record.timestamp) if "timestamp" in self._fields else None,
        )

    def check(self, tp: TopicPartition, record: Record, text: bytes) -> None:
        """Raise UsageError unless `text` is read as exactly this record."""
        reader = FormatReader(self._pieces, self._null_marker)
        expected = self.expected(tp, record)
        try:
            read = [*reader.feed(text), *reader.finish()]
            if read == [expected]:
                return
            reason = _difference(expected, read[0]) if len(read) == 1 else "it would be several records"
        except UsageError as error:
            reason = str(error)
        raise UsageError(
            f"{tp}: produce -f would not read the record at offset {record.offset} back as it is: {reason};"
            " use sizes (%K, %V), {escape}, or --null-marker"
        )


def _has_values(piece: HeadersPiece) -> bool:
    return piece.each is None or any(isinstance(part, TextPiece) and part.field == "value" for part in piece.each)


def _difference(expected: ReadRecord, read: ReadRecord) -> str:
    name = next(name for name in expected._fields if getattr(expected, name) != getattr(read, name))
    if getattr(expected, name) is None:
        return f"the {name} is null"
    return f"its {name} would be different"
