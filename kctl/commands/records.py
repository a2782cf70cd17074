"""Records as rows, and rows as records: what `consume` writes, `produce --input jsonl` reads back byte for byte."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.commands.rows import known
from kctl.commands.values import format_time
from kctl.console import Column
from kctl.errors import UsageError
from kctl.integers import INT32_MAX, INT64_MAX, is_integer
from kctl.records.bytes_as_text import encode_bytes

if TYPE_CHECKING:
    from kctl.model import TopicPartition
    from kctl.records.header import Record

RECORD_COLUMNS = (
    Column("partition", numeric=True),
    Column("offset", numeric=True),
    Column("time"),
    Column("key", wraps=True),
    Column("value", wraps=True),
    Column("headers", wraps=True),
)


class ReadRecord(NamedTuple):
    """A record as a line of JSON tells it; None where the line says nothing."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


def record_item(tp: TopicPartition, record: Record) -> dict[str, Any]:
    """A record as JSON tells it: text where the bytes are UTF-8, else base64, and which of the two it is."""
    key, key_encoding = encode_bytes(record.key)
    value, value_encoding = encode_bytes(record.value)
    headers = []
    for name, data in record.headers:
        text, encoding = encode_bytes(data)
        headers.append({"key": name, "value": text, "encoding": encoding})
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": record.offset,
        "timestamp_ms": known(record.timestamp),
        "time": format_time(record.timestamp),
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": headers,
    }


def record_row(tp: TopicPartition, record: Record) -> dict[str, Any]:
    """A record as one line for people: bytes that are not UTF-8 show up as \\xNN, a header as `name=value`, and as
    `name` alone where its value is null."""
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": record.offset,
        "time": format_time(record.timestamp),
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [{name: _text(data)} for name, data in record.headers],  # a name may occur more than once
    }


def decode_bytes(text: object, encoding: object) -> bytes | None:
    """What encode_bytes made.  Raises UsageError."""
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


def read_record(item: object) -> ReadRecord:
    """A record from what record_item made, or from less of it.  Raises UsageError."""
    if not isinstance(item, dict):
        raise UsageError("not a JSON object")
    headers = item.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(one, dict) and isinstance(one.get("key"), str) for one in headers
    ):
        raise UsageError('headers are a list of {"key", "value"}')
    for one in headers:
        _check_unicode(one["key"])
    return ReadRecord(
        decode_bytes(item.get("key"), item.get("key_encoding")),
        decode_bytes(item.get("value"), item.get("value_encoding")),
        tuple((one["key"], decode_bytes(one.get("value"), one.get("encoding"))) for one in headers),
        _integer(item, "partition", INT32_MAX),
        _integer(item, "timestamp_ms", INT64_MAX),
    )


def _integer(item: dict[str, Any], name: str, high: int) -> int | None:
    value: int | None = item.get(name)
    if value is not None and not is_integer(value, high=high):
        raise UsageError(f"{name} is {value!r}, not a whole number from 0 to {high}")
    return value


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="surrogateescape")
