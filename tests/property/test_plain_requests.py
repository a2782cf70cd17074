"""Produce and Fetch requests that are read into flat values have the effects and answers of those that are decoded.

Two brokers with the same topics get the same frames at the same times; one of them decodes each request.  Compared are
responses and failures, the order of what waits, log files and indexes, high watermarks, producers, all counters, and
what is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random
from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kctl.errors import ApiError, KctlError
from kctl.model import TopicPartition
from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.records.build import build_batch
from kctl.records.compiled.fetch_frame import read_plain_fetch
from kctl.records.compiled.produce_frame import read_plain_produce
from kctl.records.compression import Codec
from kctl.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker
from kctl.records.header import Record
from kctl.security.acls import CLUSTER_NAME, Operation, ResourceType
from kctl.security.authorization import Granted
from kctl.server.handlers.fetch import FIRST_VERSION_WITH_IDS, FetchHandler
from kctl.server.handlers.produce import ProduceHandler
from kctl.server.network.connections.channel import ThrottledReply
from kctl.server.network.dispatch import Dispatcher, PlainHandler
from kctl.server.peers.connections import address_of
from kctl.server.peers.metadata import MetadataCache
from kctl.server.replication.fetching.fetch_session import FetchPosition, FetchSession, FetchSessionCache
from kctl.server.replication.fetching.plain_fetch import PlainFetchHandler
from kctl.server.replication.fetching.replica_selector import ReplicaSelector
from kctl.server.replication.partition import FollowerState, Partition
from kctl.server.replication.plain_produce import PlainProduceHandler
from kctl.server.replication.throttles import ReplicationThrottles
from kctl.server.requests.context import EVERYTHING_ALLOWED, Audited, Peer
from kctl.server.requests.quotas.client_quotas import ClientQuotas
from kctl.server.requests.record_work import RecordWork
from kctl.server.requests.recorder import RequestRecorder
from kctl.storage.files import Buffer, File, RealFile, RealFiles
from kctl.testing.sim_loop import SimLoop, simulate
from tests.property.examples import share_of
from tests.property.fetch_frames import framed as framed_fetch
from tests.property.fetch_frames import unusual_fetches, usual_fetch, usual_request
from tests.property.produce_frames import changed, damaged, framed, unusual_frames
from tests.property.session_clients import SessionClient
from tests.property.topic_ids import id_of, names_by_id
from tests.unit.handlers.disk import Disk

TOPICS: dict[str, dict[str, str]] = {
    "orders": {},
    "paid": {"cleanup.policy": "compact"},
    "small": {"segment.bytes": "900", "max.message.bytes": "500", "index.interval.bytes": "0"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "recent": {"message.timestamp.difference.max.ms": "1000"},
    "zipped": {"compression.type": "gzip"},
    "synced": {"flush.messages": "2"},
    "copied": {},
    "strict": {"min.insync.replicas": "2"},
    "elsewhere": {},
    "secret": {},
}
FOLLOWED = {"copied", "strict"}
NAMES = (*TOPICS, *["orders"] * 9, "copied", "copied", "unknown", "__consumer_offsets")
INDEXES = (0, 0, 0, 1, 1, 7)
STEPS = 70
WAIT_MS = 500
FETCH_MAX_BYTES = 1_000
CLIENT = "client"
TRANSACTIONAL = 77
TRANSACTIONAL_ID = "orders"
QUOTAS: tuple[dict[str, str], ...] = (
    {"producer_byte_rate": "1000000"},
    {"producer_byte_rate": "200", "request_percentage": "90"},
    {"consumer_byte_rate": "300"},
    {"request_percentage": "1", "consumer_byte_rate": "1000000"},
    {"request_percentage": "0.1"},
)


class Grants:
    """Allows everything but one topic; it knows most others for sure."""

    def __init__(self) -> None:
        client = ("User:a", "/127.0.0.1")
        known = {*TOPICS, "unknown"} - {"secret", "paid"}
        self.granted: Granted = {
            (*client, Operation.WRITE, ResourceType.TOPIC): known,
            (*client, Operation.READ, ResourceType.TOPIC): known,
            (*client, Operation.CLUSTER_ACTION, ResourceType.CLUSTER): {CLUSTER_NAME},
            (*client, Operation.WRITE, ResourceType.TRANSACTIONAL_ID): {TRANSACTIONAL_ID},
        }
        self.audited = Audited()

    def allows(
        self, peer: Peer, operation: Operation, kind: ResourceType, name: str, *, api: str, is_logged: bool = True
    ) -> bool:
        del peer, operation, kind, api, is_logged
        return name != "secret"

    def allows_on_any(self, peer: Peer, operation: Operation, kind: ResourceType, *, api: str) -> bool:
        del peer, operation, kind, api
        return True


class Sender:
    """Frames by a seed: in order, repeated or out of order for the idempotent producers."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._sequences: dict[tuple[str, int, int], int] = {}

    def frame(self) -> bytes:
        chance = self._chance
        match chance.randrange(20):
            case 0:
                return chance.choice(list(unusual_frames(chance))).content
            case 1:
                return chance.choice(list(unusual_fetches(chance, names=NAMES, indexes=INDEXES)))
            case 2:
                return damaged(self._request(), chance)
            case 3:
                return damaged(usual_fetch(chance, names=NAMES, indexes=INDEXES), chance)
            case 4:
                fetch = usual_request(chance, NAMES, INDEXES)
                topic, index = fetch.topics[0].topic, chance.choice((0, 1))
                position = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                fetch.topics.append(FetchTopic(topic=topic, partitions=[position]))
                return framed_fetch(fetch, 11)
            case number if number < 10:
                return usual_fetch(chance, names=NAMES, indexes=INDEXES)
            case _:
                return self._request()

    def _request(self) -> bytes:
        chance = self._chance
        topics = [self._topic(chance.choice(NAMES)) for _ in range(chance.choice((1, 1, 1, 2)))]
        request = ProduceRequest(
            transactional_id=chance.choice((None, TRANSACTIONAL_ID, TRANSACTIONAL_ID, "secret")),
            acks=chance.choice((0, 1, -1, -1)),
            timeout_ms=WAIT_MS,
            topic_data=topics,
        )
        return framed(request, chance.randrange(3, 14), client_id=chance.choice(("", CLIENT))).content

    def _topic(self, name: str) -> TopicProduceData:
        indexes = [self._chance.choice(INDEXES) for _ in range(self._chance.choice((1, 1, 1, 3)))]
        data = [PartitionProduceData(index=index, records=self._batch(name, index)) for index in indexes]
        return TopicProduceData(name=name, partition_data=data)

    def _batch(self, topic: str, index: int) -> bytes:
        chance = self._chance
        key = None if chance.random() < 0.1 else b"key"
        base = chance.choice((-1, 0, 1_700_000_000_000))
        records = [
            Record(0, base + number, key, bytes(chance.choice((1, 30, 300)))) for number in range(chance.choice((1, 3)))
        ]
        codec = chance.choice((Codec.NONE,) * 6 + (Codec.GZIP, Codec.LZ4))
        producer_id = chance.choice((-1, -1, 5, 6))
        if producer_id < 0:
            return build_batch(records, codec=codec)
        place = (topic, index, producer_id)
        sequence = self._sequences.get(place, 0)
        match chance.randrange(6):
            case 0:
                sequence = max(sequence - len(records), 0)
            case 1:
                sequence += 2
            case _:
                self._sequences[place] = sequence + len(records)
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=chance.choice((1, 1, 1, 1, 0)),
            base_sequence=sequence,
            is_transactional=chance.random() < 0.2,
        )
        return changed(batch, max_timestamp=7) if chance.random() < 0.05 else batch


