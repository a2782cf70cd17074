"""Checks that a record would be read back unchanged from its text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.commands.record_format.plan import check_readable
from kctl.commands.record_format.read_record import ReadRecord
from kctl.commands.record_format.reading import FormatReader
from kctl.commands.record_format.syntax import HeadersPiece, NumberPiece, Piece, TextPiece, TimePiece
from kctl.commands.values import known_time
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record


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
        """The record with those of its fields that the format has."""
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
        """Raises UsageError unless `text` is read as exactly this record."""
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
    return piece.each is None or any(isinstance(one, TextPiece) and one.field == "value" for one in piece.each)


def _difference(expected: ReadRecord, read: ReadRecord) -> str:
    name = next(name for name in expected._fields if getattr(expected, name) != getattr(read, name))
    if getattr(expected, name) is None:
        return f"the {name} is null"
    return f"its {name} would be different"
