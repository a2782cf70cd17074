"""Fetches that take several iterations of the event loop: of many partitions, or with down-conversion.

Partitions may change while others are read.  So the purgatory collects changes from before the first partition is read
until the response is made, and they are examined after the reading: none is lost between reading and waiting.

Owner: event loop.
"""

from __future__ import annotations

from kctl.limits import READ_PER_SLICE_MAX
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchResponse
from kctl.server.replication.fetch_reading import FetchKey, Reading
from kctl.server.replication.fetch_replies import FetchReply
from kctl.server.replication.fetch_session import FetchPosition
from kctl.server.requests.purgatory import Changes, Purgatory
from kctl.server.requests.record_work import RecordWork
from kctl.server.requests.slices import end_of, pause, pieces


class LongFetch:
    """One such fetch, with the rules of DelayedFetch."""

    def __init__(self, reply: FetchReply, purgatory: Purgatory[FetchKey], work: RecordWork) -> None:
        self._reply = reply
        self._fetch = reply.fetch
        self._purgatory = purgatory
        self._work = work
        self._changes: Changes[FetchKey] = Changes()

    async def response(self, max_wait_ms: int) -> FetchResponse:
        """Reads until there is enough, at most for `max_wait_ms`."""
        if max_wait_ms <= 0:
            self._changes.on_timeout()
            return await self._reply.response_in_slices(await self._enough())
        stop = await self._purgatory.watch_in_slices(self._changes, self._fetch.watched_keys, max_wait_ms)
        try:
            # Those that are active only now: one that has become active since the request arrived is not registered.
            for number, piece in enumerate(pieces(self._fetch.active(), READ_PER_SLICE_MAX)):
                if number:
                    await pause()
                self._fetch.watch(piece)
            reading = await self._enough()
        finally:
            stop()
        return await self._reply.response_in_slices(reading)

    async def _enough(self) -> Reading:
        """The first reading that is enough, or the last one before the timeout."""
        fetch, changes = self._fetch, self._changes
        is_enough = False
        while True:
            seen = fetch.upper_bounds() if fetch.is_converted else {}
            is_enough = changes.is_over or is_enough
            reading = await end_of(fetch.read_in_slices()) if fetch.is_long else fetch.read()
            if is_enough or fetch.is_enough(reading):
                if not fetch.is_converted:
                    return reading
                has_records = await fetch.convert(reading, self._work)
                if has_records or changes.is_over or not fetch.positions or not fetch.needs_bytes:
                    return reading
            fetch.wait_after(reading)
            is_enough = await self._has_become_enough(seen)

    async def _has_become_enough(self, seen: dict[TopicPartition, int]) -> bool:
        """Waits until changes make a reading enough, or the timeout.

        `seen` are the end offsets that the reader of an old format had: the bytes before them may have no such form.
        """
        fetch, changes = self._fetch, self._changes
        while not changes.is_over:
            changed = fetch.moved(await changes.take())
            if fetch.is_converted:
                changed = [each for each in changed if fetch.upper_bound_of(tp := each.topic_partition) != seen[tp]]
            if changed and await self._is_enough_with(changed):
                return True
        return True

    async def _is_enough_with(self, changed: list[FetchPosition]) -> bool:
        is_enough = False
        for piece in pieces(changed, READ_PER_SLICE_MAX):
            is_enough = self._fetch.has_become_enough(piece) or is_enough
            if len(changed) > READ_PER_SLICE_MAX:
                await pause()
        return is_enough
