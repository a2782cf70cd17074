"""Which requests are to fail: the faults that a test has set with `fail_next`.

Pure: chance comes as an argument.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kctl.errors import ErrorCode
from kctl.limits import Subject, bound

FAILURES_MAX = bound(
    Subject.TESTS,
    "faults of requests that are set at the same time",
    1_000,
    "faults",
    on_excess="the command of the test is refused",
)
KIT_CLIENT_ID = "kctl-testing"
"""The client id of the test kit itself, whose requests neither fail nor are recorded."""
_BROKER = re.compile(r"broker-\d+-[a-z-]+")
"""The client ids of brokers (`peers.connections.Purpose`)."""


def is_of_client(client_id: str) -> bool:
    """Return whether a request comes from a client of the test: not from another broker, and not from the test kit."""
    return client_id != KIT_CLIENT_ID and _BROKER.fullmatch(client_id) is None


@dataclass(slots=True)
class Failure:
    """Requests of one API that fail."""

    id: int
    api_key: int
    code: ErrorCode
    topic: str | None
    """Only this topic fails, in requests that name it; None for whole requests."""
    client_id: str | None
    """Only the requests of this client fail; None for those of all clients, but not of brokers."""
    times: int | None
    """How many more requests fail; None without an end."""
    probability: float
    draw: Callable[[], float]
    """Returns the next number from 0 to 1; a request fails if it is below the probability."""
    failed: int = 0
    """How many requests have failed."""


class Failures:
    """All faults of a broker.  The first that matches a request counts, in the order in which they were set."""

    def __init__(self) -> None:
        self._failures: dict[int, Failure] = {}
        self._ended: deque[Failure] = deque(maxlen=FAILURES_MAX)
        """Those that have failed often enough, for the test that asks."""
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._failures)

    def add(
        self,
        api_key: int,
        code: ErrorCode,
        *,
        draw: Callable[[], float],
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
        probability: float = 1.0,
    ) -> Failure:
        """Add a fault.  Raises ValueError for values that have no meaning, and for too many faults."""
        if times is not None and times < 1:
            raise ValueError(f"times must be 1 or more, or None without an end, not {times}")
        if not 0 < probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, not {probability}")
        if len(self._failures) >= FAILURES_MAX:
            raise ValueError(f"{FAILURES_MAX} faults are set already: clear some")
        failure = Failure(self._next_id, api_key, code, topic, client_id, times, probability, draw)
        self._failures[failure.id] = failure
        self._next_id += 1
        return failure

    def find(self, failure_id: int) -> Failure | None:
        """Return a fault, also one that has ended; None for one that was removed."""
        ended = (failure for failure in self._ended if failure.id == failure_id)
        return self._failures.get(failure_id) or next(ended, None)

    def may_concern(self, api_key: int, client_id: str) -> bool:
        """Return whether a fault may match such a request: it is decoded only then."""
        return any(self._matches(failure, api_key, client_id) for failure in self._failures.values())

    def of(self, api_key: int) -> list[Failure]:
        """Return the faults of an API."""
        return [failure for failure in self._failures.values() if failure.api_key == api_key]

    def choose(self, api_key: int, client_id: str, topics: Iterable[str]) -> Failure | None:
        """Return the fault of a request that names these topics; None if it is to succeed."""
        named = frozenset(topics)
        for failure in self._failures.values():
            if not self._matches(failure, api_key, client_id):
                continue
            if failure.topic is not None and failure.topic not in named:
                continue
            if failure.probability < 1 and failure.draw() >= failure.probability:
                continue
            return failure
        return None

    def count(self, failure: Failure) -> None:
        """Count a request that has failed; a fault that has failed often enough is removed."""
        failure.failed += 1
        if failure.times is not None:
            failure.times -= 1
            if failure.times == 0:
                self._failures.pop(failure.id, None)
                self._ended.append(failure)

    def remove(self, failure_id: int | None = None) -> None:
        """Remove one fault, or all."""
        if failure_id is None:
            self._failures.clear()
        else:
            self._failures.pop(failure_id, None)

    @staticmethod
    def _matches(failure: Failure, api_key: int, client_id: str) -> bool:
        if failure.api_key != api_key:
            return False
        return is_of_client(client_id) if failure.client_id is None else failure.client_id == client_id
