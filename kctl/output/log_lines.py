"""Writes the log of a server as text or JSON, with repeated lines folded."""

from __future__ import annotations

import functools
import io
import json
import logging
import re
import threading
import time
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from typing import Any, NamedTuple, TextIO

from kctl.limits import Subject, bound
from kctl.output.log_folding import WINDOW_MS, Folded, Folding
from kctl.output.terminal_text import escape, escape_lines

LOG_MESSAGE_CHARACTERS_MAX = bound(
    Subject.LONG_WORK,
    "message in the broker's log, which may repeat what a client sent",
    4_000,
    "characters",
    on_excess="the message is truncated",
)
LOG_FIELDS_MAX = bound(
    Subject.LONG_WORK,
    "fields of a log line in JSON",
    32,
    "fields",
    on_excess="further ones are left out",
)


# Separates the event of a log record from its fields.
#
#     log.warning("cannot replicate, trying again partition=%s offset=%d", "orders-0", 7)
#
# has the event "cannot replicate, trying again" and the fields partition="orders-0" and offset=7. The template is
# taken apart, not the message, so that no value can add a field.
#
# Pure.


_CONVERSION = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[srdxXofFeEgGcia%]")
_NAME = re.compile(r"([A-Za-z_][\w.-]*)=(.+)")
_TEMPLATES_MAX = 2_048

Value = str | int | float | bool | None


class _Part(NamedTuple):
    """One word of a template."""

    name: str | None
    """Name of the field; None for a word of the event."""
    template: str
    arguments: int
    """Number of arguments that it takes."""


class Event(NamedTuple):
    """The contents of a log record."""

    text: str
    fields: dict[str, Value]


def extract_event(template: str, arguments: tuple[object, ...]) -> Event:
    """Return the event and the fields of a record.  Raises ValueError or TypeError if they do not fit each other."""
    if not arguments:
        template = template.replace("%", "%%")  # logging leaves it unformatted.
    words: list[str] = []
    fields: dict[str, Value] = {}
    taken = 0
    for name, part, count in _parts(template):
        given = arguments[taken : taken + count]
        taken += count
        if name is None:
            words.append(part % given if count or "%" in part else part)
        else:
            fields[name] = _value(part, given)
    if taken != len(arguments):
        raise ValueError(f"{len(arguments)} arguments for {taken} conversions")
    return Event(" ".join(words), fields)


@functools.lru_cache(_TEMPLATES_MAX)
def _parts(template: str) -> tuple[_Part, ...]:
    parts = []
    for word in template.split():
        named = _NAME.fullmatch(word)
        conversions = sum(conversion != "%%" for conversion in _CONVERSION.findall(word))
        parts.append(_Part(named[1], named[2], conversions) if named else _Part(None, word, conversions))
    return tuple(parts)


def _value(template: str, given: tuple[object, ...]) -> Value:
    if len(given) == 1 and template in {"%s", "%d"}:
        (value,) = given
        if value is None or type(value) in {bool, int, float, str}:
            return value  # type: ignore[return-value]  # mypy does not narrow by `type(...) in`
    return template % given if given or "%" in template else template


# The formats of a server's log.


class LogFormat(StrEnum):
    """The value of --log-format."""

    TEXT = "text"
    JSON = "json"


# Log lines as JSON, one object per line.


_OWN = ("ts", "level", "logger", "event", "process", "exception", "traceback")
"""Members of each object; a field of this name gets an underscore."""


class JsonFormatter(logging.Formatter):
    """Formats a record as an object with ts, level, logger, event and the fields of the event.

    A record with an exception also has `exception`, its type and text, and `traceback`, whose line feeds are escaped.
    Characters beyond ASCII are escaped, so that a peer cannot inject lines or terminal sequences.
    """

    def __init__(self, process: int | None = None) -> None:
        """With `process`, each object has this member."""
        super().__init__()
        self._own: dict[str, Value] = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        """Return one line without its line feed."""
        event = _event(record)
        line: dict[str, Value] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "event": _cut(event.text),
            **self._own,
        }
        for name, value in list(event.fields.items())[:LOG_FIELDS_MAX]:
            line[f"{name}_" if name in _OWN else name] = _plain(value)
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = _cut(f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}")
            line["traceback"] = self.formatException(record.exc_info)[-4 * LOG_MESSAGE_CHARACTERS_MAX :]
        return json.dumps(line)


def _event(record: logging.LogRecord) -> Event:
    """Other libraries' records may have no template that can be taken apart; their message is the event."""
    try:
        return extract_event(str(record.msg), record.args if isinstance(record.args, tuple) else ())
    except (ValueError, TypeError):
        return Event(record.getMessage(), {})


def _plain(value: Value) -> Value:
    if isinstance(value, str):
        return _cut(value)
    return value if not isinstance(value, float) or isfinite(value) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= LOG_MESSAGE_CHARACTERS_MAX else text[: LOG_MESSAGE_CHARACTERS_MAX - 3] + "..."


# Log formatter that escapes control characters, so that a peer cannot inject lines or terminal sequences.