class NoIsrChanges:
    """The in-sync replicas stay as they are."""

    def may_expand(self, partition: Partition, replica_id: int) -> None:
        del partition, replica_id


class FullDisk(RealFiles):
    """Fails to write when it is full."""

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: str, *, create: bool = False) -> File:
        opened = super().open(path, create=create)
        return FileOnFullDisk(path, os.dup(opened.fileno()), self)


class FileOnFullDisk(RealFile):
    """A file of it."""

    __slots__ = ("_disk",)

    def __init__(self, path: str, fd: int, disk: FullDisk) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def write_at(self, position: int, data: Buffer) -> None:
        if self._disk.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(position, data)


class Logged(logging.Handler):
    """What is logged, without the folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = str(folder)
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage().replace(self._folder, "")))


class Outcome:
    """What one of the brokers did."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.state: dict[str, object] = {}
        self.plain_counts = {"produce": 0, "fetch": 0}


def play(folder: Path, seed: int, *, is_plain: bool) -> Outcome:
    """Sends the frames of a seed to one broker, with what happens in between."""
    outcome = Outcome()

    async def main(loop: SimLoop) -> None:
        chance = random.Random(seed)
        files = FullDisk()
        disk = Disk(loop, folder, live=(0, 1), files=files)
        for topic, config in TOPICS.items():
            assert not disk.configs.set_topic(topic, config)
        moved = disk.replicas.partitions_moved

        def moved_slowly(topic_partitions: Collection[TopicPartition]) -> None:
            loop.pass_time(0.001)  # A part of what the quota of request time counts.
            moved(topic_partitions)

        disk.replicas.partitions_moved = moved_slowly  # type: ignore[method-assign]
        disk.replicas.min_insync_replicas = lambda topic: 2 if topic == "strict" else 1
        partitions = [_lead(disk, topic, index) for topic in TOPICS for index in (0, 1)]
        quotas = ClientQuotas(disk.configs.current, disk.clock, address_of)
        if chance.random() < 0.3:
            await quotas.replace({f"clients/{CLIENT}": chance.choice(QUOTAS)})
        dispatcher, metadata = Dispatcher(quotas, loop.time), MetadataCache()
        metadata.names_by_id |= names_by_id(TOPICS)
        dispatcher.topic_names = metadata.names_by_id
        handler = ProduceHandler(disk.replicas, disk.purgatory, RecordWork(), disk.clock, metadata)
        dispatcher.register("produce", handler.handle, for_long=handler.handle_long)
        sessions, throttles = FetchSessionCache(10), ReplicationThrottles(0, disk.configs)
        fetch = _fetch_handler(disk, sessions, throttles, metadata)
        dispatcher.register("fetch", fetch.handle)
        if is_plain:
            plain = PlainProduceHandler(disk.replicas, disk.purgatory, disk.clock)
            dispatcher.register_plain("produce", read_plain_produce, _counted("produce", plain.handle, outcome))
            plain_fetch = PlainFetchHandler(
                disk.replicas,
                disk.replicas._fetch_purgatory,
                sessions,
                fetch,
                quota=throttles.leader,
                clock=disk.clock,
                fetch_max_bytes=FETCH_MAX_BYTES,
                metadata=metadata,
            )
            dispatcher.register_plain("fetch", read_plain_fetch, _counted("fetch", plain_fetch.handle, outcome))
        dispatcher.access = Grants() if chance.random() < 0.3 else EVERYTHING_ALLOWED
        if chance.random() < 0.7:
            dispatcher.recorder = RequestRecorder(loop.time)
        peer = Peer("/127.0.0.1", "PLAINTEXT", "User:a")
        sender, waiting, clients = Sender(chance), [], _session_clients(chance)
        for step in range(STEPS):
            await _happen(chance, disk, partitions, files)
            idle = [client for client in clients if not client.is_busy]
            client = chance.choice(idle) if idle and chance.random() < 0.5 else None
            frame = memoryview(bytearray(sender.frame() if client is None else client.frame()))
            try:
                answer = dispatcher.handle(frame, peer)
            except KctlError as error:
                outcome.answers.append((step, type(error), str(error)))
                if client is not None:
                    client.fail()
            else:
                if isinstance(answer, asyncio.Future):
                    waiting.append(asyncio.ensure_future(_note(step, answer, outcome, client)))
                else:
                    _answered(step, answer, outcome, client)
            frame[:] = bytes(len(frame))  # The connection uses its buffer for other bytes.
            outcome.answers.append([_session_state(session) for session in sessions._sessions.values()])
        await asyncio.sleep(2 * WAIT_MS / 1000)
        await asyncio.gather(*waiting)
        outcome.state = _state(disk, partitions, dispatcher, quotas)
        disk.close()

    logged, logger = Logged(folder), logging.getLogger("kctl")
    logger.addHandler(logged)
    try:
        simulate(main, seed=seed)
    finally:
        logger.removeHandler(logged)
    outcome.state["log"] = logged.lines
    outcome.state["files"] = {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("0*")) if path.is_file()
    }
    return outcome


