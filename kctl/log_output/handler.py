"""Writes the log of a server to a stream, folds repeated lines, and sets the levels at its start."""

from __future__ import annotations

import io
import logging
import threading
import time
from typing import Any, TextIO

from kctl.limits import LOG_MESSAGE_CHARACTERS_MAX
from kctl.log_output.events import event_of
from kctl.log_output.folding import WINDOW_MS, Folded, Folding
from kctl.log_output.formats import LogFormat
from kctl.log_output.json_lines import JsonFormatter
from kctl.log_output.peers import PEERS
from kctl.log_output.text_lines import EscapingFormatter

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
        """Writes the record unless it is folded.  Called with the handler's lock held."""
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
        """Writes the counts of all open windows."""
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
        for each in folded:
            name = "repeated" if each.is_equal else "similar"
            each.line.msg = f"{each.line.msg} {name}=%d"
            each.line.args = (*each.line.args, each.omitted) if isinstance(each.line.args, tuple) else (each.omitted,)
            super().emit(each.line)


def set_up_logging(stream: TextIO | None, log_format: LogFormat, process: int | None = None) -> None:
    """Replaces all handlers of the root logger; a `stream` of None discards all lines.

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
    """Writes the lines from now on to another stream, after those that are in a stream in memory."""
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
    """The values that distinguish the failures of one event."""
    try:
        fields = event_of(str(record.msg), record.args if isinstance(record.args, tuple) else ()).fields
    except (ValueError, TypeError):
        fields = {}
    return fields.get("error", fields.get("reason")), _exception(record)


def _exception(record: logging.LogRecord) -> object:
    """The type, text and origin of the record's exception."""
    if not record.exc_info or record.exc_info[1] is None:
        return None
    traceback = record.exc_info[2]
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    origin = traceback and (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
    return type(record.exc_info[1]).__name__, str(record.exc_info[1]), origin


def _kept(record: logging.LogRecord) -> logging.LogRecord:
    """A copy without references to the values, which may be large: they are kept as short texts."""
    msg, arguments = str(record.msg), tuple[Any, ...]()
    if record.args and isinstance(record.args, tuple):
        arguments = tuple(_short(each) for each in record.args)
    else:
        msg = record.getMessage()[:LOG_MESSAGE_CHARACTERS_MAX].replace("%", "%%")
    kept = logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, msg, arguments, None)
    kept.created, kept.msecs = record.created, record.msecs
    return kept


def _short(value: object) -> Any:
    is_number = value is None or isinstance(value, bool | int | float)
    return value if is_number else str(value)[: LOG_MESSAGE_CHARACTERS_MAX // 10]
