"""Log formatter that escapes control characters, so that a peer cannot inject lines or terminal sequences."""

from __future__ import annotations

import logging

from kctl.terminal_text import escape, escape_lines


class EscapingFormatter(logging.Formatter):
    """logging.Formatter that escapes control characters, except the line feeds of a traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return escape(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return escape_lines(super().format(record))
