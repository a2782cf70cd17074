"""The output of the console is stable; it is compared with golden files."""

from __future__ import annotations

import io
import json
import os
import pty
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

from kctl.output.console import (
    JSON_ONLY,
    Column,
    Console,
    ErrorName,
    ErrorText,
    Format,
    cell,
    columns_of,
    nonzero,
)
from kctl.output.terminal_text import display_width
from tests.rows import for_rows

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "console"


class TopicRow(NamedTuple):
    """A topic."""

    topic: str
    partitions: int | None
    replicas: list[int]
    configs: dict[str, str | None] | None
    error: ErrorName = None
    message: ErrorText = None


class VerdictRow(NamedTuple):
    """A topic with fields that a table shows in another way."""

    topic: str
    internal: Annotated[bool, JSON_ONLY]
    hosts: Annotated[list[str], Column(after="verdict"), "Names of hosts."]
    verdict: Annotated[str, Column(trouble=lambda text: text == "STALLED")]
    lost: Annotated[int, Column("lost_records", "LOST", is_rare=True, shown=nonzero)] = 0
    error: ErrorName = None
    message: ErrorText = None


COLUMNS = columns_of(TopicRow)
ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "partitions": 12, "replicas": [1, 2, 3], "configs": {"a": "b", "c": "d,e"}, "error": None,
     "message": None},
    {"topic": "[bold]brackets[/bold]", "partitions": 1, "replicas": [], "configs": {}, "error": None, "message": None},
    {"topic": "a\tb\nc\\d\x1b[31m", "partitions": None, "replicas": [1], "configs": None, "error": "NOT_CONTROLLER",
     "message": "moved"},
    {"topic": "ünïcode \udcff", "partitions": 3, "replicas": [0], "configs": {"x": None}, "error": None, "message": ""},
]  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(format: Format | None, *, out: io.StringIO | None = None, **rest: Any) -> Console:  # noqa: A002
    return Console(out or io.StringIO(), io.StringIO(), format=format, **rest)


def messages(one: Console) -> str:
    return str(one.stderr.getvalue())  # type: ignore[attr-defined]  # of the StringIO behind it


def written(one: Console) -> str:
    assert isinstance(one.stdout, io.StringIO)
    return one.stdout.getvalue()


@for_rows("format_", list(Format))
def test_list_is_shown_as_ever(format_: Format) -> None:
    one = console(format_, header=True)
    one.show(COLUMNS, ROWS)
    golden = (GOLDEN / f"list.{format_.value}").read_bytes()
    assert written(one).encode(errors="surrogatepass") == golden


