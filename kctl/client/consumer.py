"""Consumes given partitions from given offsets, without a group.

With a rack in its settings it fetches from the preferred read replica that the leader names (KIP-392) for at most
metadata.max.age.ms or until that replica returns an error; then it fetches from the leader again.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.fetching import NO_REPLICA, FetchedPartition, FetchLimits, fetch_batches, visible_batches
from kctl.client.list_offsets import IsolationLevel
from kctl.client.metadata import ClusterMetadata, Topic, TopicIds
from kctl.client.retrying import LEADER_MOVED
from kctl.client.transport import ConnectionLost
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from kctl.model import ZERO_UUID, TopicPartition
from kctl.records.batch import crc_ok, iterate_records
from kctl.records.header import CorruptBatch, Record

SEVERAL_LEADERS_WAIT_MS = 100
"""`max_wait_ms` with several leaders: a poll returns when all have responded, so each may wait less."""
PAUSED_WAIT_MS = 100
"""How long a poll takes when all partitions are paused."""
INCOMPLETE_METADATA_MS = 1_000
"""How soon metadata is looked up again when topics were missing in it."""


class Consumer:
    """Fetches records and advances positions.  Owner: event loop, or the thread of a blocking transport."""

    def __init__(
        self,
        client: ClusterClient,
        positions: Mapping[TopicPartition, int],
        *,
        limits: FetchLimits | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        """Partitions that keep their positions but are not fetched."""
        self._client = client
        self._limits = limits or FetchLimits()
        self._isolation = isolation
        self._metadata: ClusterMetadata | None = None
        self._metadata_end_ms = 0
        """When the metadata is looked up again, even if nothing has failed."""
        self._topic_ids = TopicIds()
        self._near: dict[TopicPartition, tuple[int, int]] = {}
        """Preferred read replicas: the broker, and the time (ms) until which it is used."""
        self.assign(positions)
        self._deadline = client.deadline()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replaces the partitions and their positions."""
        self.positions = dict(sorted(positions.items()))
        self.paused.intersection_update(positions)
        self._metadata = None
        self._near.clear()

    def restart_topic(self, topic: str, positions: Mapping[TopicPartition, int]) -> None:
        """Replaces the partitions of a topic, which may have another id now."""
        self._topic_ids.forget(topic)
        self.assign({**{tp: offset for tp, offset in self.positions.items() if tp.topic != topic}, **positions})

    @property
    def metadata(self) -> ClusterMetadata | None:
        """What is known about the topics; not older than metadata.max.age.ms after a poll."""
        return self._metadata

    def is_of(self, topic: Topic) -> bool:
        """Whether the positions belong to a topic with this id; False if it has none."""
        return topic.topic_id != ZERO_UUID and self._topic_ids.get(topic.name) == topic.topic_id

    async def check_topics(self) -> None:
        """Looks up the metadata.  Raises TopicRecreated if a topic was deleted and created again."""
        names = {tp.topic for tp in self.positions}
        self._topic_ids.check(await self._client.metadata(names), names)

    def drop(self, tp: TopicPartition) -> None:
        """Stops fetching a partition."""
        self.positions.pop(tp, None)
        self.paused.discard(tp)

    async def poll(self) -> list[tuple[TopicPartition, list[Record]]]:
        """The next records by partition, in order of the partitions; empty if none arrived in time.

        Positions advance past the returned records, and stay unchanged on an error.  Raises ApiError
        (OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, ...), TopicRecreated when the positions belong to an earlier
        topic of the same name, CorruptBatch when a position reaches a damaged batch, and ClusterUnreachable when a
        partition has no leader for the client's timeout.
        """
        before = dict(self.positions)
        fetched = await self._fetch()
        if fetched and all(one.preferred_read_replica != NO_REPLICA for one in fetched):
            fetched = await self._fetch()  # All leaders named a preferred read replica: fetch from it.
        # A partition may have been dropped, paused or given another position in the meantime.
        counting = [
            one
            for one in sorted(fetched, key=lambda one: one.tp)
            if one.tp in before and self.positions.get(one.tp) == before[one.tp] and one.tp not in self.paused
        ]
        # Decode all before any position advances, so that an error in one partition loses no records of another.
        taken = [(one.tp, *self._decode(one)) for one in counting]
        self.positions.update((tp, position) for tp, _, position in taken)
        return [(tp, records) for tp, records, _ in taken if records]

    async def _fetch(self) -> list[FetchedPartition]:
        by_broker = await self._brokers()
        if not by_broker and self.paused:
            await self._client.transport.sleep(PAUSED_WAIT_MS)
        limits = self._limits
        if len(by_broker) > 1:
            limits = FetchLimits(
                min(limits.max_wait_ms, SEVERAL_LEADERS_WAIT_MS),
                limits.min_bytes,
                limits.max_bytes,
                limits.partition_max_bytes,
            )

        async def send_to(broker: int, positions: Mapping[TopicPartition, int]) -> list[FetchedPartition]:
            connection = await self._client.broker(broker)
            rack = self._client.settings.rack
            return await fetch_batches(connection, positions, limits=limits, isolation=self._isolation, rack=rack)

        try:
            responses = await self._client.gather([send_to(broker, part) for broker, part in sorted(by_broker.items())])
        except ConnectionLost as lost:
            self._near.clear()
            await self._refresh_metadata(str(lost))
            return []
        fetched = [one for response in responses for one in response if self._counts(one)]
        moved = next((one for one in fetched if one.error in LEADER_MOVED), None)
        if moved is not None:
            await self._refresh_metadata(f"{moved.tp}: {moved.error.name}")
            fetched = [one for one in fetched if one.error not in LEADER_MOVED]
        else:
            self._deadline = self._client.deadline()
        return fetched

    def _counts(self, fetched: FetchedPartition) -> bool:
        """Records the preferred read replica; ignores errors of that replica: the next fetch goes to the leader."""
        near = self._near.get(fetched.tp)
        if near is not None and fetched.error is not ErrorCode.NONE:
            del self._near[fetched.tp]
            return False
        if fetched.preferred_read_replica != NO_REPLICA:
            until_ms = self._client.transport.monotonic_ms() + self._client.settings.metadata_max_age_ms
            self._near[fetched.tp] = (fetched.preferred_read_replica, until_ms)
        return True

    def _near_broker(self, tp: TopicPartition, metadata: ClusterMetadata) -> int | None:
        """The preferred read replica, if it is alive and not expired."""
        near = self._near.get(tp)
        if near is None:
            return None
        broker, until_ms = near
        if broker in metadata.brokers and self._client.transport.monotonic_ms() < until_ms:
            return broker
        del self._near[tp]
        return None

    async def _brokers(self) -> dict[int, dict[TopicPartition, int]]:
        """Positions by the broker to fetch from: the leader or the preferred read replica.

        Partitions without a leader are omitted, and the metadata is refreshed.
        """
        metadata = await self._current_metadata()
        by_broker: dict[int, dict[TopicPartition, int]] = {}
        without_leader = None
        for tp, position in self.positions.items():
            if tp in self.paused:
                continue
            leader, code = metadata.leader_of(tp)
            if code in LEADER_MOVED:
                without_leader = f"{tp}: {code.name}"
            elif code is not ErrorCode.NONE:
                self._metadata = None  # A broker that has just started may not have its metadata yet.
                raise ApiError(code, f"{tp}: {code.description}")
            else:
                near = self._near_broker(tp, metadata)
                by_broker.setdefault(leader if near is None else near, {})[tp] = position
        if without_leader is not None:
            await self._refresh_metadata(without_leader)
        return by_broker

    async def _current_metadata(self) -> ClusterMetadata:
        """The metadata, looked up again when it is unknown or old.  Raises TopicRecreated."""
        now_ms = self._client.transport.monotonic_ms()
        if self._metadata is not None and now_ms < self._metadata_end_ms:
            return self._metadata
        names = {tp.topic for tp in self.positions}
        found = await self._client.metadata(names)
        self._topic_ids.check(found, names)
        if self._metadata is not None and any(topic.error is not ErrorCode.NONE for topic in found.topics.values()):
            # A broker that has just started may not have its metadata yet; of a deleted topic the leaders know.
            self._metadata_end_ms = now_ms + INCOMPLETE_METADATA_MS
            return self._metadata
        self._metadata = found
        self._metadata_end_ms = now_ms + self._client.settings.metadata_max_age_ms
        return found

    async def _refresh_metadata(self, reason: str) -> None:
        self._metadata = None
        if not await self._deadline.pause():
            raise ClusterUnreachable(f"cannot continue to read: {reason}")

    def _decode(self, fetched: FetchedPartition) -> tuple[list[Record], int]:
        """The visible records, and the position after all batches, including control and aborted ones."""
        position = self.positions[fetched.tp]
        if fetched.error is not ErrorCode.NONE:
            raise ApiError(fetched.error, f"{fetched.tp} at offset {position}: {fetched.error.description}")
        records: list[Record] = []
        start = position
        try:
            for header, is_visible in visible_batches(fetched, self._isolation):
                if header.next_offset <= position:
                    continue
                if not crc_ok(fetched.records, header):
                    raise CorruptBatch(header.position, "wrong checksum")
                if is_visible:
                    records += [one for one in iterate_records(fetched.records, header) if one.offset >= position]
                position = header.next_offset
        except CorruptBatch as damage:
            if position == start:
                raise CorruptBatch(damage.position, f"{fetched.tp} at offset {position}: {damage.reason}") from damage
            # Return the records before the damage; the next poll raises.
        return records, position
