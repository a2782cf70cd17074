"""The formats of a server's log."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    """The value of --log-format."""

    TEXT = "text"
    JSON = "json"
