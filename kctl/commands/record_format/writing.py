"""Writes records in a format.  Pure."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.frame.options.values import NO_TIMESTAMP
from kctl.commands.record_format.syntax import (
    NULL_ESCAPED,
    Fixed,
    HeadersPiece,
    NumberForm,
    NumberPiece,
    Piece,
    TextForm,
    TextPiece,
    TimePiece,
    write_time,
)
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record


# How each piece of a format is delimited, and which formats can be read back. Pure.
#
# A format can be read if the end of each field is known: by a size that precedes it, by a fixed width, or by the text
# that follows it.


_TIME_BYTES = b"0123456789-:.TZ"
_ESCAPE_BYTES = b"\\ntrxN0123456789abcdef"


class Step(NamedTuple):
    """A piece with its neighbours."""

    piece: Piece
    is_sized: bool
    """Whether the size of this text precedes it."""
    delimiter: bytes
    """The fixed bytes that follow; empty if another field does, or nothing."""


def steps_of(pieces: tuple[Piece, ...]) -> list[Step]:
    """Return the pieces with their neighbours."""
    sizes: set[str] = set()
    steps = []
    for piece, following in itertools.zip_longest(pieces, pieces[1:]):
        if isinstance(piece, NumberPiece):
            sizes.add(piece.field)
        is_sized = isinstance(piece, TextPiece) and f"{piece.field} size" in sizes
        steps.append(Step(piece, is_sized, following.data if isinstance(following, Fixed) else b""))
    return steps


def check_readable(pieces: tuple[Piece, ...]) -> None:
    """Raise UsageError with the reason if records cannot be read back from what the format writes."""
    problem = _problem(pieces)
    if problem is not None:
        raise UsageError(f"produce cannot read this format: {problem}")


def _problem(pieces: tuple[Piece, ...]) -> str | None:
    fields = [piece.field for piece in pieces if isinstance(piece, TextPiece)]
    if "key" not in fields and "value" not in fields:
        return "it has neither %k nor %v"
    return _repeated(pieces) or _useless_size(pieces, fields) or _first_problem(pieces)


def _first_problem(pieces: tuple[Piece, ...]) -> str | None:
    has_count = False
    for step in steps_of(pieces):
        problem = _problem_of(step, has_count=has_count)
        if problem is not None:
            return problem
        has_count = has_count or (isinstance(step.piece, NumberPiece) and step.piece.field == "number of headers")
    return None


def _problem_of(step: Step, *, has_count: bool) -> str | None:
    match step.piece:
        case Fixed():
            return None
        case NumberPiece(written, _, form):
            return None if form.is_fixed else _problem_of_digits(written, form.digits, step.delimiter)
        case TimePiece(written, None):
            return _problem_of_digits(written, _TIME_BYTES, step.delimiter)
        case TimePiece(written):
            return f"{written} is not read; use %d or %d{{rfc3339}}"
        case TextPiece(written, _, form) if step.is_sized:
            if form is TextForm.ESCAPE:
                return f"the sizes are of the unescaped bytes, so {written} needs a delimiter and no size before it"
            return None
        case HeadersPiece(written, tuple() as pieces):
            if not has_count:
                return f"%H must precede {written}"
            inner = _repeated(pieces) or _problem_of_header(pieces) or _first_problem(pieces)
            return f"within {written}: {inner}" if inner else None
        case _:
            return _problem_of_text(step.piece, step.delimiter)


def _problem_of_digits(written: str, digits: bytes, delimiter: bytes) -> str | None:
    if not delimiter:
        return f"the end of {written} is unknown: put text after it" + (
            "" if "{rfc3339}" in written else f", or give it a fixed width, such as {written[:2]}{{big32}}"
        )
    return _may_be_part(written, delimiter) if delimiter[:1] in digits else None


def _problem_of_text(piece: TextPiece | HeadersPiece, delimiter: bytes) -> str | None:
    if not delimiter:
        return _without_end(piece)
    reserved = b""
    if isinstance(piece, HeadersPiece):
        reserved = _ESCAPE_BYTES + b",="
    elif piece.form is TextForm.ESCAPE:
        reserved = _ESCAPE_BYTES
    return _may_be_part(piece.written, delimiter) if delimiter[:1] in reserved else None


def _may_be_part(written: str, delimiter: bytes) -> str:
    return f"the text after {written} begins with '{chr(delimiter[0])}', which may be part of it"


def _without_end(piece: TextPiece | HeadersPiece) -> str:
    written = piece.written
    if isinstance(piece, HeadersPiece) or piece.field == "topic":
        return f"the end of {written} is unknown: put text after it"
    size = written[:2].upper() if written[1] != "s" else "%V"
    return f"the end of {written} is unknown: put text after it, or its size ({size}) before it"


def _problem_of_header(pieces: tuple[Piece, ...]) -> str | None:
    fields = [piece.field for piece in pieces if isinstance(piece, TextPiece)]
    return _useless_size(pieces, fields) if "key" in fields else "the name of the header, %k, is missing"


def _repeated(pieces: tuple[Piece, ...]) -> str | None:
    seen: set[str] = set()
    for piece in pieces:
        match piece:
            case Fixed():
                continue
            case TimePiece():
                field = "timestamp"
            case HeadersPiece():
                field = "headers"
            case _:
                field = str(piece.field)
        if field in seen:
            return f"{piece.written} is the {field} again"
        seen.add(field)
    return None


def _useless_size(pieces: tuple[Piece, ...], texts: Sequence[str]) -> str | None:
    sized = {step.piece.field for step in steps_of(pieces) if isinstance(step.piece, TextPiece) and step.is_sized}
    for piece in pieces:
        if isinstance(piece, NumberPiece) and piece.field.endswith(" size"):
            name = piece.field.removesuffix(" size")
            if name not in texts:
                return f"{piece.written} is the size of the {name}, which the format does not have"
            if name not in sized:
                return f"{piece.written} must precede the {name}"
    return None


class _Fields(NamedTuple):
    """The values that the pieces write; a header has key and value only."""

    key: bytes | None
    value: bytes | None
    topic: bytes = b""
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1
    number: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


_Write = Callable[[_Fields], bytes]

_NUMBERS: dict[str, Callable[[_Fields], int]] = {
    "key size": lambda fields: -1 if fields.key is None else len(fields.key),
    "value size": lambda fields: -1 if fields.value is None else len(fields.value),
    "number of headers": lambda fields: len(fields.headers),
    "partition": lambda fields: fields.partition,
    "offset": lambda fields: fields.offset,
    "timestamp": lambda fields: fields.timestamp_ms,
    "index": lambda fields: fields.number,
}
_TEXTS: dict[str, Callable[[_Fields], bytes | None]] = {
    "key": lambda fields: fields.key,
    "value": lambda fields: fields.value,
    "topic": lambda fields: fields.topic,
}


class FormatWriter:
    """Writes records; `null_marker` is written for a null key or value without a size, instead of nothing."""

    def __init__(self, pieces: tuple[Piece, ...], null_marker: bytes | None = None) -> None:
        self._writes = _compiled(pieces, b"" if null_marker is None else null_marker)
        self._template = _template(pieces)
        self._written = 0

    def write(self, tp: TopicPartition, record: Record) -> bytes:
        """Return the record in the format.  Raises UsageError if a number is too large for its form."""
        fields = _Fields(
            record.key,
            record.value,
            tp.topic.encode(),
            tp.partition,
            record.offset,
            record.timestamp,
            self._written,
            record.headers,
        )
        self._written += 1
        return b"".join([write(fields) for write in self._writes])

    def write_all(self, tp: TopicPartition, records: Iterable[Record]) -> Iterator[bytes]:
        """Yield what `write` returns for the records, of several at once if none can fail.  Raises as `write` does."""
        if self._template is None:
            for record in records:
                yield self.write(tp, record)
            return
        text, values_of = self._template.of(tp)
        lines = [
            text % values if None not in (values := values_of(record)) else self.write(tp, record) for record in records
        ]
        yield b"".join(lines)


class _Template(NamedTuple):
    """A format whose pieces are bytes and decimal numbers of the record, as a format of the operator %."""

    pieces: tuple[Piece, ...]
    values_of: Callable[[Record], tuple[object, ...]]
    """The values of a record that differ between the records of a partition."""

    def of(self, tp: TopicPartition) -> tuple[bytes, Callable[[Record], tuple[object, ...]]]:
        """Return the text of this partition, and the function that returns its values."""
        fixed = {"topic": tp.topic.encode(), "partition": b"%d" % tp.partition}
        text = b""
        for piece in self.pieces:
            if isinstance(piece, (TextPiece, NumberPiece)) and piece.field not in fixed:
                text += b"%d" if isinstance(piece, NumberPiece) else b"%b"
            else:
                data = piece.data if isinstance(piece, Fixed) else fixed[getattr(piece, "field", "")]
                text += data.replace(b"%", b"%%")
        return text, self.values_of


def _template(pieces: tuple[Piece, ...]) -> _Template | None:
    """Return the template of the format; None if it has other pieces."""
    places = []
    for piece in pieces:
        match piece:
            case Fixed() | NumberPiece(_, "partition", NumberForm(base=10)) | TextPiece(_, "topic", TextForm.RAW):
                continue
            case NumberPiece(_, field, NumberForm(base=10)) | TextPiece(_, field, TextForm.RAW) if field in _PLACES:
                places.append(_PLACES[field])
            case _:
                return None
    if len(places) > 1:
        return _Template(pieces, itemgetter(*places))
    return _Template(pieces, (lambda record: (record[places[0]],)) if places else lambda _: ())


_PLACES: dict[str, int] = {"offset": 0, "timestamp": 1, "key": 2, "value": 3}
"""Where a record has the fields."""


def _compiled(pieces: tuple[Piece, ...], null: bytes) -> list[_Write]:
    return [_compiled_step(step, null) for step in steps_of(pieces)]


def _compiled_step(step: Step, null: bytes) -> _Write:
    match step.piece:
        case Fixed(data):
            return lambda _: data
        case NumberPiece() as piece:
            return _number(piece)
        case TimePiece(_, None):
            return lambda fields: write_time(fields.timestamp_ms)
        case TimePiece(_, str() as layout):
            return _time(layout)
        case TextPiece(_, field, form):
            if step.is_sized:
                null = b""
            elif form is TextForm.ESCAPE:
                null = NULL_ESCAPED
            return _text(_TEXTS[field], form, null, special=step.delimiter[:1])
        case HeadersPiece(_, None):
            return _joined_headers(b",=" + step.delimiter[:1])
        case HeadersPiece(_, tuple() as pieces):
            return _each_header(_compiled(pieces, null))
        case _:
            raise AssertionError(step)


def _text(field: Callable[[_Fields], bytes | None], form: TextForm, null: bytes, special: bytes) -> _Write:
    def write(fields: _Fields) -> bytes:
        data = field(fields)
        return null if data is None else form.write(data, special)

    return write


def _number(piece: NumberPiece) -> _Write:
    field, form, written = _NUMBERS[piece.field], piece.form, piece.written

    def write(fields: _Fields) -> bytes:
        try:
            return form.write(field(fields))
        except OverflowError as error:
            raise UsageError(f"{written}: the {piece.field} {error}") from None

    return write


def _time(layout: str) -> _Write:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    def write(fields: _Fields) -> bytes:
        if fields.timestamp_ms == NO_TIMESTAMP:
            return b""
        try:
            moment = epoch + datetime.timedelta(milliseconds=fields.timestamp_ms)
        except OverflowError:  # after the year 9999
            return b""
        return moment.strftime(layout).encode()

    return write


def _joined_headers(special: bytes) -> _Write:
    escape = TextForm.ESCAPE.write

    def write(fields: _Fields) -> bytes:
        return b",".join(
            (escape(name.encode(), special) or NULL_ESCAPED) + (b"" if data is None else b"=" + escape(data, special))
            for name, data in fields.headers
        )

    return write


def _each_header(writes: list[_Write]) -> _Write:
    def write(fields: _Fields) -> bytes:
        headers = (_Fields(name.encode(), data) for name, data in fields.headers)
        return b"".join(write(header) for header in headers for write in writes)

    return write