def _session_clients(chance: random.Random) -> list[SessionClient]:
    """Two consumers of some partitions, and a follower."""
    consumed = [(topic, index) for topic in (*TOPICS, "unknown") for index in (0, 1)]
    copied = [(topic, index) for topic in (*sorted(FOLLOWED), "orders") for index in (0, 1)]
    return [
        SessionClient(chance, [*consumed[:2], copied[0]], is_follower=False),
        SessionClient(chance, consumed, is_follower=False),
        SessionClient(chance, copied[:3], is_follower=True),
        SessionClient(chance, copied, is_follower=True),
    ]


def _session_state(session: FetchSession) -> object:
    def fields(position: FetchPosition) -> object:
        return [
            getattr(position, name)
            for name in FetchPosition.__slots__
            if name not in {"session", "follower", "watched"}
        ], position.watched is None

    return (
        session.session_id,
        session.epoch,
        session.last_used_ms,
        session.followed_ms,
        session.reader,
        [fields(position) for position in session.positions.values()],
        [position.topic_partition for position in session.active()],
        list(session._moved),
    )


def _follower_state(follower: FollowerState) -> object:
    fields = [getattr(follower, name) for name in FollowerState.__slots__ if name != "session"]
    return fields, follower.last_caught_up_ms


def _fetch_handler(
    disk: Disk, sessions: FetchSessionCache, throttles: ReplicationThrottles, metadata: MetadataCache
) -> FetchHandler:
    return FetchHandler(
        disk.replicas,
        disk.replicas._fetch_purgatory,
        sessions,
        NoIsrChanges(),  # type: ignore[arg-type]
        throttles=throttles,
        selector=ReplicaSelector(disk.metadata, None),
        clock=disk.clock,
        random=random.Random(1),
        work=RecordWork(),
        fetch_max_bytes=FETCH_MAX_BYTES,
        metadata=metadata,
    )


