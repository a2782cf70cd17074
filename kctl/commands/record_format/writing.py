"""Writes records in a format.  Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kctl.commands.record_format.forms import NULL_ESCAPED, TextForm, write_time
from kctl.commands.record_format.plan import Step, steps_of
from kctl.commands.record_format.syntax import Fixed, HeadersPiece, NumberPiece, Piece, TextPiece, TimePiece
from kctl.commands.values import NO_TIMESTAMP
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record


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
        self._written = 0

    def write(self, tp: TopicPartition, record: Record) -> bytes:
        """The record in the format.  Raises UsageError if a number is too large for its form."""
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
        case HeadersPiece(_, tuple() as each):
            return _each_header(_compiled(each, null))
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
