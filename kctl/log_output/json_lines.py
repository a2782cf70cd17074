"""Log lines as JSON, one object per line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from math import isfinite

from kctl.limits import LOG_FIELDS_MAX, LOG_MESSAGE_CHARACTERS_MAX
from kctl.log_output.events import Event, Value, event_of

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
        """One line without its line feed."""
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
        return event_of(str(record.msg), record.args if isinstance(record.args, tuple) else ())
    except (ValueError, TypeError):
        return Event(record.getMessage(), {})


def _plain(value: Value) -> Value:
    if isinstance(value, str):
        return _cut(value)
    return value if not isinstance(value, float) or isfinite(value) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= LOG_MESSAGE_CHARACTERS_MAX else text[: LOG_MESSAGE_CHARACTERS_MAX - 3] + "..."