def _lead(disk: Disk, topic: str, index: int) -> Partition:
    leader = 1 if topic == "elsewhere" else 0
    replicas = (0, 1) if topic in FOLLOWED or leader else (0,)
    return disk.lead(topic, index, leader=leader, replicas=replicas, isr=(0,) if topic == "strict" and index else None)


def _counted(api: str, handle: PlainHandler, outcome: Outcome) -> PlainHandler:
    def counted(*arguments: Any) -> Any:
        result = handle(*arguments)
        outcome.plain_counts[api] += result is not None
        return result

    return counted


async def _happen(chance: random.Random, disk: Disk, partitions: Sequence[Partition], files: FullDisk) -> None:
    """Time passes, followers fetch, a leader changes, or the disk is full, which takes the log directory offline."""
    match chance.randrange(40):
        case number if number < 12:
            await asyncio.sleep(chance.choice((0, 0.01, 0.1, 1)))
        case number if number < 24:
            for partition in partitions:
                if partition.followers and partition.record_fetch(
                    1, partition.log.log_end_offset, 0, disk.clock.monotonic_ms()
                ):
                    disk.replicas.partition_moved(partition.topic_partition)
        case 24:
            partition = chance.choice(partitions)
            if partition.leader == 0:
                disk.lead(*partition.topic_partition, replicas=partition.replicas)
        case 25:
            partition = chance.choice(partitions)
            disk.lead(*partition.topic_partition, leader=1, replicas=(0, 1))
            disk.replicas.partition_moved(partition.topic_partition)
        case 27 | 28:
            _go_on(chance, partitions[0], disk)
        case 26:
            files.is_full = chance.random() < 0.2
        case _:
            pass


