"""The option --log-format of the commands that start servers."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kctl.errors import UsageError
from kctl.output.log_lines import LogFormat

VARIABLE = "KCTL_LOG_FORMAT"

LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format", help=f"Write the log as text or as one JSON object per line; also {VARIABLE}.  Default: text."
    ),
]


def log_format_of(given: LogFormat | None) -> LogFormat:
    """Return the option, else the environment, else text.  Raises UsageError."""
    if given is not None:
        return given
    text = os.environ.get(VARIABLE) or LogFormat.TEXT
    try:
        return LogFormat(text)
    except ValueError:
        raise UsageError(f"{VARIABLE}={text}: must be one of {', '.join(LogFormat)}") from None
