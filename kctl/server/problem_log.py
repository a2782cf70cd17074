"""Logs what cannot be used, in ZooKeeper or among the properties: once, and again when the reason is another one.

The same thing is read again after each notification and in each session.

Owner: event loop.
"""

from __future__ import annotations

import logging


class ProblemLog:
    """The problems of one kind of thing, by the name of the thing."""

    def __init__(self, log: logging.Logger, text: str, level: int = logging.ERROR) -> None:
        """`text` is a log line with two places, for the name and for the reason."""
        self._log = log
        self._text = text
        self._level = level
        self._reported: dict[str, tuple[str, ...]] = {}

    def report(self, name: str, *reasons: str) -> None:
        """Takes all present problems of a thing, and logs the new ones; without any, the former ones are forgotten."""
        known = self._reported.get(name, ())
        if reasons:
            self._reported[name] = reasons
        else:
            self._reported.pop(name, None)
        for reason in reasons:
            if reason not in known:
                self._log.log(self._level, self._text, name, reason)
