"""What a server writes for log records."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable

from kctl.output.log_lines import FoldingHandler, LogFormat


def written_lines(records: Iterable[logging.LogRecord]) -> list[str]:
    """The lines of a server's log until it stops."""
    stream = io.StringIO()
    handler = FoldingHandler(stream, LogFormat.TEXT)
    for record in records:
        handler.handle(record)
    handler.close()
    return stream.getvalue().splitlines()