def _go_on(chance: random.Random, partition: Partition, disk: Disk) -> None:
    """Write records of a transaction, or end it."""
    if partition.leader:
        return
    producer = TRANSACTIONAL
    if chance.random() < 0.5:
        batch = build_batch(
            [Record(0, 0, b"key", b"value")],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    else:
        marker = EndTransactionMarker(chance.choice((ControlType.ABORT, ControlType.COMMIT)), 0)
        batch = build_end_transaction_marker(marker, producer_id=producer, producer_epoch=0, timestamp=0)
    with contextlib.suppress(ApiError):
        disk.replicas.append(
            partition, memoryview(bytearray(batch)), required_acks=1, request_version=9, from_client=False
        )
        disk.replicas.partition_moved(partition.topic_partition)


async def _note(step: int, answer: asyncio.Future[Any], outcome: Outcome, client: SessionClient | None) -> None:
    try:
        _answered((step, "later"), await answer, outcome, client)
    except KctlError as error:
        outcome.answers.append((step, "later", type(error), str(error)))
        if client is not None:
            client.fail()


def _answered(step: object, answer: Any, outcome: Outcome, client: SessionClient | None) -> None:
    content = _bytes_of(answer)
    outcome.answers.append((step, content))
    if client is not None:
        frame = content[1] if isinstance(content, tuple) else content
        assert isinstance(frame, bytes)
        client.take(frame)


def _bytes_of(answer: Any) -> object:
    if isinstance(answer, ThrottledReply):
        return answer.mute_ms, _bytes_of(answer.chunks)
    return None if answer is None else b"".join(chunk if isinstance(chunk, bytes) else chunk.read() for chunk in answer)


def _state(
    disk: Disk, partitions: Sequence[Partition], dispatcher: Dispatcher, quotas: ClientQuotas
) -> dict[str, object]:
    recorder = dispatcher.recorder
    traffic = disk.replicas.traffic
    return {
        "partitions": [
            (
                partition.high_watermark,
                partition.log.log_end_offset,
                partition.log.segment_count,
                partition.log.size_bytes,
                partition.log.awaits_flush,
                partition.log.producer_state.end_offset,
                [(each.producer_id, each.epoch, each.batches) for each in partition.log.producer_state.capture()],
                partition.log.active_segment.largest_timestamp,
            )
            for partition in partitions
        ],
        "traffic": [{name: asdict(each) for name, each in traffic.topics.items()}, asdict(traffic.others)],
        "requests": None
        if recorder is None
        else {
            name: (list(each.versions), each.error_codes, each.until_timed)
            for name, each in (*recorder.apis.items(), ("followers", recorder.follower_fetches))
        },
        "latest API": dispatcher.latest_api,
        "waiting": len(disk.purgatory),
        "followers": [
            {replica: _follower_state(follower) for replica, follower in partition.followers.items()}
            for partition in partitions
        ],
        "quotas": quotas.readings(),
    }


@pytest.mark.long
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=share_of(24), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_have_the_same_effects_and_answers(tmp_path_factory: Any, seed: int) -> None:
    decoded = play(tmp_path_factory.mktemp("decoded"), seed, is_plain=False)
    plain = play(tmp_path_factory.mktemp("plain"), seed, is_plain=True)
    assert plain.answers == decoded.answers
    assert plain.state == decoded.state
    assert not any(decoded.plain_counts.values())
    assert sum(plain.plain_counts.values()) >= 1


LONG_SESSION = 260
"""More partitions than one slice has, so that a fetch of the session waits in a task."""


@pytest.mark.long
def test_long_sessions_have_the_same_answers(tmp_path: Path) -> None:
    """All positions of the session rest after two requests; then one partition changes while the next one waits."""
    answers: dict[bool, list[bytes]] = {False: [], True: []}

    async def main(loop: SimLoop, *, is_plain: bool) -> None:
        folder = tmp_path / str(is_plain)
        folder.mkdir()
        disk = Disk(loop, folder)
        partitions = [disk.lead("orders", index) for index in range(LONG_SESSION)]
        sessions, throttles = FetchSessionCache(10), ReplicationThrottles(0, disk.configs)
        metadata = MetadataCache()
        fetch = _fetch_handler(disk, sessions, throttles, metadata)
        dispatcher = Dispatcher(ClientQuotas(disk.configs.current, disk.clock, address_of), loop.time)
        dispatcher.register("fetch", fetch.handle)
        outcome = Outcome()
        if is_plain:
            plain = PlainFetchHandler(
                disk.replicas,
                disk.replicas._fetch_purgatory,
                sessions,
                fetch,
                quota=throttles.leader,
                clock=disk.clock,
                fetch_max_bytes=FETCH_MAX_BYTES,
                metadata=metadata,
            )
            dispatcher.register_plain("fetch", read_plain_fetch, _counted("fetch", plain.handle, outcome))
        every = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100) for index in range(LONG_SESSION)
        ]
        session_id = 0
        for epoch, wait_ms in enumerate((0, 0, 1_000, 1_000)):
            topics = [] if epoch else [FetchTopic(topic="orders", partitions=every)]
            request = FetchRequest(
                max_wait_ms=wait_ms, min_bytes=1, topics=topics, session_id=session_id, session_epoch=epoch
            )
            answer = dispatcher.handle(
                memoryview(bytearray(framed_fetch(request, 12))), Peer("/127.0.0.1", "PLAINTEXT")
            )
            if epoch == 2:
                await asyncio.sleep(0.1)
                disk.append(partitions[7], 1)
                disk.replicas.partition_moved(partitions[7].topic_partition)
            content = _bytes_of(await answer if isinstance(answer, asyncio.Future) else answer)
            assert isinstance(content, bytes)
            answers[is_plain].append(content)
            session_id = codec.decode(FetchResponse, memoryview(content), 12, 9)[0].session_id
        assert (outcome.plain_counts["fetch"] > 0) == is_plain
        disk.close()

    for is_plain in (False, True):
        simulate(partial(main, is_plain=is_plain), seed=1)
    assert answers[True] == answers[False]
    assert len(set(map(len, answers[True]))) > 2


