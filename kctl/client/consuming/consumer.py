"""Consumes given partitions from given offsets, without a group.

With a rack in its settings it fetches from the preferred read replica that the leader names (KIP-392) for at most
metadata.max.age.ms or until that replica returns an error; then it fetches from the leader again.

Positions are checked against the history in the log at the start, where their leader epoch is known, and when a leader
or its epoch changes (KIP-320; see kctl.client.consuming.positions).
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.client.cluster import ClusterClient
from kctl.client.connections.transport import ConnectionLost
from kctl.client.consuming.fetching.batches import (
    NO_REPLICA,
    FetchedPartition,
    FetchLimits,
    fetch_batches,
    visible_batches,
)
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.consuming.positions import Divergence, LogTruncated, Position, check_positions, leader_epochs
from kctl.client.consuming.read_history import ReadHistory
from kctl.client.metadata import ClusterMetadata, Topic, TopicIds
from kctl.client.retrying import LEADER_MOVED
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

Positions = Mapping[TopicPartition, int] | Mapping[TopicPartition, Position] | Mapping[TopicPartition, int | Position]
"""Offsets to read next; with a Position, the history before it is checked."""


class Consumer:
    """Fetches records and advances positions.  Owner: event loop, or the thread of a blocking transport."""

    def __init__(
        self,
        client: ClusterClient,
        positions: Positions,
        *,
        limits: FetchLimits | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self.history = ReadHistory()
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

    def assign(self, positions: Positions) -> None:
        """Replace the partitions and their positions."""
        self.positions = {tp: self._begin(tp, position) for tp, position in sorted(positions.items())}
        self.paused.intersection_update(positions)
        self._metadata = None
        self._near.clear()

    def restart_topic(self, topic: str, positions: Positions) -> None:
        """Replace the partitions of a topic, which may have another id now."""
        self._topic_ids.forget(topic)
        others = {tp: offset for tp, offset in self.positions.items() if tp.topic != topic}
        begun = {tp: at if isinstance(at, Position) else Position(at) for tp, at in positions.items()}
        self.assign({**others, **begun})

    @property
    def metadata(self) -> ClusterMetadata | None:
        """What is known about the topics; not older than metadata.max.age.ms after a poll."""
        return self._metadata

    def is_of(self, topic: Topic) -> bool:
        """Return whether the positions belong to a topic with this id; False if it has none."""
        return topic.topic_id != ZERO_UUID and self._topic_ids.get(topic.name) == topic.topic_id

    async def check_topics(self) -> None:
        """Look up the metadata.  Raises TopicRecreated if a topic was deleted and created again."""
        names = {tp.topic for tp in self.positions}
        self._topic_ids.check(await self._client.metadata(names), names)

    def restart(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Continue with these positions instead of those that LogTruncated has named."""
        self.positions.update((tp, self._begin(tp, position)) for tp, position in positions.items())

    def _begin(self, tp: TopicPartition, position: int | Position) -> int:
        if not isinstance(position, Position):
            return position
        self.history.begin(tp, position)
        return position.offset

    def drop(self, tp: TopicPartition) -> None:
        """Stop fetching a partition."""
        self.positions.pop(tp, None)
        self.paused.discard(tp)

    async def poll(self) -> list[tuple[TopicPartition, list[Record]]]:
        """Return the next records by partition, in order of the partitions; empty if none arrived in time.

        Positions advance past the returned records, and stay unchanged on an error.  Raises LogTruncated if the log
        no longer has the history before positions: `restart` sets others.  Raises ApiError (OFFSET_OUT_OF_RANGE,
        UNKNOWN_TOPIC_OR_PARTITION, ...), TopicRecreated when the positions belong to an earlier topic of the same name,
        CorruptBatch when a position reaches a damaged batch, and ClusterUnreachable when a partition has no leader for
        the client's timeout.
        """
        before = dict(self.positions)
        fetched = await self._fetch()
        if fetched and all(answer.preferred_read_replica != NO_REPLICA for answer in fetched):
            fetched = await self._fetch()  # All leaders named a preferred read replica: fetch from it.
        # A partition may have been dropped, paused or given another position in the meantime.
        counting = [
            answer
            for answer in sorted(fetched, key=lambda answer: answer.tp)
            if answer.tp in before
            and self.positions.get(answer.tp) == before[answer.tp]
            and answer.tp not in self.paused
        ]
        if any(answer.error is ErrorCode.OFFSET_OUT_OF_RANGE for answer in counting):
            await self._explain_out_of_range()
        # Decode all before any position advances, so that an error in one partition loses no records of another.
        taken = [(answer.tp, *self._decode(answer)) for answer in counting]
        for tp, _, position, epochs in taken:
            if position != self.positions[tp]:
                self.history.note_batches(tp, self.positions[tp], epochs, position)
            elif self._metadata is not None:
                self.history.note_reached(self._metadata, tp, position)
            self.positions[tp] = position
        return [(tp, records) for tp, records, _, _ in taken if records]

    async def _explain_out_of_range(self) -> None:
        """Explain positions outside of the log, which may be due to a truncation.  Raises LogTruncated."""
        self.history.forget_checks()
        self._metadata = await self._client.metadata({tp.topic for tp in self.positions})
        await self._check_history(self._metadata)

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

        epochs = {} if self._metadata is None else leader_epochs(self._metadata, self.positions)

        async def send_to(broker: int, positions: Mapping[TopicPartition, int]) -> list[FetchedPartition]:
            return await fetch_batches(
                await self._client.broker(broker),
                positions,
                limits=limits,
                isolation=self._isolation,
                rack=self._client.settings.rack,
                current_leader_epochs=epochs,
            )

        try:
            responses = await self._client.gather([send_to(broker, part) for broker, part in sorted(by_broker.items())])
        except ConnectionLost as lost:
            self._near.clear()
            await self._refresh_metadata(str(lost))
            return []
        fetched = [answer for response in responses for answer in response if self._counts(answer)]
        moved = next((answer for answer in fetched if answer.error in LEADER_MOVED), None)
        if moved is not None:
            await self._refresh_metadata(f"{moved.tp}: {moved.error.name}")
            fetched = [answer for answer in fetched if answer.error not in LEADER_MOVED]
        else:
            self._deadline = self._client.deadline()
        return fetched

    def _counts(self, fetched: FetchedPartition) -> bool:
        """Record the preferred read replica; ignore errors of that replica: the next fetch goes to the leader."""
        near = self._near.get(fetched.tp)
        if near is not None and fetched.error is not ErrorCode.NONE:
            del self._near[fetched.tp]
            return False
        if fetched.preferred_read_replica != NO_REPLICA:
            until_ms = self._client.transport.monotonic_ms() + self._client.settings.metadata_max_age_ms
            self._near[fetched.tp] = (fetched.preferred_read_replica, until_ms)
        return True

    def _near_broker(self, tp: TopicPartition, metadata: ClusterMetadata) -> int | None:
        """Return the preferred read replica, if it is alive and not expired."""
        near = self._near.get(tp)
        if near is None:
            return None
        broker, until_ms = near
        if broker in metadata.brokers and self._client.transport.monotonic_ms() < until_ms:
            return broker
        del self._near[tp]
        return None

    async def _brokers(self) -> dict[int, dict[TopicPartition, int]]:
        """Return the positions by the broker to fetch from: the leader or the preferred read replica.

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
        """Return the metadata, looked up again when it is unknown or old.  Raises TopicRecreated and LogTruncated."""
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
        await self._check_history(found)
        self._metadata = found
        self._metadata_end_ms = now_ms + self._client.settings.metadata_max_age_ms
        return found

    async def _check_history(self, metadata: ClusterMetadata) -> None:
        """Check positions whose leader is another one than at the last check.  Raises LogTruncated and ApiError."""
        offsets = self.positions
        due = self.history.to_check(metadata, offsets)
        outcomes = await check_positions(self._client, due, known=metadata)
        truncated = [outcome for outcome in outcomes.values() if isinstance(outcome, Divergence)]
        if truncated:
            raise LogTruncated(truncated)
        moved = {
            tp for tp, outcome in outcomes.items() if isinstance(outcome, ApiError) and outcome.code in LEADER_MOVED
        }
        self.history.note_checked(metadata, due.keys() - moved)  # The fetch reports other errors.
        for tp in moved:
            raise ClusterUnreachable(f"cannot check the position of {tp}: {outcomes[tp]}")

    async def _refresh_metadata(self, reason: str) -> None:
        self._metadata = None
        if not await self._deadline.pause():
            raise ClusterUnreachable(f"cannot continue to read: {reason}")

    def _decode(self, fetched: FetchedPartition) -> tuple[list[Record], int, list[tuple[int, int]]]:
        """Return the visible records, the position after all batches, including control and aborted ones, and leader
        epochs.

        Epochs with the offset of their first record, as ReadHistory.note_batches takes them.
        """
        position = self.positions[fetched.tp]
        if fetched.error is not ErrorCode.NONE:
            raise ApiError(fetched.error, f"{fetched.tp} at offset {position}: {fetched.error.description}")
        records: list[Record] = []
        epochs: list[tuple[int, int]] = []
        epoch = None
        start = position
        try:
            for header, is_visible in visible_batches(fetched, self._isolation):
                if header.next_offset <= position:
                    continue
                if not crc_ok(fetched.records, header):
                    raise CorruptBatch(header.position, "wrong checksum")
                if header.leader_epoch != epoch:
                    epoch = header.leader_epoch
                    epochs.append((max(position, header.base_offset), epoch))
                if is_visible:
                    records += [
                        record for record in iterate_records(fetched.records, header) if record.offset >= position
                    ]
                position = header.next_offset
        except CorruptBatch as damage:
            if position == start:
                raise CorruptBatch(damage.position, f"{fetched.tp} at offset {position}: {damage.reason}") from damage
            # Return the records before the damage; the next poll raises.
        return records, position, epochs
