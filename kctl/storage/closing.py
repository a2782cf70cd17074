"""Closes the logs at shutdown: writes and syncs all state that is in memory only.  Kafka's LogManager.shutdown.

A log that cannot be closed takes its directory offline, which then gets no clean shutdown marker.  The other logs are
closed.  The files of all logs are released in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress

from kctl.errors import LogDirFailure
from kctl.storage.flushing import FlushPlan
from kctl.storage.log import Log

_CLOSED_AT_ONCE = 64
"""Files to be synced stay open until they are synced: up to six per log."""


def close_logs(logs: Sequence[Log], executor: Executor | None = None) -> None:
    """Leave the files as after a clean shutdown and release them; in parallel if there is an executor."""
    for start in range(0, len(logs), _CLOSED_AT_ONCE):
        _close(logs[start : start + _CLOSED_AT_ONCE], executor)


def _close(logs: Sequence[Log], executor: Executor | None) -> None:
    plans: list[tuple[Log, FlushPlan]] = []
    for log in logs:
        plan = _plan(log)
        if plan is None:
            log.release()
        else:
            plans.append((log, plan))
    run = map if executor is None else executor.map
    for (log, plan), error in zip(plans, run(_failure_of, [plan for _, plan in plans]), strict=True):
        if error is None:
            with suppress(LogDirFailure):  # LogDirectory.fail has logged it.
                log.flushed(plan)
        else:
            log.log_directory.fail(error)
        log.release()


def _plan(log: Log) -> FlushPlan | None:
    """Return the work to sync the log; None if it needs no sync or its directory is offline or fails now."""
    if not log.log_directory.is_online:
        return None
    try:
        return log.plan_close()
    except LogDirFailure:
        return None


def _failure_of(plan: FlushPlan) -> OSError | None:
    """Run the plan and return its error.  Called in a thread of the executor; changes no shared state."""
    try:
        plan.run()
    except OSError as error:
        return error
    return None
