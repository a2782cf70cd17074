"""Other programs' readers return what kctl writes as YAML and CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kctl.commands.reading.items import record_item, record_lines
from kctl.model import TopicPartition
from kctl.output.console import Console, Format
from kctl.output.documents import json_text, yaml_text
from kctl.output.table import csv_line
from kctl.records.header import Record

TEXTS = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    [
        "1e3",
        "0o14",
        "1_000",
        "0x1f",
        "2026-01-01",
        "12:30:00",
        "y",
        "No",
        "~",
        "null",
        "- a",
        "a: b",
        "a #b",
        "",
        " ",
        "<<",
    ]
)
SCALARS = TEXTS | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=20
)


@given(value=VALUES)
@example(value={"k" * 2000: {"a": [[], {}, [[1]]]}})
@example(value={"k" * 2000: [1]})
@example(value=[1e16, 1e-7, 0.1, -0.0, float("inf"), 10**30])
def test_yaml_is_read_back(value: Any) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


@given(text=TEXTS)
def test_text_without_quotes_begins_with_a_letter_and_is_no_number_in_any_version_of_yaml(text: str) -> None:
    written = yaml_text(text).removesuffix("\n")
    if not written.startswith('"'):
        assert written == text
        assert written[0].isalpha() or written[0] in "_/"
        assert yaml.safe_load(written) == text


@given(value=VALUES)
def test_json_is_read_back(value: Any) -> None:
    assert json.loads(json_text(value)) == value
    assert json.loads(json_text(value, indent=2)) == value


@given(rows=st.lists(st.lists(st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from('",; \n\t=')))))
def test_csv_is_read_back(rows: list[list[str]]) -> None:
    text = "".join(csv_line(row) for row in rows if len(row) > 1)
    assert list(csv.reader(io.StringIO(text, newline=""))) == [row for row in rows if len(row) > 1]


FIELDS = (
    st.none() | st.binary() | st.text().map(str.encode) | st.sampled_from((b"\x1b[31m", b'"\\', b"\xe2\x80\xae", b"\n"))
)
RECORDS = st.builds(
    Record,
    offset=st.integers(0, (1 << 63) - 1),
    timestamp=st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 1 << 41),
    key=FIELDS,
    value=FIELDS,
    headers=st.lists(st.tuples(st.text(), FIELDS), max_size=3).map(tuple),
)


@given(topic=st.text(), given_records=st.lists(RECORDS, max_size=4))
@example(topic="t", given_records=[Record(0, -1), Record(1, -1), Record(2, 0), Record(3, 0)])
def test_lines_of_records_are_those_of_their_objects(topic: str, given_records: list[Record]) -> None:
    expected, found = io.StringIO(), io.StringIO()
    tp = TopicPartition(topic, 7)
    with Console(expected, io.StringIO(), format=Format.JSONL).stream(()) as stream:
        for record in given_records:
            stream.write(record_item(tp, record))
    Console(found, io.StringIO(), format=Format.JSONL).encoded_lines(record_lines(tp, given_records))
    assert found.getvalue() == expected.getvalue()
