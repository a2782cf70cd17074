"""Makes the response to a fetch from a reading: what a session has to send, and what a quota allows.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from uuid import UUID

from kctl.errors import ErrorCode
from kctl.limits import READ_PER_SLICE_MAX
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kctl.protocol.source import constructor
from kctl.server.loop.slices import pause, sliced_batches
from kctl.server.loop.tasks import in_thread
from kctl.server.peers.metadata import is_placeholder
from kctl.server.replication.fetching.fetch_reading import Fetch, FetchKey, Reading
from kctl.server.replication.fetching.fetch_session import NO_SESSION, FetchPosition, FetchSession
from kctl.server.requests.context import RequestContext
from kctl.server.requests.purgatory import Changes, Purgatory
from kctl.server.requests.record_work import RecordWork

_Results = Mapping[TopicPartition, PartitionData]
_Topics = dict[str, list[PartitionData]]
_response_of = constructor(FetchResponse)
_topic_response = constructor(FetchableTopicResponse)
_NO_ERROR = ErrorCode.NONE
"""A constant, because Python 3.11 takes 0.1 us to find a member of an enum."""
NOT_RECORDS_BYTES_MAX = 100 * READ_PER_SLICE_MAX
"""About the most that a response has besides records, unless it is made in slices.  A quota that is not nearly reached
is not compared with the exact size.
"""


class FetchReply:
    """The response to one request.

    `session` is the session that an incremental request continues; `create_session` creates one for a full request that
    has partitions, and returns None if there can be none.
    """

    def __init__(
        self,
        fetch: Fetch,
        session: FetchSession | None,
        create_session: Callable[[], FetchSession | None],
        context: RequestContext,
        topic_ids: Mapping[str, UUID],
    ) -> None:
        """`topic_ids` are the ids of topics by their names, empty if the client uses names."""
        self.fetch = fetch
        self._topic_ids = topic_ids
        self._session = session
        self._create_session = create_session
        self._context = context

    def response(self, reading: Reading) -> FetchResponse:
        """Return the response with this reading; an empty one if a quota is exceeded."""
        limited = self._context.limited
        if limited is not None and not limited.admits_fetch(reading.total_bytes + NOT_RECORDS_BYTES_MAX):
            account = self._context.account
            if account is not None and account.throttle_fetch(lambda: self._size_bytes(reading)):
                return self._response({}, self._session)
        session = self._session_of(reading)
        topics: _Topics = {}
        self._send(reading.results, reading, session, topics)
        if session is not None:
            self.fetch.rest(session, self.fetch.positions, reading)
        if not reading.is_urgent and not self.fetch.is_converted:
            self._context.successes = 1 + sum(map(len, topics.values()))
        return self._response(topics, session)

    async def response_sliced(self, reading: Reading) -> FetchResponse:
        """As `response`, for many partitions."""
        if not self.fetch.is_long:
            return self.response(reading)
        account = self._context.account
        if account is not None:
            assert self._context.limited is not None
            has_quota = self._context.limited.fetch is not None
            size_bytes = await self._size_bytes_sliced(reading) if has_quota else 0
            if account.throttle_fetch(lambda: size_bytes):
                return self._response({}, self._session)
        session = self._session_of(reading)
        topics: _Topics = {}
        # Reading, sending and resting take about as long: each begins with a slice of its own.
        await pause()
        async for results in sliced_batches(list(reading.results.items()), READ_PER_SLICE_MAX):
            self._send(dict(results), reading, session, topics)
        if session is not None:
            await pause()
            async for positions in sliced_batches(self.fetch.positions, READ_PER_SLICE_MAX):
                self.fetch.rest(session, positions, reading)
        return self._response(topics, session)

    def _session_of(self, reading: Reading) -> FetchSession | None:
        if self._session is not None or not reading.results:
            return self._session
        return self._create_session()

    def _send(self, results: _Results, reading: Reading, session: FetchSession | None, topics: _Topics) -> None:
        """Add these results to the response, in a session that continues only those that have changed."""
        self.fetch.note_sent(results, reading.record_bytes)
        if session is not None:
            changed = session.changes(results, reading.record_bytes)
            if session is self._session:
                results = {topic_partition: results[topic_partition] for topic_partition in changed}
        _add(results, topics)

    def _pending(self, results: _Results, reading: Reading, topics: _Topics) -> None:
        """As `_send`, for a response that may not be sent."""
        if self._session is not None:
            pending = self._session.pending(results, reading.record_bytes)
            results = {topic_partition: results[topic_partition] for topic_partition in pending}
        _add(results, topics)

    def _size_bytes(self, reading: Reading) -> int:
        """Return the size of the response with its length, as Kafka counts it for the quota."""
        topics: _Topics = {}
        self._pending(reading.results, reading, topics)
        return self._encoded_size(topics)

    async def _size_bytes_sliced(self, reading: Reading) -> int:
        topics: _Topics = {}
        await pause()
        async for results in sliced_batches(list(reading.results.items()), READ_PER_SLICE_MAX):
            self._pending(dict(results), reading, topics)
        return await in_thread(partial(self._encoded_size, topics))

    def _encoded_size(self, topics: _Topics) -> int:
        response = self._response(topics, None)
        return 4 + sum(len(chunk) for chunk in codec.encode(response, self.fetch.reader.version))

    def _response(self, topics: _Topics, session: FetchSession | None) -> FetchResponse:
        ids = self._topic_ids
        if ids:
            for topic, partitions in topics.items():
                if is_placeholder(topic):
                    for partition in partitions:
                        partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        return _response_of(
            error_code=_NO_ERROR,
            session_id=NO_SESSION if session is None else session.session_id,
            responses=[
                _topic_response(topic=topic, topic_id=ids.get(topic, ZERO_UUID), partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )


class DelayedFetch:
    """A fetch that waits until min_bytes are available."""

    def __init__(self, reply: FetchReply, future: asyncio.Future[FetchResponse]) -> None:
        self.future = future
        self._reply = reply

    def try_complete(self, changed: Collection[FetchKey]) -> bool:
        """Complete if min_bytes are available or something is urgent."""
        reading = self._reply.fetch.read_if_enough(changed)
        if reading is None:
            return False
        self._complete(reading)
        return True

    def try_complete_moved(self, changed: Collection[FetchPosition]) -> bool:
        """As `try_complete`, when these positions have changed."""
        reading = self._reply.fetch.read_if_moved(changed)
        if reading is not None:
            self._complete(reading)
        return reading is not None

    def on_timeout(self) -> None:
        """Complete with the records that are available."""
        self._complete(self._reply.fetch.read())

    def _complete(self, reading: Reading) -> None:
        if not self.future.done():
            self.future.set_result(self._reply.response(reading))


def _add(results: _Results, topics: _Topics) -> None:
    for topic_partition, result in results.items():
        topics.setdefault(topic_partition.topic, []).append(result)


# Fetches that take several iterations of the event loop: of many partitions, or with down-conversion.
#
# Partitions may change while others are read. So the purgatory collects changes from before the first partition is
# read until the response is made, and they are examined after the reading: none is lost between reading and waiting.
#
# Owner: event loop.


async def respond_sliced(
    reply: FetchReply, purgatory: Purgatory[FetchKey], work: RecordWork, max_wait_ms: int
) -> FetchResponse:
    """Read until there is enough, at most for `max_wait_ms`; the rules are those of DelayedFetch."""
    fetch = reply.fetch
    changes: Changes[FetchKey] = Changes()
    if max_wait_ms <= 0:
        changes.on_timeout()
        return await reply.response_sliced(await _read_enough(fetch, changes, work))
    stop = await purgatory.watch_sliced(changes, fetch.watched_keys, max_wait_ms)
    try:
        # Those that are active only now: one that has become active since the request arrived is not registered.
        async for positions in sliced_batches(fetch.active(), READ_PER_SLICE_MAX):
            fetch.watch(positions)
        reading = await _read_enough(fetch, changes, work)
    finally:
        stop()
    return await reply.response_sliced(reading)


async def _read_enough(fetch: Fetch, changes: Changes[FetchKey], work: RecordWork) -> Reading:
    """Return the first reading that is enough, or the last one before the timeout."""
    is_enough = False
    while True:
        # Taken before the reading: what becomes visible while partitions are read counts as a change.
        seen = fetch.upper_bounds() if fetch.is_converted else {}
        is_enough = changes.is_over or is_enough
        reading = await fetch.read_sliced() if fetch.is_long else fetch.read()
        if is_enough or fetch.is_enough(reading):
            if not fetch.is_converted:
                return reading
            # Records that have no form in the old format are left out; if none are left, the fetch waits again.
            has_records = await fetch.convert(reading, work)
            if has_records or changes.is_over or not fetch.positions or not fetch.needs_bytes:
                return reading
        fetch.wait_after(reading)
        await _until_enough(fetch, changes, seen)
        is_enough = True


async def _until_enough(fetch: Fetch, changes: Changes[FetchKey], seen: dict[TopicPartition, int]) -> None:
    """Wait until changes make a reading enough, or the timeout.

    `seen` are the end offsets that the reader of an old format had: the bytes before them may have no such form.
    """
    while not changes.is_over:
        changed = fetch.moved(await changes.take())
        if fetch.is_converted:
            changed = [
                position
                for position in changed
                if fetch.upper_bound_of(position.topic_partition) != seen[position.topic_partition]
            ]
        is_enough = False
        async for positions in sliced_batches(changed, READ_PER_SLICE_MAX):
            is_enough = fetch.has_become_enough(positions) or is_enough
        if is_enough:
            return
