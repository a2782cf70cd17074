"""Closing: at the end of a broker, what its logs have only in memory or unsynced reaches the disk.

A log that cannot be closed takes its directory offline, which then gets no mark of a clean shutdown; the others are
closed all the same.  All are released, whatever became of them.  Kafka's LogManager.shutdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from kctl.errors import LogDirFailure
from kctl.storage.flushing import FlushPlan
from kctl.storage.log import Log

_CLOSED_AT_ONCE = 64
"""What is to be synced is open until it is: up to six files of each log."""


def close_logs(logs: Sequence[Log], executor: Executor | None = None) -> None:
    """Leave the files as a clean shutdown does, several at a time where there is an executor, and let go of them."""
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
            log.flushed(plan)
        else:
            log.log_directory.fail(error)
        log.release()


def _plan(log: Log) -> FlushPlan | None:
    """What is left to be synced; None for a log that needs nothing, or whose directory is or goes offline."""
    if not log.log_directory.is_online:
        return None
    try:
        return log.plan_close()
    except LogDirFailure:
        return None


def _failure_of(plan: FlushPlan) -> OSError | None:
    """Runs the plan; in a thread of the executor, where it touches nothing shared."""
    try:
        plan.run()
    except OSError as error:
        return error
    return None