class EscapingFormatter(logging.Formatter):
    """logging.Formatter that escapes control characters, except line feeds of a traceback, and cuts long messages."""

    def __init__(self, fmt: str | None = None, process: int | None = None) -> None:
        """With `process`, each line ends with this key."""
        super().__init__(fmt)
        self._end = "" if process is None else f" process={process}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the log line without traceback: escaped, and cut to LOG_MESSAGE_CHARACTERS_MAX."""
        message = super().formatMessage(record)
        if len(message) > LOG_MESSAGE_CHARACTERS_MAX:
            message = message[: LOG_MESSAGE_CHARACTERS_MAX - 3] + "..."
        return escape(message) + self._end

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line with the traceback, if there is one, on lines of its own."""
        return escape_lines(super().format(record))


# Marks log lines that peers can cause at will.


PEERS = "peers"
"""The attribute of such a record."""


def by_peer(listener: str) -> dict[str, str]:
    """`extra` of a line that the clients of a listener cause: it is folded, also below the level of warnings.

    Lines of different listeners are folded apart.
    """
    return {PEERS: listener}


# Writes the log of a server to a stream, folds repeated lines, and sets the levels at its start.


TRACE = 5
INITIAL_LEVELS = {"kctl": logging.INFO, "kctl.state_change": logging.WARNING}
"""The levels of a server's loggers, unless they are changed."""
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class FoldingHandler(logging.StreamHandler[TextIO]):
    """Folds warnings, errors and the lines marked `by_peer`; writes the counts when their window ends.

    A count is the field `repeated` of a line that was written before, or `similar` of one that was not, for lines with
    the same event.  A timer thread exists while a window with counts is open.
    """

    def __init__(self, stream: TextIO, log_format: LogFormat, process: int | None = None) -> None:
        super().__init__(stream)
        is_json = log_format is LogFormat.JSON
        self.setFormatter(JsonFormatter(process) if is_json else EscapingFormatter(_TEXT, process))
        self._folding: Folding[logging.LogRecord] = Folding()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record unless it is folded.  Called with the handler's lock held."""
        now_ms = _monotonic_ms()
        try:
            self._write(self._folding.due(now_ms))
            is_written = self._admits(record, now_ms)
        except Exception:  # As logging.StreamHandler does: a wrong log call must not end what called it.
            self.handleError(record)
            return
        if is_written:
            super().emit(record)
        elif self._timer is None:
            self._start_timer(now_ms)

    def close(self) -> None:
        """Write the counts of all open windows."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            self._write(self._folding.close())
        finally:
            self.release()
        super().close()

    def _start_timer(self, now_ms: int) -> None:
        end_ms = self._folding.next_due_ms()
        # Not longer than a window: another one may end before.
        wait_ms = 0 if end_ms is None else min(end_ms - now_ms, WINDOW_MS)
        self._timer = None if end_ms is None else threading.Timer(wait_ms / 1000, self._window_ended)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def _window_ended(self) -> None:
        self.acquire()
        try:
            now_ms = _monotonic_ms()
            self._write(self._folding.due(now_ms))
            self._start_timer(now_ms)
        finally:
            self.release()

    def _admits(self, record: logging.LogRecord, now_ms: int) -> bool:
        listener = getattr(record, PEERS, None)
        if listener is None and record.levelno < logging.WARNING:
            return True
        return self._folding.admits(
            hash((record.name, listener, str(record.msg))),
            hash((record.getMessage(), _exception(record))),
            hash(_error(record)),
            now_ms=now_ms,
            kept=lambda: _kept(record),
        )

    def _write(self, folded: list[Folded[logging.LogRecord]]) -> None:
        for folded_line in folded:
            name = "repeated" if folded_line.is_equal else "similar"
            folded_line.line.msg = f"{folded_line.line.msg} {name}=%d"
            folded_line.line.args = (
                (*folded_line.line.args, folded_line.omitted)
                if isinstance(folded_line.line.args, tuple)
                else (folded_line.omitted,)
            )
            super().emit(folded_line.line)


def set_up_logging(stream: TextIO | None, log_format: LogFormat, process: int | None = None) -> None:
    """Replace all handlers of the root logger; a `stream` of None discards all lines.

    `process` is the number of this process among those that write to the stream, for a key in each line.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    if stream is None:
        root.addHandler(logging.NullHandler())
        return
    logging.addLevelName(TRACE, "TRACE")
    root.addHandler(FoldingHandler(stream, log_format, process))
    root.setLevel(logging.WARNING)
    for name, level in INITIAL_LEVELS.items():
        logging.getLogger(name).setLevel(level)


def continue_logging(stream: TextIO) -> None:
    """Write the lines from now on to another stream, after those that are in a stream in memory."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, FoldingHandler):
            handler.acquire()
            try:
                before = handler.setStream(stream)
                if isinstance(before, io.StringIO):
                    stream.write(before.getvalue())
                    stream.flush()
            finally:
                handler.release()


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _error(record: logging.LogRecord) -> object:
    """Return the values that distinguish the failures of one event."""
    try:
        fields = extract_event(str(record.msg), record.args if isinstance(record.args, tuple) else ()).fields
    except (ValueError, TypeError):
        fields = {}
    return fields.get("error", fields.get("reason")), _exception(record)


def _exception(record: logging.LogRecord) -> object:
    """Return the type, text and origin of the record's exception."""
    if not record.exc_info or record.exc_info[1] is None:
        return None
    traceback = record.exc_info[2]
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    origin = traceback and (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
    return type(record.exc_info[1]).__name__, str(record.exc_info[1]), origin


def _kept(record: logging.LogRecord) -> logging.LogRecord:
    """Return a copy without references to the values, which may be large: they are kept as short texts."""
    msg, arguments = str(record.msg), tuple[Any, ...]()
    if record.args and isinstance(record.args, tuple):
        arguments = tuple(_short(argument) for argument in record.args)
    else:
        msg = record.getMessage()[:LOG_MESSAGE_CHARACTERS_MAX].replace("%", "%%")
    kept = logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, msg, arguments, None)
    kept.created, kept.msecs = record.created, record.msecs
    return kept


def _short(value: object) -> Any:
    is_number = value is None or isinstance(value, bool | int | float)
    return value if is_number else str(value)[: LOG_MESSAGE_CHARACTERS_MAX // 10]
