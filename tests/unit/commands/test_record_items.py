"""Records as JSON objects, as `kctl consume` writes them and `kctl produce --input jsonl` reads them."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pytest

from kctl.commands.reading.items import RecordRow, csv_rows, plain_rows, read_record, record_item, record_row
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.output.console import Console, Format
from kctl.records.header import Record
from tests.rows import for_rows

BATCH = {"type": "batch", "file": "0.log", "base_offset": 0, "last_offset": 9, "count": 10}
DUMPED = {"type": "record", "file": "0.log", "partition": -1, "sequence": 1, "error": None, "message": None}


@for_rows("timestamp_ms", [0, 1, -1_000, 1_800_000_000_000, 253_402_300_800_000, -100_000_000_000_000])
def test_what_a_record_item_has_is_read_back(timestamp_ms: int) -> None:
    record = Record(7, timestamp_ms, b"\xff", "v\u00e4".encode(), (("h", None), ("g", b"\x00")))
    item = record_item(TopicPartition("orders", 3), record)._asdict()
    item["headers"] = [header._asdict() for header in item["headers"]]
    expected = (b"\xff", "v\u00e4".encode(), record.headers, 3, timestamp_ms, "orders")
    assert read_record(item) == expected
    # The time alone is the same time.
    assert read_record({name: value for name, value in item.items() if name != "timestamp_ms"}) == expected


@for_rows(
    "item, message",
    [
        ({"key": "x"}, 'no "value" in it'),
        ({"value": "x", "payload": "y"}, "a record has no 'payload'"),
        ({"value": "x", "timestamp": 1}, "a record has no 'timestamp'"),
        ({"value": "x", "time": "soon"}, "time is 'soon'"),
        ({"value": "x", "time": 5}, "time is 5"),
        ({"value": "x", "timestamp_ms": "5"}, "timestamp_ms is '5'"),
        ({"value": "x", "partition": -1}, "partition is -1"),
        ({"value": "x", "topic": 7}, "topic is 7, not the name of a topic"),
        ([], "not a JSON object"),
    ],
)
def test_fields_without_an_effect_are_refused_by_name(item: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_record(item)
    assert message in str(refused.value)


def test_what_dump_log_writes_is_read() -> None:
    assert read_record(BATCH) is None
    assert read_record({**DUMPED, "key": "k", "value": None}) == (b"k", None, (), None, None, None)


TEXTS = [
    None,
    b"",
    b"-",
    b'""',
    b"--",
    b"ab",
    b"abc",
    b"a\tb\n",
    b"\\",
    b"abc\\def",
    "né".encode(),
    b"\xff\xfe",
    b"\x1b[31m",
]


def test_rows_of_several_records_are_those_of_the_stream() -> None:
    tp = TopicPartition("orders", 3)
    records = [
        Record(offset, timestamp_ms, key, value, headers)
        for timestamp_ms in (-1, 1_000, 1_800_000_000_000, -1)
        for offset, (key, value) in enumerate(itertools.product(TEXTS, TEXTS))
        for headers in ((), (("a=b", None), ("g,h", b"\x00,1")))
    ]
    for chosen, rows_of in ((Format.PLAIN, plain_rows), (Format.CSV, csv_rows)):
        console = Console(io.StringIO(), io.StringIO(), format=chosen, header=False)
        with console.stream(RecordRow) as stream:
            for record in records:
                stream.write(record_row(tp, record))
        assert isinstance(console.stdout, io.StringIO)
        assert rows_of(tp, records) == console.stdout.getvalue()
