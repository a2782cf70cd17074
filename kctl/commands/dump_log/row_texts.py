"""The records of a batch as text of plain, csv or jsonl: the same as the rows of `rows`, by compiled code."""

from __future__ import annotations

from json.encoder import encode_basestring as encode_text
from typing import TYPE_CHECKING, NamedTuple

from kctl.cells import cell, csv_field
from kctl.commands.record_items import header_cells, header_json, json_of, text_of
from kctl.commands.values import format_time
from kctl.console import Format
from kctl.records.compiled import walk_is_compiled
from kctl.records.header import LOG_APPEND_TIME_BIT, CorruptBatch
from kctl.terminal_text import escape_json

if walk_is_compiled():
    from kctl.records.record_rows import CSV, JSON, PLAIN, RowForm, format_rows

if TYPE_CHECKING:
    from collections.abc import Generator

    from kctl.model import TopicPartition
    from kctl.records.record_rows import Headers
    from kctl.storage.dump_lines import BatchLine

_ROWS_AT_ONCE = 500
_BASE_END = 1 << 62
_SECONDS_SIZE = len("00.000Z")
_MAGIC = 2


class RowsText(NamedTuple):
    """Rows of some records of a batch."""

    text: str


def row_form(kind: Format, path: str, short: str, tp: TopicPartition) -> RowForm | None:
    """How the records of a file are written; None if compiled code does not write this format, or is missing."""
    if not walk_is_compiled():
        return None
    match kind:
        case Format.PLAIN:
            return RowForm(
                PLAIN,
                start=f"{cell(short)}\t".encode(),
                end=b"\t-\t-\n",
                null=b"-",
                text_of=lambda data, _: cell(text_of(data)).encode(),
                headers_of=lambda headers: cell(header_cells(headers)).encode(),
                time_of=_minutes,
            )
        case Format.CSV:
            return RowForm(
                CSV,
                start=f"{csv_field(short)},".encode(),
                end=b",,\r\n",
                null=b"",
                text_of=lambda data, _: csv_field(text_of(data)).encode(),
                headers_of=lambda headers: csv_field(header_cells(headers)).encode(),
                time_of=_minutes,
            )
        case Format.JSONL:
            start = f'{{"type":"record","file":{encode_text(path)},"topic":{encode_text(tp.topic)},'
            return RowForm(
                JSON,
                start=escape_json(f'{start}"partition":{tp.partition},"offset":').encode(),
                end=b',"error":null,"message":null}\n',
                null=b"null",
                text_of=lambda data, encoding: escape_json(json_of(data, encoding.decode())).encode(),
                headers_of=_json_headers,
                time_of=_minutes,
            )
        case _:
            return None


def row_texts(line: BatchLine, form: RowForm) -> Generator[RowsText, None, int | None]:
    """Yields the rows of the records of a batch, and returns None.

    If compiled code refuses a record, returns the number of records whose rows were yielded before it.
    """
    header, done, position = line.header, 0, 0
    has_append_time = bool(header.attributes & LOG_APPEND_TIME_BIT)
    base_timestamp = header.max_timestamp if has_append_time else header.base_timestamp
    if header.magic < _MAGIC or header.is_control or max(abs(base_timestamp), abs(header.base_offset)) >= _BASE_END:
        return done
    try:
        region = line.region()
    except CorruptBatch:
        return done
    while done < header.record_count:
        count = min(header.record_count - done, _ROWS_AT_ONCE)
        try:
            rows, position = format_rows(
                region,
                position,
                count,
                header.base_offset,
                base_timestamp,
                header.base_sequence,
                form,
                has_append_time=has_append_time,
            )
        except (IndexError, ValueError):
            return done
        yield RowsText(rows.decode())
        done += count
    return None if position == len(region) else done


def _minutes(timestamp_ms: int) -> bytes:
    return (format_time(timestamp_ms) or "")[:-_SECONDS_SIZE].encode()


def _json_headers(headers: Headers) -> bytes:
    return escape_json(",".join(header_json(name, data) for name, data in headers)).encode()
