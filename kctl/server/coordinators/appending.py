"""The one way in which a coordinator appends to its log.

A coordinator stages a change in memory, appends its record, and ends the staging when the outcome of the append is
known.  So the outcome must always become known: a record that cannot be built, or an append that raises, is a refusal
like any other.

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
    """Builds and appends a batch by calling `append`; UNKNOWN_SERVER_ERROR with a trace in the log if that raises.

    `what` names the batch for the log, as `key=value` pairs.
    """
    try:
        return append()
    except Exception:
        log.exception("event=append_failed %s", what)
        return AppendOutcome(ErrorCode.UNKNOWN_SERVER_ERROR)
