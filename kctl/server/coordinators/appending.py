"""Appends of a coordinator to its log.

A coordinator stages a change in memory, appends its record, and ends the staging when the result of the append is
known.  So every append must have a result: a record that cannot be built, or an append that raises, counts as refused.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kctl.errors import ErrorCode
from kctl.server.coordinators.ports import AppendOutcome

log = logging.getLogger(__name__)


def append_or_refuse(
    append: Callable[[], AppendOutcome | asyncio.Future[AppendOutcome]], what: str
) -> AppendOutcome | asyncio.Future[AppendOutcome]:
    """Builds and appends a batch by calling `append`; returns UNKNOWN_SERVER_ERROR and logs the error if that raises.

    `what` identifies the batch in the log, as `key=value` pairs.
    """
    try:
        return append()
    except Exception:
        return refused(what)


def refused(what: str) -> AppendOutcome:
    """The result for a batch that cannot be built or appended; logs the exception that is handled."""
    log.exception("cannot append to the coordinator's log, refusing the request %s", what)
    return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR)
