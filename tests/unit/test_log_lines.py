"""Log lines as text and JSON."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.output.log_lines import (
    LOG_FIELDS_MAX,
    LOG_MESSAGE_CHARACTERS_MAX,
    EscapingFormatter,
    FoldingHandler,
    JsonFormatter,
    LogFormat,
    by_peer,
    extract_event,
)
from tests.rows import for_rows


def record(template: str, *values: object, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("kctl.server.x", level, __file__, 1, template, values, None)


class Written:
    """A logger that writes to memory."""

    def __init__(self, log_format: LogFormat) -> None:
        self.stream = io.StringIO()
        self.handler = FoldingHandler(self.stream, log_format)
        self.log = logging.Logger("kctl.test", logging.DEBUG)
        self.log.addHandler(self.handler)

    def close(self) -> list[str]:
        self.handler.close()
        return self.stream.getvalue().splitlines()


@pytest.fixture
def as_text() -> Iterator[Written]:
    written = Written(LogFormat.TEXT)
    yield written
    written.close()


@pytest.fixture
def as_json() -> Iterator[Written]:
    written = Written(LogFormat.JSON)
    yield written
    written.close()


def test_a_long_message_is_cut() -> None:
    text = EscapingFormatter("%(levelname)s %(message)s").format(record("path=%s", "x" * 100_000))
    assert len(text) == LOG_MESSAGE_CHARACTERS_MAX
    assert text.endswith("...")


@for_rows(
    "template, values, event, fields",
    [
        ("stopped broker=%s", (3,), "stopped", {"broker": 3}),
        (
            "cannot replicate, trying again partition=%s offset=%d error=%s",
            ("orders-0", 7, OSError(5, "Input/output error")),
            "cannot replicate, trying again",
            {"partition": "orders-0", "offset": 7, "error": "[Errno 5] Input/output error"},
        ),
        ("session_id=0x%x peer=%s:%d", (255, "::1", 9), "", {"session_id": "0xff", "peer": "::1:9"}),
        ("%s of %s done=%s", ("a", 2, None), "a of 2 done", {}),
        ("limit=90%% left=%.1f", (2.25,), "", {"limit": "90%", "left": "2.2"}),
        ("100% sure reason=none", (), "100% sure", {"reason": "none"}),
        ("is_ok=%s value=%s", (True, "a b=c"), "", {"is_ok": True, "value": "a b=c"}),
    ],
)
def test_the_template_separates_event_and_fields(
    template: str, values: tuple[object, ...], event: str, fields: dict[str, object]
) -> None:
    if "done=" in template:
        event, fields = "a of 2", {"done": None}
    found = extract_event(template, values)
    assert (found.text, found.fields) == (event, fields)


def test_a_line_has_time_level_logger_event_and_fields() -> None:
    given_record = record("registered broker=%s epoch=%s level=%s", 1, 42, "a", level=logging.WARNING)
    given_record.created = 1_700_000_000.25
    assert json.loads(JsonFormatter().format(given_record)) == {
        "ts": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "kctl.server.x",
        "event": "registered",
        "broker": 1,
        "epoch": 42,
        "level_": "a",
    }


@given(st.text(), st.one_of(st.text(), st.floats(), st.none(), st.binary()))
def test_no_value_adds_a_line_or_a_field(text: str, value: object) -> None:
    line = JsonFormatter().format(record("refused peer=%s reason=%s", text, value))
    assert line.isascii()
    assert line.isprintable()
    document = json.loads(line, parse_constant=pytest.fail)
    assert list(document) == ["ts", "level", "logger", "event", "peer", "reason"]
    assert document["peer"] == text


@given(st.text(), st.lists(st.one_of(st.text(), st.integers(), st.none())))
def test_any_record_of_another_library_is_one_object(template: str, values: list[object]) -> None:
    line = JsonFormatter().format(record(template, *values) if _fits(template, values) else record("%s", template))
    assert {"ts", "level", "logger", "event"} <= json.loads(line).keys()
    assert "\n" not in line


def _fits(template: str, values: list[object]) -> bool:
    try:
        record(template, *values).getMessage()
    except (TypeError, ValueError):
        return False
    return True


def test_the_fields_of_a_line_are_bounded() -> None:
    names = [f"f{number}" for number in range(2 * LOG_FIELDS_MAX)]
    line = json.loads(JsonFormatter().format(record(" ".join(f"{name}=%s" for name in names), *names)))
    assert len(line) == 4 + LOG_FIELDS_MAX


def test_an_exception_is_in_the_same_line(as_json: Written) -> None:
    try:
        raise OSError(5, "Input/output error")
    except OSError:
        as_json.log.exception("cannot flush path=%s", "/data")
    (line,) = as_json.close()
    document = json.loads(line)
    assert document["exception"] == "OSError: [Errno 5] Input/output error"
    assert document["traceback"].startswith("Traceback (most recent call last):\n")
    assert "test_an_exception_is_in_the_same_line" in document["traceback"]


def test_repeated_errors_become_one_line_and_a_count(as_text: Written, as_json: Written) -> None:
    for _ in range(100):
        for written in (as_text, as_json):
            written.log.error("cannot flush path=%s error=%s", "/data", OSError(5, "Input/output error"))
    first, counted = as_text.close()
    message = "ERROR kctl.test cannot flush path=/data error=[Errno 5] Input/output error"
    assert first.endswith(message)
    assert counted.endswith(f"{message} repeated=99")
    first, counted = (json.loads(line) for line in as_json.close())
    assert "repeated" not in first
    assert (counted["event"], counted["path"], counted["repeated"]) == ("cannot flush", "/data", 99)


def test_different_errors_are_all_written(as_text: Written) -> None:
    for number in (5, 28, 5, 30, 28):
        as_text.log.error("cannot flush path=%s error=%s", "/data", OSError(number, "failed"))
    lines = as_text.close()
    assert [line.partition("error=")[2] for line in lines] == [
        "[Errno 5] failed",
        "[Errno 28] failed",
        "[Errno 30] failed",
        "[Errno 5] failed repeated=1",
        "[Errno 28] failed repeated=1",
    ]


def test_exceptions_from_different_places_are_all_written(as_json: Written) -> None:
    for text in ("a", "b", "a"):
        try:
            raise ValueError(text)
        except ValueError:
            as_json.log.exception("periodic task failed")
    lines = [json.loads(line) for line in as_json.close()]
    assert [line.get("exception") for line in lines] == ["ValueError: a", "ValueError: b", None]
    assert lines[2]["repeated"] == 1


def test_information_is_folded_only_if_peers_cause_it(as_text: Written) -> None:
    for _ in range(3):
        as_text.log.info("deleted topic=%s", "a")
        as_text.log.info("refused peer=%s", "/10.0.0.1", extra=by_peer("EXTERNAL"))
        as_text.log.info("refused peer=%s", "/10.0.0.1", extra=by_peer("INTERNAL"))
    lines = [line.partition("kctl.test ")[2] for line in as_text.close()]
    refused = "refused peer=/10.0.0.1"
    assert lines == ["deleted topic=a", refused, refused, *["deleted topic=a"] * 2, *[f"{refused} repeated=2"] * 2]


def test_a_count_is_written_without_a_further_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.output.log_folding.WINDOW_MS", 20)
    arrived = threading.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            if "repeated=1" in text:
                arrived.set()
            return super().write(text)

    handler = FoldingHandler(Stream(), LogFormat.TEXT)
    log = logging.Logger("kctl.test")
    log.addHandler(handler)
    for _ in range(2):
        log.error("cannot flush")
    assert arrived.wait(60)
    handler.close()
