"""Logs unusable data from ZooKeeper or the properties once, and again only when the reason changes.

The same data is read again after each notification and in each session.

Owner: event loop.
"""

from __future__ import annotations

import logging


class ProblemLog:
    """The problems of one kind of object, by the name of the object."""

    def __init__(self, log: logging.Logger, text: str, level: int = logging.ERROR) -> None:
        """`text` is the format of a log line with two arguments: the name and the reason."""
        self._log = log
        self._text = text
        self._level = level
        self._reported: dict[str, frozenset[str]] = {}

    def report(self, name: str, *reasons: str) -> None:
        """Log those of the object's present problems that are new; without problems, forget the former ones."""
        known = self._reported.get(name, frozenset())
        if reasons:
            self._reported[name] = frozenset(reasons)
        else:
            self._reported.pop(name, None)
        for reason in reasons:
            if reason not in known:
                self._log.log(self._level, self._text, name, reason)
