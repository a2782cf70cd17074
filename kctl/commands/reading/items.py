"""Records as rows and JSON objects: `produce --input jsonl` reads the output of `consume --format jsonl` back
unchanged.
"""

from __future__ import annotations

import base64
import binascii
import json
from json.encoder import encode_basestring as encode_text
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kctl.client.registry.schema import NO_ID
from kctl.commands.frame.options.values import NO_TIMESTAMP, format_time, known_time, parse_any_year_ms
from kctl.commands.record_format.reading import ReadRecord
from kctl.errors import UsageError
from kctl.model import topic_name_problem
from kctl.output.console import Column
from kctl.output.quantities import INT32_MAX, INT64_MAX, NOTHING, is_integer
from kctl.output.table import SPECIAL_CELL_CHARACTERS_MAX, cell, csv_field
from kctl.records.dump_text import encode_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kctl.model import TopicPartition
    from kctl.records.header import Record


class HeaderItem(NamedTuple):
    """A header of a record; `encoding` is utf-8 or base64, None for a null value."""

    key: str
    value: str | None
    encoding: str | None


class RecordItem(NamedTuple):
    """A record as a JSON object, which `read_record` reads back."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    time: str | None
    key: str | None
    key_encoding: str | None
    value: str | None
    value_encoding: str | None
    headers: list[HeaderItem]


class DecodedItem(NamedTuple):
    """A record whose key or value was decoded by a schema registry; `read_record` reads it back.

    With the encoding `json`, a key or value is any JSON value, else text as in RecordItem.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    time: str | None
    key: object
    key_encoding: str | None
    key_schema_id: int | None
    value: object
    value_encoding: str | None
    value_schema_id: int | None
    headers: list[HeaderItem]


class RecordRow(NamedTuple):
    """A record in the table."""

    partition: int
    offset: int
    time: str | None
    key: Annotated[str | None, Column(wraps=True)]
    value: Annotated[str | None, Column(wraps=True)]
    headers: Annotated[
        list[dict[str, str | None]],
        Column(wraps=True),
        "One mapping per header, because a name may occur more than once.",
    ]


class TopicRecordRow(NamedTuple):
    """A record in the table of several topics."""

    topic: str
    partition: int
    offset: int
    time: str | None
    key: Annotated[str | None, Column(wraps=True)]
    value: Annotated[str | None, Column(wraps=True)]
    headers: Annotated[
        list[dict[str, str | None]],
        Column(wraps=True),
        "One mapping per header, because a name may occur more than once.",
    ]


def record_item(tp: TopicPartition, record: Record) -> RecordItem:
    """Return a record with keys and values as text where the bytes are UTF-8, else as base64."""
    key, key_encoding = encode_bytes(record.key)
    value, value_encoding = encode_bytes(record.value)
    return RecordItem(
        tp.topic,
        tp.partition,
        record.offset,
        known_time(record.timestamp),
        format_time(record.timestamp),
        key,
        key_encoding,
        value,
        value_encoding,
        [HeaderItem(name, *encode_bytes(data)) for name, data in record.headers],
    )


def record_lines(tp: TopicPartition, records: Iterable[Record]) -> Iterator[str]:
    """Return the JSON of `record_item` for each record, without an object for each."""
    return (f"{{{members}}}" for members in record_members(tp, records))


def record_members(tp: TopicPartition, records: Iterable[Record]) -> Iterator[str]:
    """Yield the members of the JSON object of `record_item`, without braces."""
    start = f'"topic":{encode_text(tp.topic)},"partition":{tp.partition},"offset":'
    before_ms, times = -1, _times(-1)
    for offset, timestamp_ms, key, value, headers in records:
        if timestamp_ms != before_ms:
            before_ms, times = timestamp_ms, _times(timestamp_ms)
        shown_headers = ",".join([header_json(name, data) for name, data in headers]) if headers else ""
        yield (
            f'{start}{offset},{times},"key":{json_of(key, "key_encoding")},'
            f'"value":{json_of(value, "value_encoding")},"headers":[{shown_headers}]'
        )


