"""Clients that fetch in sessions, as consumers and followers do, with some surprises."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kctl.errors import ErrorCode
from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from kctl.records.batch import iterate_batches
from tests.property.fetch_frames import FLEXIBLE, WITH_IDS, framed
from tests.property.topic_ids import id_of

FOLLOWER_ID = 1


class SessionClient:
    """One client, which has at most one request in flight."""

    def __init__(self, chance: random.Random, partitions: Sequence[tuple[str, int]], *, is_follower: bool) -> None:
        self.is_busy = False
        self._chance = chance
        self._version = chance.randrange(10, 19)
        self._isolation_level = 0 if is_follower else chance.choice((0, 1))
        self._is_follower = is_follower
        self._partitions = partitions
        self._session_id = 0
        self._epoch = 0
        self._positions: dict[tuple[str, int], FetchPartition] = {}
        self._changed: set[tuple[str, int]] = set()

    def frame(self) -> bytes:
        """The next request: a full one at first and after an error, else what has changed."""
        chance = self._chance
        self.is_busy = True
        forgotten = []
        if not self._session_id:
            self._positions = {place: self._new(*place) for place in chance.sample(self._partitions, 3)}
            listed = list(self._positions)
        else:
            listed = [place for place in self._positions if place in self._changed or chance.random() < 0.1]
            added = chance.choice(self._partitions)
            if chance.random() < 0.05 and added not in self._positions:
                self._positions[added] = self._new(*added)
                listed.append(added)
            if chance.random() < 0.05 and len(self._positions) > 1:
                removed = chance.choice(list(self._positions))
                del self._positions[removed]
                listed = [place for place in listed if place != removed]
                forgotten = [ForgottenTopic(topic=removed[0], partitions=[removed[1]])]
        self._changed.clear()
        return framed(self._request(listed, forgotten), self._version)

    def _request(self, listed: list[tuple[str, int]], forgotten: list[ForgottenTopic]) -> FetchRequest:
        chance = self._chance
        topics: dict[str, list[FetchPartition]] = {}
        for place in listed:
            topics.setdefault(place[0], []).append(self._positions[place])
        epoch = self._epoch + (chance.random() < 0.02)
        return FetchRequest(
            replica_id=FOLLOWER_ID if self._is_follower else -1,
            max_wait_ms=chance.choice((0, 100, 1_000, 1_000)),
            min_bytes=chance.choice((0, 1, 1, 1, 1, 700)),
            max_bytes=chance.choice((1 << 20, 1 << 20, 1 << 20, 300, 0)),
            isolation_level=self._isolation_level,
            session_id=self._session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
            forgotten_topics_data=forgotten,
        )

    def _new(self, topic: str, index: int) -> FetchPartition:
        return FetchPartition(
            partition=index,
            fetch_offset=0,
            log_start_offset=0 if self._is_follower else -1,
            partition_max_bytes=self._chance.choice((1 << 20, 1 << 20, 100)),
        )

    def take(self, frame: bytes) -> None:
        """Go on from a response: after the records that it has, if any."""
        self.is_busy = False
        response, _ = codec.decode(
            FetchResponse, memoryview(frame), self._version, 9 if self._version >= FLEXIBLE else 8
        )
        self._epoch = self._epoch + 1 if self._session_id else 1
        self._session_id = response.session_id
        if response.error_code:
            self._epoch = 0
        for topic in response.responses:
            if self._version >= WITH_IDS:
                topic.topic = next(name for name, _ in self._partitions if id_of(name) == topic.topic_id)
            for result in topic.partitions:
                position = self._positions.get((topic.topic, result.partition_index))
                if position is None:
                    continue
                if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or result.diverging_epoch is not None:
                    position.fetch_offset, position.last_fetched_epoch = 0, -1
                    self._changed.add((topic.topic, result.partition_index))
                records = result.records
                for header in iterate_batches(records) if isinstance(records, memoryview) else ():
                    position.fetch_offset = header.next_offset
                    position.last_fetched_epoch = (
                        header.leader_epoch if self._is_follower and self._version >= FLEXIBLE else -1
                    )
                    self._changed.add((topic.topic, result.partition_index))

    def fail(self) -> None:
        """Start again without a session: the connection was closed."""
        self.is_busy, self._session_id, self._epoch = False, 0, 0