def test_long_list_fits_the_terminal_as_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the longest value is far from the start; columns for errors need an error in any row."""
    monkeypatch.setenv("COLUMNS", "80")
    wanted = [{"topic": f"orders-{n}", "partitions": n, "replicas": [1, 2, 3], "configs": {}} for n in range(1_000)]
    wanted.append({"topic": "o" * 40, "partitions": 1, "replicas": [1], "configs": {}})
    one = console(Format.TABLE, out=Terminal(), color=False)
    one.show(COLUMNS, wanted)
    lines = written(one).splitlines()
    assert max(map(display_width, lines)) <= 80
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    one = console(Format.TABLE, out=Terminal(), color=False)
    one.show(COLUMNS, [*wanted, ROWS[2]])
    assert "NOT_CONTROLLER" in written(one)


@for_rows("format_", list(Format))
def test_single_row_is_shown_as_in_the_golden_file(format_: Format) -> None:
    one = console(format_)
    one.show_one({"cluster_id": "abc", "controller": 1, "rack": None, "live": True})
    assert written(one).encode() == (GOLDEN / f"one.{format_.value}").read_bytes()


def test_default_is_table_on_a_terminal_and_plain_elsewhere() -> None:
    assert console(None, out=Terminal()).format is Format.TABLE
    assert console(None).format is Format.PLAIN


@pytest.mark.parametrize(("format_", "expected"), [(Format.JSON, "[]\n"), (Format.JSONL, ""), (Format.PLAIN, "")])
def test_an_empty_result_is_an_empty_list_without_text(format_: Format, expected: str) -> None:
    one = console(format_)
    one.show(COLUMNS, [])
    assert written(one) == expected


def test_json_distinguishes_null_from_empty_and_keeps_what_tables_escape() -> None:
    one = console(Format.JSON)
    one.show(COLUMNS, ROWS)
    assert json.loads(written(one)) == ROWS


def test_csv_of_two_lists_has_a_header_each() -> None:
    one = console(Format.CSV)
    one.show((Column("a"),), [{"a": 1}])
    one.show((Column("a"),), [{"a": 2}])
    one.show((Column("b"),), [])
    assert written(one) == "a\r\n1\r\n2\r\n\r\nb\r\n"


def test_csv_of_an_empty_list_is_its_header() -> None:
    one = console(Format.CSV)
    one.show(COLUMNS, [])
    assert written(one) == "topic,partitions,replicas,configs,error,message\r\n"


def test_csv_has_formulas_unchanged() -> None:
    one = console(Format.CSV)
    one.show((Column("key"),), [{"key": "=1+1"}, {"key": "@SUM(A1)"}, {"key": "-"}])
    assert written(one) == "key\r\n=1+1\r\n@SUM(A1)\r\n-\r\n"


@pytest.mark.parametrize("format_", [Format.TABLE, Format.PLAIN])
def test_human_shows_quantities_as_short_text(format_: Format) -> None:
    columns = tuple(Column(name) for name in ("bytes_moved", "lag", "duration_ms", "partition", "timestamp_ms"))
    row = {"bytes_moved": 1610612736, "lag": 12_345, "duration_ms": 185_000, "partition": 1000, "timestamp_ms": 70_000}
    one = console(format_, human=True)
    one.show(columns, [row])
    one.show_one(row)
    shown = written(one)
    assert shown.count("1.5 GiB") == shown.count("12.3k") == shown.count("3m5s") == 2
    assert shown.count("1000") == shown.count("70000") == 2


def test_row_declares_its_columns_and_objects() -> None:
    rows = [VerdictRow("a", True, ["x", "y"], "OK", 0), VerdictRow("b", False, [], "OK", 3)]
    expected = {
        Format.PLAIN: "TOPIC\tVERDICT\tHOSTS\tLOST\tERROR\tMESSAGE\na\tOK\tx,y\t-\t-\t-\nb\tOK\t-\t3\t-\t-\n",
        Format.CSV: 'topic,verdict,hosts,lost_records,error,message\r\na,OK,"x,y",,,\r\nb,OK,,3,,\r\n',
        Format.TABLE: "TOPIC  VERDICT  HOSTS  LOST\na      OK       x,y       -\nb      OK       -         3\n",
    }
    for format_, text in expected.items():
        one = console(format_, header=True)
        one.show(VerdictRow, rows)
        assert written(one) == text, format_
    one = console(Format.JSON)
    one.show(VerdictRow, rows)
    assert json.loads(written(one))[1] == {
        "topic": "b", "internal": False, "hosts": [], "verdict": "OK", "lost": 3, "error": None, "message": None,
    }  # fmt: skip
    assert [column.name for column in columns_of(VerdictRow, "hosts", "lost")] == [
        "topic", "verdict", "error", "message",
    ]  # fmt: skip


def test_only_trouble_has_a_colour() -> None:
    one = console(Format.TABLE, out=Terminal())
    rows = [VerdictRow("a", False, [], "OK"), VerdictRow("b", False, [], "STALLED", error="NOT_CONTROLLER")]
    one.show(VerdictRow, rows)
    lines = written(one).splitlines()
    assert "\x1b[31m" not in lines[1]
    assert lines[2].count("\x1b[31m") == 2


@pytest.mark.parametrize("format_", [Format.JSON, Format.JSONL, Format.YAML, Format.CSV])
def test_human_leaves_the_numbers_of_programs_unchanged(format_: Format) -> None:
    one, other = console(format_, human=True), console(format_)
    for item in (one, other):
        item.show((Column("bytes"),), [{"bytes": 1610612736}])
        item.show_one({"bytes": 1610612736})
    assert written(one) == written(other)


def test_failure_under_yaml_is_the_one_document() -> None:
    one = console(Format.YAML)
    one.fail("NOT_CONTROLLER", "NOT_CONTROLLER: moved", retryable=True)
    assert written(one) == 'error:\n  code: NOT_CONTROLLER\n  message: "NOT_CONTROLLER: moved"\n  retryable: true\n'


def test_failure_under_json_is_the_one_document() -> None:
    one = console(Format.JSON)
    one.fail("NOT_CONTROLLER", "NOT_CONTROLLER: moved", retryable=True)
    document = {"error": {"code": "NOT_CONTROLLER", "message": "NOT_CONTROLLER: moved", "retryable": True}}
    assert json.loads(written(one)) == document


def test_failure_without_json_writes_to_stderr_only() -> None:
    one = console(Format.PLAIN)
    one.fail("X", "it failed\nbadly")
    assert written(one) == ""
    assert messages(one) == "kctl: it failed\\nbadly\n"


def test_stream_left_by_an_exception_writes_no_half_document() -> None:
    one = console(Format.JSON)
    stream = one.stream(COLUMNS)
    stream.write(ROWS[0])
    stream.__exit__(KeyError)
    assert written(one) == ""


def test_lines_stream_as_they_are_written() -> None:
    for format_ in (Format.PLAIN, Format.JSONL):
        one = console(format_)
        stream = one.stream(COLUMNS)
        stream.write(ROWS[0])
        assert written(one).count("\n") == 1


def test_table_streams_after_a_flush() -> None:
    one = console(Format.TABLE)
    stream = one.stream((Column("n", numeric=True), Column("text")))
    stream.write({"n": 1, "text": "a"})
    stream.flush()
    stream.write({"n": 22, "text": "b"})
    assert written(one) == "N  TEXT\n1  a\n22  b\n"


def test_table_never_depends_on_the_width_of_anything() -> None:
    one = console(Format.TABLE)
    one.show((Column("text"), Column("more")), [{"text": "x" * 500, "more": "y" * 500}])
    assert "x" * 500 in written(one)
    assert "y" * 500 in written(one)


@for_rows(
    "value, expected",
    [
        (None, "-"),
        ("", '""'),
        ("-", "\\x2d"),
        ('""', "\\x22\\x22"),
        ([], "-"),
        ({}, "-"),
        (True, "true"),
        (0, "0"),
        ([1, 2], "1,2"),
        ({"a": 1, "b": None}, "a=1,b"),
        ([{"a": ""}, {"a": None}, {"a=b": "c,d"}], "a=,a,a\\x3db=c\\x2cd"),
        ("a\\tb", "a\\\\tb"),
        ("\u2028", "\\u2028"),
        ("\x9b", "\\x9b"),
    ],
)
def test_cell_cannot_break_out_of_its_line(value: object, expected: str) -> None:
    assert cell(value) == expected


def test_terminal_gets_whole_values_and_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is truncated or interpreted as markup."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    one = console(None, out=out)
    one.show(COLUMNS[:2], ROWS[:2])
    shown = "".join(out.getvalue().split())
    assert "[bold]brackets[/bold]" in shown
    assert "orders" in shown
    assert "…" not in shown


def test_narrow_terminal_wraps_prose_but_never_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    columns = (Column("id"), Column("message", wraps=True))
    row = {"id": "x" * 30, "message": "one two three four five six seven eight nine ten"}
    for width, lines in ((60, 3), (40, 3)):
        monkeypatch.setenv("COLUMNS", str(width))
        out = Terminal()
        console(None, out=out, color=False).show(columns, [row])
        assert "x" * 30 in out.getvalue()
        assert "…" not in out.getvalue()
        assert len(out.getvalue().splitlines()) == lines


def test_no_color_means_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    coloured, bare = Terminal(), Terminal()
    console(None, out=coloured).show(COLUMNS, ROWS)
    console(None, out=bare, color=False).show(COLUMNS, ROWS)
    assert "\x1b[" in coloured.getvalue()
    assert "\x1b" not in bare.getvalue()


def test_confirmation_is_requested_only_on_a_terminal() -> None:
    assert console(None).confirm("Delete?") is None
    for response, expected in (("y\n", True), ("YES\n", True), ("\n", False), ("no\n", False), ("", False)):
        requesting = Console(io.StringIO(), Terminal(), stdin=Terminal(response))
        assert requesting.confirm("Delete?") is expected


def test_an_answer_that_is_not_text_is_no_confirmation() -> None:
    leader, follower = pty.openpty()
    os.write(leader, b"y\xff\n")
    with os.fdopen(follower, encoding="utf-8") as terminal:
        assert Console(io.StringIO(), Terminal(), stdin=terminal).confirm("Delete?") is False
    os.close(leader)


def test_quiet_keeps_warnings() -> None:
    one = console(None, quiet=True)
    one.note("hidden")
    one.warn("shown")
    assert messages(one) == "kctl: warning: shown\n"


def test_progress_redraws_one_line_on_a_terminal_and_wipes_it() -> None:
    ticks = iter([0.0, 0.05, 0.2, 0.21])
    errors = Terminal()
    one = Console(io.StringIO(), errors)
    progress = one.progress("Exporting", 200, unit="records")
    progress._clock = lambda: next(ticks)
    progress._next_s = 0.1
    with progress:
        for done in (1, 50, 100):
            progress.update(done)
    assert errors.getvalue() == "\r\x1b[KExporting 100 of 200 (50%) records\r\x1b[K"


def test_hidden_progress_is_erased_once_and_drawn_again() -> None:
    errors = Terminal()
    progress = Console(io.StringIO(), errors).progress("read", 10)
    for _ in range(2):
        progress._next_s = 0
        progress.update(5)
        progress.hide()
        progress.hide()
    assert errors.getvalue() == "\r\x1b[Kread 5 of 10 (50%)\r\x1b[K" * 2


def test_progress_never_reaches_the_last_column_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps would be drawn again below itself at each update."""
    monkeypatch.setenv("COLUMNS", "40")
    errors = Terminal()
    progress = Console(io.StringIO(), errors).progress("moved 日本", unit="bytes")
    progress._next_s = 0
    progress.update(10**12, total=10**13, note="1,234,567 bytes/s, 10 h left")
    (line,) = errors.getvalue().split("\r\x1b[K")[1:]
    assert line.startswith("moved 日本 1,000,000")
    assert display_width(line) == 39


def test_standard_console_of_a_real_terminal_is_a_table() -> None:
    """A pseudo-terminal shows that isatty is called on the right stream."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream:
        assert Console(stream, stream).format is Format.TABLE
    os.close(leader)