def _times(timestamp_ms: int) -> str:
    shown_ms, text = known_time(timestamp_ms), format_time(timestamp_ms)
    shown_text = "null" if text is None else f'"{text}"'
    return f'"timestamp_ms":{"null" if shown_ms is None else shown_ms},"time":{shown_text}'


def header_json(name: str, data: bytes | None) -> str:
    """Return a header as a JSON object."""
    return f'{{"key":{encode_text(name)},"value":{json_of(data, "encoding")}}}'


def json_of(data: bytes | None, encoding_name: str) -> str:
    """Return the bytes as JSON, and after a comma their encoding as the member of this name."""
    if data is None:
        return f'null,"{encoding_name}":null'
    try:
        return f'{encode_text(data.decode())},"{encoding_name}":"utf-8"'
    except UnicodeDecodeError:
        return f'"{base64.b64encode(data).decode()}","{encoding_name}":"base64"'


def decoded_item(
    tp: TopicPartition, record: Record, key_schema_id: int | None, value_schema_id: int | None
) -> DecodedItem:
    """Return a record with JSON values where there is a schema, which is not of a registry with NO_ID."""
    key, key_encoding = encode_bytes(record.key) if key_schema_id is None else _parsed(record.key)
    value, value_encoding = encode_bytes(record.value) if value_schema_id is None else _parsed(record.value)
    return DecodedItem(
        tp.topic,
        tp.partition,
        record.offset,
        known_time(record.timestamp),
        format_time(record.timestamp),
        key,
        key_encoding,
        None if key_schema_id == NO_ID else key_schema_id,
        value,
        value_encoding,
        None if value_schema_id == NO_ID else value_schema_id,
        [HeaderItem(name, *encode_bytes(data)) for name, data in record.headers],
    )


def _parsed(data: bytes | None) -> tuple[object, str | None]:
    """Return (JSON value, "json"); text if a mask has left no JSON."""
    try:
        return json.loads(data or b""), "json"
    except (ValueError, RecursionError):
        return encode_bytes(data)


def record_row(tp: TopicPartition, record: Record) -> RecordRow:
    """Return a record with bytes that are not UTF-8 as \\xNN."""
    return RecordRow(
        tp.partition,
        record.offset,
        format_time(record.timestamp),
        text_of(record.key),
        text_of(record.value),
        header_cells(record.headers),
    )


def plain_rows(tp: TopicPartition, records: Iterable[Record]) -> str:
    """Return the lines of `record_row` in the format plain, without an object for each."""
    return _rows(tp, records, cell, _plain_text, "\t", "\n")


def csv_rows(tp: TopicPartition, records: Iterable[Record]) -> str:
    """Return the lines of `record_row` in the format csv, without an object for each."""
    return _rows(tp, records, csv_field, lambda data: csv_field(text_of(data)), ",", "\r\n")


def _rows(
    tp: TopicPartition,
    records: Iterable[Record],
    cell_of: Callable[[object], str],
    text_cell: Callable[[bytes | None], str],
    separator: str,
    end: str,
) -> str:
    partition, no_headers = str(tp.partition), cell_of([])
    before_ms, time = NO_TIMESTAMP, cell_of(None)
    lines = []
    for offset, timestamp_ms, key, value, headers in records:
        if timestamp_ms != before_ms:
            before_ms, time = timestamp_ms, cell_of(format_time(timestamp_ms))
        shown = cell_of(header_cells(headers)) if headers else no_headers
        lines.append(separator.join((partition, str(offset), time, text_cell(key), text_cell(value), shown)))
    return end.join((*lines, ""))


def _plain_text(data: bytes | None) -> str:
    if data is None:
        return NOTHING
    text = data.decode(errors="surrogateescape")
    is_as_it_is = len(text) > SPECIAL_CELL_CHARACTERS_MAX and text.isprintable() and "\\" not in text
    return text if is_as_it_is else cell(text)


def header_cells(headers: Sequence[tuple[str, bytes | None]]) -> list[dict[str, str | None]]:
    """Return the headers as the console shows them in one cell: `name=value`, and `name` alone where the value is
    null.
    """
    return [{name: text_of(data)} for name, data in headers]


