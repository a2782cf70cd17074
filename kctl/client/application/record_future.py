"""The future of one record, which costs a tenth of what other futures cost.

A program that produces much looks at few of its futures.  Those of concurrent.futures have a condition, which costs
more than all else that is done for a record; here it is made for those who wait.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from typing import Any

from kctl.client.producing.batches import RecordMetadata
from kctl.errors import KctlError
from kctl.system.reference_cycles import copy_of

_STATES = threading.Lock()
"""Held while a state changes or a condition is made, so that no waiter misses the change."""


class RecordFuture(Future[RecordMetadata]):
    """A Future that is running: a record that was sent cannot be withdrawn."""

    _state: str = RUNNING
    _result: RecordMetadata | None = None
    _exception: BaseException | None = None
    _made: threading.Condition | None = None

    def __init__(self) -> None:
        """As the class has it: nobody waits."""

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """What those who wait for the future hold; the other attributes of Future are used while it is held."""
        with _STATES:
            if self._made is None:
                self._waiters: list[Any] = []
                self._done_callbacks: list[Any] = []
                self._made = threading.Condition()
            return self._made

    def settle(self, result: RecordMetadata | Exception) -> None:
        """Set the result or the error."""
        with _STATES:
            if isinstance(result, Exception):
                self._exception = result
            else:
                self._result = result
            self._state = FINISHED
        self.notify()

    def notify(self) -> None:
        """Wakes those who wait, after the result was set."""
        condition = self._made
        if condition is None:
            return
        with condition:
            for waiter in self._waiters:
                if self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]


def settle_all(futures: Sequence[RecordFuture], results: Sequence[RecordMetadata] | KctlError) -> None:
    """Set the results of the records of a batch, or the error of all."""
    if isinstance(results, KctlError):
        for future in futures:
            future.settle(copy_of(results))
        return
    with _STATES:  # once for a batch, because it costs as much as all else here
        for future, result in zip(futures, results, strict=True):
            future._result = result  # noqa: SLF001 - as `settle` does
            future._state = FINISHED  # noqa: SLF001
    for future in futures:
        if future._made is not None:  # noqa: SLF001
            future.notify()