@pytest.mark.parametrize("version", [12, 13, 16, 18])
def test_a_fetch_that_waits_while_the_leader_moves_has_the_same_answer(tmp_path: Path, version: int) -> None:
    """The response names the topic as the request does, by its name or by its id."""
    answers: dict[bool, object] = {}

    async def main(loop: SimLoop, *, is_plain: bool) -> None:
        folder = tmp_path / str(is_plain)
        folder.mkdir()
        disk = Disk(loop, folder, live=(0, 1))
        partition = disk.lead("orders", 0)
        sessions, throttles = FetchSessionCache(10), ReplicationThrottles(0, disk.configs)
        metadata = MetadataCache()
        metadata.names_by_id |= names_by_id(TOPICS)
        fetch = _fetch_handler(disk, sessions, throttles, metadata)
        dispatcher = Dispatcher(ClientQuotas(disk.configs.current, disk.clock, address_of), loop.time)
        dispatcher.topic_names = metadata.names_by_id
        dispatcher.register("fetch", fetch.handle)
        outcome = Outcome()
        if is_plain:
            plain = PlainFetchHandler(
                disk.replicas,
                disk.replicas._fetch_purgatory,
                sessions,
                fetch,
                quota=throttles.leader,
                clock=disk.clock,
                fetch_max_bytes=FETCH_MAX_BYTES,
                metadata=metadata,
            )
            dispatcher.register_plain("fetch", read_plain_fetch, _counted("fetch", plain.handle, outcome))
        position = FetchPartition(partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1_000)
        topics = [FetchTopic(topic="orders", partitions=[position])]
        request = FetchRequest(replica_id=-1, max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=1_000, topics=topics)
        frame = memoryview(bytearray(framed_fetch(request, version)))
        waiting = dispatcher.handle(frame, Peer("/127.0.0.1", "PLAINTEXT", "User:a"))
        assert isinstance(waiting, asyncio.Future)
        disk.lead("orders", 0, leader=1, replicas=(0, 1))
        disk.replicas.partition_moved(partition.topic_partition)
        answers[is_plain] = _bytes_of(await waiting)
        assert outcome.plain_counts["fetch"] == is_plain
        disk.close()

    for is_plain in (False, True):
        simulate(partial(main, is_plain=is_plain), seed=1)
    assert answers[True] == answers[False]
    identity = id_of("orders").bytes if version >= FIRST_VERSION_WITH_IDS else b"orders"
    assert identity in answers[True]  # type: ignore[operator]