def decode_bytes(text: object, encoding: object) -> bytes | None:
    """Return the inverse of encode_bytes, and the text of a JSON value with the encoding `json`.  Raises UsageError."""
    if encoding == "json":
        return json.dumps(text, ensure_ascii=False).encode(errors="backslashreplace")
    if text is None:
        return None
    if not isinstance(text, str):
        raise UsageError(f"{text!r} is neither text nor null")
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise UsageError(f"'{text}' is not valid base64: {error}") from None
    if encoding not in {None, "utf-8"}:
        raise UsageError(f"unknown encoding {encoding!r}")
    _check_unicode(text)
    return text.encode()


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!a} contains an unpaired surrogate, which is not a character") from None


_OF_DUMPED_RECORDS = ("type", "file", "sequence", "error", "message")
"""Other fields that `kctl dump-log --records` writes about a record."""
_FIELDS_READ = frozenset((*RecordItem._fields, *DecodedItem._fields, *_OF_DUMPED_RECORDS))
_NO_PARTITION = -1
"""Of the records in a log file that is in no folder of a partition."""


def read_record(item: object) -> ReadRecord | None:
    """Return a record from the object of record_item, or from some of its fields; None for a batch that dump-log
    describes.

    Raises UsageError, also for a field that none of kctl's commands writes: it would have no effect.  The value has to
    be one of the fields: a record with a key and without a value deletes the key in a compacted topic.
    """
    if not isinstance(item, dict):
        raise UsageError("not a JSON object")
    if item.get("type", "record") != "record" and "base_offset" in item:
        return None
    if not item.keys() <= _FIELDS_READ:
        unknown = min(item.keys() - _FIELDS_READ)
        raise UsageError(
            f"a record has no {unknown!r}; it has value, key, headers, partition, timestamp_ms or time, and with base64"
            " value_encoding or key_encoding"
        )
    if "value" not in item:
        raise UsageError('no "value" in it; that of a record without one is null')
    headers = item.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(header, dict) and isinstance(header.get("key"), str) for header in headers
    ):
        raise UsageError('headers are a list of {"key", "value"}')
    for header in headers:
        _check_unicode(header["key"])
    partition = item.get("partition")
    return ReadRecord(
        decode_bytes(item.get("key"), item.get("key_encoding")),
        decode_bytes(item.get("value"), item.get("value_encoding")),
        tuple((header["key"], decode_bytes(header.get("value"), header.get("encoding"))) for header in headers),
        None if partition == _NO_PARTITION and "file" in item else _integer(item, "partition", INT32_MAX),
        _timestamp(item),
        _topic(item),
    )


def _topic(item: dict[str, Any]) -> str | None:
    topic = item.get("topic")
    if topic is not None and (not isinstance(topic, str) or topic_name_problem(topic) is not None):
        raise UsageError(f"topic is {topic!a:.300}, not the name of a topic")
    return topic


def _timestamp(item: dict[str, Any]) -> int | None:
    value: int | None = item.get("timestamp_ms")
    time = item.get("time")
    if value is None and time is not None:
        value = parse_any_year_ms(time) if isinstance(time, str) else None
        if value is None:
            raise UsageError(f"time is {time!r}, not a time such as 2026-11-21T09:30:00.000Z")
    if value is not None and not is_integer(value, low=-INT64_MAX, high=INT64_MAX):
        raise UsageError(f"timestamp_ms is {value!r}, not a whole number of 64 bits")
    return None if value is None else known_time(value)


def _integer(item: dict[str, Any], name: str, high: int) -> int | None:
    value: int | None = item.get(name)
    if value is not None and not is_integer(value, high=high):
        raise UsageError(f"{name} is {value!r}, not a whole number from 0 to {high}")
    return value


def text_of(data: bytes | None) -> str | None:
    r"""UTF-8, with invalid bytes as surrogates, which the console shows as \xNN."""
    return None if data is None else data.decode(errors="surrogateescape")
