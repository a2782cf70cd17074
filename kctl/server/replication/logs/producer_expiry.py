"""Removes the state of idle producers from all logs, and bounds the number of producers over all of them.

The state of a producer is removed when the producer has written nothing to the partition for producer.id.expiration.ms,
by the timestamps of its batches, as in Apache Kafka (KIP-854).  Timestamps come from clients: a producer that writes
old records is kept for IDLE_MIN_S, or for that property if it is shorter, after it has written.

A broker with more than PRODUCERS_MAX removes those earlier that have been idle the longest, but none that has written
within IDLE_MIN_S: a client repeats a batch for delivery.timeout.ms, 2 minutes by default, and the repetition must be
recognised.  If that is not enough, leaders refuse batches of producers that they do not know.

Owner: event loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from kctl.limits import PRODUCERS_MAX, SLICE_OBJECTS
from kctl.server.loop.slices import Slices, batches, sliced, sliced_batches
from kctl.storage.log.log import Log
from kctl.storage.state.producer_state import ProducerState
from kctl.system.environment import Clock

log = logging.getLogger(__name__)

ROUND_S = 10
"""The time between two counts of all producers."""
IDLE_MIN_S = 900
"""Producers that have written within this time are not removed before producer.id.expiration.ms."""
_ROUNDS_IDLE_MIN = IDLE_MIN_S // ROUND_S
_LEFT_SHARE = 0.9
_LOG_COST = 4
"""A log takes as long as so many producers."""
"""How full a broker is after producers were removed early."""


def early_cutoff(by_round: Counter[int], excess: int, current_round: int) -> int:
    """Return the round before which a producer must have written last to be removed early, so that `excess` are; pure.

    `by_round` counts the producers by the round in which they wrote last.
    """
    removed = 0
    for last_round in sorted(by_round):
        if removed >= excess or last_round > current_round - _ROUNDS_IDLE_MIN:
            return last_round
        removed += by_round[last_round]
    return current_round - _ROUNDS_IDLE_MIN + 1


async def largest_producer_id(logs: Iterable[Log], below: int) -> int:
    """Return the largest id below `below` of the producers in these logs, or -1; in slices."""
    largest = -1
    async for log in sliced(logs):
        async for producer_ids in sliced_batches(list(log.producer_state.producers)):
            largest = max(largest, max((known for known in producer_ids if known < below), default=-1))
    return largest


class ProducerExpiry:
    """Call `count` every ROUND_S, and `expire` every producer.id.expiration.check.interval.ms."""

    def __init__(self, logs: Callable[[], Iterable[Log]], clock: Clock) -> None:
        """Prepare the expiry; `logs` returns all logs of the broker."""
        self._logs = logs
        self._clock = clock
        self._round = 0
        self._is_full = False

    async def expire(self, expiration_ms: int) -> None:
        """Remove the producers that were idle for this time."""
        now_ms = self._clock.now_ms()
        written_before = self._round - min(expiration_ms // (ROUND_S * 1000) + 1, _ROUNDS_IDLE_MIN)

        def expired(state: ProducerState, producer_ids: Iterable[int]) -> int:
            return state.expire(producer_ids, written_before, now_ms - expiration_ms)

        removed = await self._remove(expired)
        if removed:
            log.info("expired idle producers=%d", removed)

    async def count(self) -> None:
        """Count the producers of all logs; above the bound, remove some early, or let leaders refuse new ones."""
        self._round += 1
        total = 0
        async for partition_log in sliced(self._logs()):
            state = partition_log.producer_state
            state.begin_round(self._round)
            state.is_full = self._is_full
            total += len(state.producers)
        if total > PRODUCERS_MAX:
            total -= await self._remove_early(total)
        is_full = total > PRODUCERS_MAX
        if is_full != self._is_full:
            self._is_full = is_full
            async for partition_log in sliced(self._logs()):
                partition_log.producer_state.is_full = is_full
            if is_full:
                message = "too many producers, refusing batches of new producer ids producers=%d limit=%d idle_min_s=%d"
                log.warning(message, total, PRODUCERS_MAX, IDLE_MIN_S)
            else:
                log.info("accepting new producer ids again producers=%d limit=%d", total, PRODUCERS_MAX)

    async def _remove_early(self, total: int) -> int:
        by_round: Counter[int] = Counter()
        slices = Slices(SLICE_OBJECTS)
        async for partition_log in slices.of(self._logs(), lambda _: _LOG_COST):
            state = partition_log.producer_state
            async for entries in slices.of(batches(list(state.producers.values())), len):
                by_round.update(map(state.last_round, entries))
        cutoff = early_cutoff(by_round, total - int(PRODUCERS_MAX * _LEFT_SHARE), self._round)

        def expired(state: ProducerState, producer_ids: Iterable[int]) -> int:
            return state.expire(producer_ids, cutoff)

        removed = await self._remove(expired)
        if removed:
            message = "too many producers, removed those that were idle the longest removed=%d producers=%d limit=%d"
            log.warning(message, removed, total - removed, PRODUCERS_MAX)
        return removed

    async def _remove(self, expire: Callable[[ProducerState, Iterable[int]], int]) -> int:
        removed = 0
        slices = Slices(SLICE_OBJECTS)
        async for partition_log in slices.of(self._logs(), lambda _: _LOG_COST):
            state = partition_log.producer_state
            async for producer_ids in slices.of(batches(list(state.producers)), len):
                removed += expire(state, producer_ids)
        return removed
