"""Log formatter that escapes control characters, so that a peer cannot inject lines or terminal sequences."""

from __future__ import annotations

import logging

from kctl.limits import LOG_MESSAGE_CHARACTERS_MAX
from kctl.terminal_text import escape, escape_lines


class EscapingFormatter(logging.Formatter):
    """logging.Formatter that escapes control characters, except line feeds of a traceback, and cuts long messages."""

    def __init__(self, fmt: str | None = None, process: int | None = None) -> None:
        """With `process`, each line ends with this key."""
        super().__init__(fmt)
        self._end = "" if process is None else f" process={process}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The log line without traceback: escaped, and cut to LOG_MESSAGE_CHARACTERS_MAX."""
        message = super().formatMessage(record)
        if len(message) > LOG_MESSAGE_CHARACTERS_MAX:
            message = message[: LOG_MESSAGE_CHARACTERS_MAX - 3] + "..."
        return escape(message) + self._end

    def format(self, record: logging.LogRecord) -> str:
        """The log line with the traceback, if there is one, on lines of its own."""
        return escape_lines(super().format(record))
