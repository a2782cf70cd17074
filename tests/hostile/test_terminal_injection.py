"""Names, keys, values and error messages from peers cannot send control sequences to the user's terminal."""

from __future__ import annotations

import functools
import importlib
import io
import json
import logging
import pkgutil
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl import commands
from kctl.cli import main
from kctl.commands.reading.items import record_item
from kctl.model import TopicPartition
from kctl.output.console import Column, Console, Format, as_mapping, columns_of
from kctl.output.log_lines import EscapingFormatter
from kctl.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.test_groups import member

UNSAFE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\u202egpj.exe\u2066\u200b\u2028\ufeff\U000e0041"
HOSTILE = st.text(st.characters(exclude_categories=()) | st.sampled_from(UNSAFE), max_size=30)
OWN = ("\x1b[1m", "\x1b[31m", "\x1b[0m", "\r\x1b[K")
"""The control sequences that kctl itself sends to a terminal: bold, red, reset, and the start of a progress line."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def unsafe_in(text: str, allowed: str = "\n") -> list[str]:
    for sequence in OWN:
        text = text.replace(sequence, "")
    return [
        hex(ord(character))
        for character in text
        if character not in allowed and unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]


def consoles(format_: Format) -> list[Console]:
    return [Console(kind(), Terminal(), format=format_, header=True) for kind in (io.StringIO, Terminal)]


def written(console: Console) -> str:
    lines_of_csv = console.format is Format.CSV
    shown, messages = (cast("io.StringIO", stream).getvalue() for stream in (console.stdout, console.stderr))
    return (shown.replace("\r\n", "\n") if lines_of_csv else shown) + messages


@functools.cache
def column_sets() -> list[tuple[Column, ...]]:
    """The columns of every row, without those whose function takes values of its own type."""
    for module in pkgutil.walk_packages(commands.__path__, "kctl.commands."):
        importlib.import_module(module.name)
    rows = {
        item
        for name, module in list(sys.modules.items())
        if name.startswith(("kctl.commands.", "kctl.tables.", "kctl.admin."))
        for item in vars(module).values()
        if isinstance(item, type) and hasattr(item, "_fields")
    }
    shown = [tuple(column for column in columns_of(row) if column.shown is None) for row in rows if is_shown(row)]
    return sorted(filter(None, shown), key=lambda columns: [column.name for column in columns])


def is_shown(row: type[Any]) -> bool:
    """Whether it declares columns; other tuples have annotations of all kinds."""
    return any(word in str(row.__annotations__) for word in ("Column(", "JSON_ONLY", "ErrorName"))


VALUES = st.recursive(
    HOSTILE | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE, inner, max_size=3),
    max_leaves=5,
)


@for_rows("format_", list(Format))
@given(values=st.lists(VALUES, min_size=1, max_size=6))
@settings(max_examples=20)
def test_no_row_of_any_command_reaches_the_terminal_as_a_control(format_: Format, values: list[Any]) -> None:
    for columns in column_sets():
        row = {column.name: values[index % len(values)] for index, column in enumerate(columns)}
        for console in consoles(format_):
            console.show(columns, [row, row])
            assert unsafe_in(written(console), "\n\t") == []


def test_rows_of_every_command_are_tried() -> None:
    assert len(column_sets()) > 60


@for_rows("format_", list(Format))
@given(text=HOSTILE)
def test_all_console_output_escapes_control_characters(format_: Format, text: str) -> None:
    for console in consoles(format_):
        console.show_one({text: text, "list": [text], "pairs": {text: text}})
        console.note(text)
        console.warn(text)
        console.complain(text)
        console.fail(text, text)
        progress = console.progress(text)
        progress._next_s = 0
        progress.update(1, note=text)
        console.stdin = Terminal()
        console.confirm(text)
        assert unsafe_in(written(console), "\n\t") == []


@given(text=HOSTILE)
def test_text_of_other_programs_is_escaped_on_a_terminal_only(text: str) -> None:
    pipe, terminal = consoles(Format.PLAIN)
    for console in (pipe, terminal):
        console.verbatim(text)
    assert isinstance(pipe.stdout, io.StringIO)
    assert pipe.stdout.getvalue() == text
    assert unsafe_in(written(terminal), "\n\t") == []


@given(
    key=HOSTILE.filter(lambda text: text.isprintable() or text.encode(errors="ignore").decode() == text),
    data=st.binary(),
)
def test_json_of_a_record_is_valid_and_keeps_every_byte(key: str, data: bytes) -> None:
    item = record_item(TopicPartition("t", 0), Record(0, 0, data, data, ((key, data), (key, None), (key, b""))))
    console = consoles(Format.JSONL)[0]
    console.show((), [item])
    assert json.loads(written(console)) == as_mapping(item)
    assert unsafe_in(written(console)) == []


def test_log_lines_stay_one_line_each() -> None:
    formatter = EscapingFormatter("%(levelname)s %(message)s")
    record = logging.LogRecord("x", logging.INFO, "", 0, "client=%s", ("a\nERROR forged\x1b[2J",), None)
    assert formatter.format(record) == "INFO client=a\\nERROR forged\\x1b[2J"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    with FakeCluster() as started:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


def hostile_log(cluster: FakeCluster) -> None:
    headers = ((UNSAFE, UNSAFE.encode()), (UNSAFE, None), ("a\nb", b"\xff\x1b"))
    (partition,) = cluster.create("orders")
    partition.append(build_batch([Record(0, 1_000, UNSAFE.encode(), b"\x9b" + UNSAFE.encode(), headers)]))


def on_terminal(monkeypatch: pytest.MonkeyPatch, line: str, *more: str) -> str:
    """All bytes that a terminal receives from the command."""
    return run(monkeypatch, Terminal(), line, *more)


def in_pipe(monkeypatch: pytest.MonkeyPatch, line: str, *more: str) -> str:
    """What the command line writes to a pipe."""
    return run(monkeypatch, io.StringIO(), line, *more)


def run(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, line: str, *more: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    main([*line.split(), *more])
    return stream.getvalue()


@pytest.mark.parametrize("format_", ["table", "plain", "json", "jsonl"])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_consume_escapes_header_names(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
    is_terminal: bool,
) -> None:
    hostile_log(cluster)
    line = f"consume orders --format {format_}"
    shown = (on_terminal if is_terminal else in_pipe)(monkeypatch, line)
    assert "owned" in shown
    assert unsafe_in(shown, "\n\t") == []


@pytest.mark.parametrize("options", ["", "--records", "--compat kafka-4 --print-data-log", "--records --format json"])
def test_dump_log_escapes_header_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    record = Record(0, 1_000, UNSAFE.encode(), UNSAFE.encode(), ((UNSAFE, UNSAFE.encode()),))
    path.write_bytes(build_batch([record]))
    shown = on_terminal(monkeypatch, f"dump-log {options}", str(path))
    assert ("owned" in shown) is bool(options)
    assert unsafe_in(shown, "\n\t") == []


def test_compat_text_is_byte_for_byte_kafkas_in_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(build_batch([Record(0, 1_000, None, b"\x1b[2J")]))
    assert "payload: \x1b[2J" in in_pipe(monkeypatch, "dump-log --compat kafka-4 --print-data-log", str(folder))


@pytest.mark.parametrize("options", ["", "--show members", "--show state", "--compat kafka-4", "--format json"])
def test_groups_describe_escapes_names_of_members(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
) -> None:
    cluster.create("orders")
    one = member(UNSAFE, 0)
    one.client_id = one.client_host = UNSAFE
    cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 0}, [one])
    shown = on_terminal(monkeypatch, f"groups describe billing {options}")
    assert "billing" in shown
    assert unsafe_in(shown, "\n\t") == []


@pytest.mark.parametrize("format_", ["table", "plain", "json", "jsonl"])
def test_topics_list_escapes_invalid_topic_names_of_a_broker(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
) -> None:
    cluster.create(UNSAFE)
    shown = on_terminal(monkeypatch, f"topics list --format {format_}")
    assert "owned" in shown
    assert unsafe_in(shown, "\n\t") == []


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("format_", ["table", "json"])
def test_errors_escape_arguments_and_messages_of_brokers(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    debug: list[str],
    format_: str,
) -> None:
    lines = (
        ["topics", "describe", UNSAFE],
        [UNSAFE],
        ["topics", UNSAFE],
        ["topics", "list", f"--{UNSAFE}"],
        ["consume", "orders", "--from", UNSAFE],
        ["topics", "create", "x", "--set", UNSAFE],
    )
    for words in lines:
        shown = on_terminal(monkeypatch, f"--format {format_}", *debug, *words)
        assert "owned" in shown
        assert unsafe_in(shown, "\n\t") == []


def test_an_error_message_of_a_broker_is_escaped(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = CreatableTopicResult(name="x", error_code=44, error_message=UNSAFE)
    cluster.intercept(CreateTopicsRequest, lambda _: CreateTopicsResponse(topics=[failed]))
    shown = on_terminal(monkeypatch, "topics create x")
    assert "owned" in shown
    assert unsafe_in(shown, "\n\t") == []
