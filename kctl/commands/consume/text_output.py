"""Records as text instead of rows: in the format of -f, or only their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.commands.consume.json_layout import indented
from kctl.commands.record_format.round_trip import RoundTrip
from kctl.commands.record_format.syntax import parse_format
from kctl.commands.record_format.writing import FormatWriter
from kctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.console import Console
    from kctl.model import TopicPartition
    from kctl.records.header import Record

    ToText = Callable[[TopicPartition, Record], bytes]
    """The text of a record.  Raises UsageError."""


def text_of_options(
    console: Console,
    *,
    record_format: str | None,
    null_marker: str | None,
    reversible: bool,
    value_only: bool,
    formatter: str | None,
) -> ToText | None:
    """How the options write records as text; None for rows.  Raises UsageError."""
    if record_format is None and not value_only:
        if null_marker is not None or reversible:
            raise UsageError("--null-marker and --reversible require -f")
        return None
    if record_format is not None and value_only:
        raise UsageError("-f and --value-only cannot be combined")
    option = "-f" if value_only is False else "--value-only"
    if console.is_machine_readable:
        raise UsageError(f"{option} is a format of its own; leave out --format")
    if formatter is not None:
        raise UsageError(f"{option} and --formatter cannot be combined")
    null = None if null_marker is None else null_marker.encode()
    if record_format is None:
        if reversible:
            raise UsageError("--reversible requires -f")
        return _value_lines(null or b"", is_indented=console.stdout.isatty())
    return _in_format(record_format, null, reversible=reversible)


def _in_format(text: str, null_marker: bytes | None, *, reversible: bool) -> ToText:
    pieces = parse_format(text)
    writer = FormatWriter(pieces, null_marker)
    if not reversible:
        return writer.write
    round_trip = RoundTrip(pieces, null_marker)

    def write(tp: TopicPartition, record: Record) -> bytes:
        written = writer.write(tp, record)
        round_trip.check(tp, record, written)
        return written

    return write


def _value_lines(null: bytes, *, is_indented: bool) -> ToText:
    def write(_: TopicPartition, record: Record) -> bytes:
        value = null if record.value is None else record.value
        if is_indented and (document := indented(value.decode(errors="surrogateescape"))) is not None:
            value = document.encode(errors="surrogateescape")
        return value + b"\n"

    return write
