"""A fetch examines only the active partitions of its session, and has the response of one that examines all of them.

Random events happen to two brokers with the same partitions.  On the second one no partition rests: all are activated
after each event.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl.protocol import codec
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from kctl.protocol.apis.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from kctl.server.handlers import fetch as fetch_handler
from kctl.server.replication.fetching import fetch_reading, fetch_replies
from kctl.server.replication.fetching.fetch_session import FetchSession
from kctl.server.replication.partition import Partition
from kctl.storage.log.lookup import RecordsSlice
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.test_fetch_replicas import CONSUMER, Scene
from tests.unit.handlers.world import context

FOLLOWERS = (1, 2)
PARTITIONS = 6
EVENTS = 300
BATCH_BYTES = 80
LAG_TIME_MS = 30_000


class Joins:
    """Adds a follower to the in-sync replicas as soon as it may join."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def may_expand(self, partition: Partition, replica_id: int) -> None:
        """Writes the new in-sync replicas at once."""
        if partition.may_join(replica_id):
            set_isr(self._disk, partition, (*partition.isr, replica_id))


def set_isr(disk: Disk, partition: Partition, isr: tuple[int, ...]) -> None:
    partition.isr = isr
    partition.advance_high_watermark(disk.clock.monotonic_ms())
    disk.replicas.partition_moved(partition.topic_partition)


class Reader:
    """One follower or consumer with a session, which fetches from its offsets."""

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.session_id = self.epoch = 0
        self.offsets: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.leader_epochs: dict[int, int] = {}
        self.changed: set[int] = set(self.offsets)
        self.forgotten: set[int] = set()
        self.waiting: asyncio.Future[FetchResponse] | None = None

    def request(self, *, wait_ms: int, min_bytes: int, max_bytes: int, is_committed: bool) -> FetchRequest:
        """The next request; the partitions that have changed are listed."""
        listed = set(self.offsets) if self.epoch == 0 else self.changed
        topics = [
            FetchTopic(
                topic=f"t{number}",
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=self.offsets[number],
                        partition_max_bytes=1 << 20,
                        current_leader_epoch=self.leader_epochs.get(number, -1),
                        log_start_offset=0,
                    )
                ],
            )
            for number in sorted(listed)
        ]
        forgotten = [ForgottenTopic(topic=f"t{number}", partitions=[0]) for number in sorted(self.forgotten)]
        request = FetchRequest(
            replica_id=self.replica_id,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(is_committed),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=forgotten if self.epoch else [],
        )
        self.changed, self.forgotten = set(), set()
        return request

    def take(self, response: FetchResponse, chance: random.Random) -> None:
        """Continues the session, at the end of the records that it has received or before."""
        if response.error_code or not response.session_id:
            self.session_id = self.epoch = 0
            return
        self.epoch = 1 if self.session_id != response.session_id else self.epoch + 1
        self.session_id = response.session_id
        for topic in response.responses:
            number, data = int(topic.topic[1:]), topic.partitions[0]
            if number in self.offsets and isinstance(data.records, RecordsSlice) and chance.random() < 0.8:
                self.offsets[number] += len(data.records.read()) // BATCH_BYTES
                self.changed.add(number)
            elif number in self.offsets and data.error_code:
                self.offsets[number] = max(data.log_start_offset, 0)
                self.leader_epochs.pop(number, None)
                self.changed.add(number)


class Broker:
    """A broker with three readers; `rests` is False if it examines all partitions in each fetch."""

    def __init__(self, loop: SimLoop, folder: Path, *, rests: bool) -> None:
        self.disk = Disk(loop, folder, live=(0, *FOLLOWERS))
        self.scene = Scene(self.disk)
        self.scene.handler._isr_changes = Joins(self.disk)  # type: ignore[assignment]
        self.readers = [Reader(replica_id) for replica_id in (*FOLLOWERS, CONSUMER)]
        self._rests = rests
        for number in range(PARTITIONS):
            self.lead(number)

    def lead(self, number: int, leader: int = 0) -> None:
        """The broker or another one becomes the leader."""
        self.disk.lead(f"t{number}", leader=leader, replicas=(0, *FOLLOWERS))

    @property
    def partitions(self) -> list[Partition]:
        """The partitions by name."""
        found = self.disk.replicas.partitions
        return [found[tp] for tp in sorted(found)]

    def happened(self) -> None:
        """After an event."""
        if not self._rests:
            for session in self.sessions:
                session.activate_all()

    @property
    def sessions(self) -> list[FetchSession]:
        """The open sessions."""
        return list(self.scene.handler._sessions._sessions.values())

    def delete(self, number: int) -> None:
        """The controller deletes the partition."""
        state = StopReplicaPartitionState(partition_index=0, delete_partition=True, leader_epoch=1 << 20)
        topics = [StopReplicaTopicState(topic_name=f"t{number}", partition_states=[state])]
        self.disk.replicas.stop_replicas(
            StopReplicaRequest(controller_id=0, controller_epoch=1, broker_epoch=0, topic_states=topics)
        )

    def state(self) -> list[object]:
        """What the fetches have changed."""
        now_ms = self.disk.clock.monotonic_ms()
        return [
            (
                partition.topic_partition,
                partition.high_watermark,
                partition.isr,
                partition.lagging(now_ms),
                {
                    replica: (follower.log_end_offset, follower.last_caught_up_ms)
                    for replica, follower in partition.followers.items()
                },
            )
            for partition in self.partitions
        ]


Event = Callable[[Broker, random.Random], None]


def some(broker: Broker, chance: random.Random, *, led: bool = True) -> Partition | None:
    found = [partition for partition in broker.partitions if partition.is_leader or not led]
    return chance.choice(found) if found else None


def append(broker: Broker, chance: random.Random) -> None:
    """To one partition or to several before the waiting fetches are checked."""
    found = [partition for partition in broker.partitions if partition.is_leader]
    chosen = chance.sample(found, min(len(found), chance.choice([1, 1, 1, 3])))
    for partition in chosen:
        broker.disk.append(partition, chance.choice([1, 1, 2]))
    broker.disk.replicas.partitions_moved([resting.topic_partition for resting in chosen])


def advance_start(broker: Broker, chance: random.Random) -> None:
    partition = some(broker, chance)
    if partition is not None:
        partition.log.increment_log_start_offset(chance.randrange(partition.high_watermark + 1))


def delete_segments(broker: Broker, chance: random.Random) -> None:
    partition = some(broker, chance)
    if partition is not None:
        now_ms = broker.disk.clock.now_ms()
        partition.log.roll(now_ms)
        partition.log.delete_old_segments(now_ms, partition.high_watermark, starts_only=chance.random() < 0.7)


def truncate(broker: Broker, chance: random.Random) -> None:
    """A follower truncates and gets the high watermark of its leader."""
    partition = some(broker, chance, led=False)
    if partition is not None and not partition.is_leader:
        partition.log.truncate_to(chance.randint(partition.log.log_start_offset, partition.log.log_end_offset))
        partition.follow_high_watermark(chance.randrange(partition.log.log_end_offset + 1))
        broker.disk.replicas.partition_moved(partition.topic_partition)


def change_leader(broker: Broker, chance: random.Random) -> None:
    broker.lead(chance.randrange(PARTITIONS), leader=chance.choice([0, 0, 1]))


def delete(broker: Broker, chance: random.Random) -> None:
    broker.delete(chance.randrange(PARTITIONS))


def shrink(broker: Broker, _: random.Random) -> None:
    now_ms = broker.disk.clock.monotonic_ms()
    for partition in broker.partitions:
        if partition.is_leader and (lagging := partition.lagging(now_ms)):
            set_isr(broker.disk, partition, tuple(replica for replica in partition.isr if replica not in lagging))


def throttle(broker: Broker, chance: random.Random) -> None:
    broker.scene.throttle(f"t{chance.randrange(PARTITIONS)}", rate=chance.choice([1, 1 << 30]))


def forget_or_add(broker: Broker, chance: random.Random) -> None:
    reader, number = chance.choice(broker.readers), chance.randrange(PARTITIONS)
    if reader.waiting is None:
        if reader.offsets.pop(number, None) is None:
            reader.offsets[number] = 0
            reader.changed.add(number)
            reader.forgotten.discard(number)
        else:
            reader.forgotten.add(number)
            reader.changed.discard(number)


def learn_epoch(broker: Broker, chance: random.Random) -> None:
    reader, partition = chance.choice(broker.readers), some(broker, chance, led=False)
    if partition is not None and reader.waiting is None:
        number = int(partition.topic_partition.topic[1:])
        if number in reader.offsets:
            reader.leader_epochs[number] = partition.leader_epoch
            reader.changed.add(number)


def close_session(broker: Broker, chance: random.Random) -> None:
    reader = chance.choice(broker.readers)
    if reader.waiting is None:
        broker.scene.handler._sessions.close(reader.session_id)


def fetch(broker: Broker, chance: random.Random) -> None:
    reader = chance.choice(broker.readers)
    wait_ms, min_bytes = chance.choice([0, 500, 20_000]), chance.choice([1, 1, BATCH_BYTES * 3])
    max_bytes, is_committed = chance.choice([1 << 20, 1 << 20, BATCH_BYTES * 2, 1]), chance.random() < 0.5
    send(broker, reader, wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, is_committed=is_committed)


def wait_for_records(broker: Broker, chance: random.Random) -> None:
    """Without a limit that a whole number of batches does not reach."""
    reader, min_bytes = chance.choice(broker.readers), chance.choice([1, 1, BATCH_BYTES * 3])
    send(broker, reader, wait_ms=20_000, min_bytes=min_bytes, max_bytes=1 << 20, is_committed=chance.random() < 0.5)


def send(broker: Broker, reader: Reader, *, wait_ms: int, min_bytes: int, max_bytes: int, is_committed: bool) -> None:
    if reader.waiting is None and reader.offsets:
        request = reader.request(wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, is_committed=is_committed)
        response = broker.scene.handler.handle(request, context(12 if reader.replica_id >= 0 else 11))
        if isinstance(response, FetchResponse):
            done: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
            done.set_result(response)
            response = done
        reader.waiting = response


EVENTS_BY_WEIGHT: dict[Event, int] = {
    fetch: 40,
    append: 20,
    advance_start: 3,
    delete_segments: 2,
    truncate: 2,
    change_leader: 2,
    delete: 1,
    shrink: 3,
    throttle: 1,
    forget_or_add: 2,
    learn_epoch: 2,
    close_session: 1,
}


def encoded(response: FetchResponse) -> bytes:
    return b"".join(
        bytes(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.read()
        for chunk in codec.encode(response, 12)
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_a_fetch_of_active_partitions_has_the_response_of_a_fetch_of_all(tmp_path: Path, seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        chance = random.Random(seed)
        brokers = [Broker(loop, tmp_path / "resting", rests=True), Broker(loop, tmp_path / "all", rests=False)]
        examined = [0, 0]
        for number in range(EVENTS):
            await asyncio.sleep(chance.choice([0, 0.001, 0.1, 1, 1, 15]))
            (event,) = chance.choices(list(EVENTS_BY_WEIGHT), list(EVENTS_BY_WEIGHT.values()))
            event_seed = chance.random()
            for broker in brokers:
                event(broker, random.Random(event_seed))
                broker.happened()
            await asyncio.sleep(0)  # Waiting fetches are checked in the next iteration of the loop.
            examined = [
                count + sum(session.active_count for session in broker.sessions)
                for count, broker in zip(examined, brokers, strict=True)
            ]
            where = f"event {number}: {event.__name__}"
            assert brokers[0].state() == brokers[1].state(), where
            for resting, full in zip(brokers[0].readers, brokers[1].readers, strict=True):
                if resting.waiting is None or full.waiting is None:
                    assert resting.waiting is full.waiting, where
                    continue
                assert resting.waiting.done() == full.waiting.done(), where
                if full.waiting.done():
                    assert encoded(resting.waiting.result()) == encoded(full.waiting.result()), where
                    take_seed = chance.random()
                    for reader in (resting, full):
                        assert reader.waiting is not None
                        reader.take(reader.waiting.result(), random.Random(take_seed))
                        reader.waiting = None
        assert examined[0] < examined[1], "partitions rest"
        for broker in brokers:
            broker.disk.close()

    simulate(main, seed=seed)


def settled_readers(broker: Broker, chance: random.Random) -> None:
    """Readers continue with their next offsets."""
    for reader in broker.readers:
        if reader.waiting is not None and reader.waiting.done():
            reader.take(reader.waiting.result(), chance)
            reader.waiting = None


async def settle() -> None:
    """Until fetches of many partitions have examined what has changed: before that, the time does not change."""
    await asyncio.sleep(0.0001)


@pytest.mark.long
@pytest.mark.parametrize("per_slice", [1, 250])
@pytest.mark.parametrize("seed", range(12))
def test_no_fetch_waits_for_what_has_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, per_slice: int
) -> None:
    """Events happen also while a fetch is read in slices.  If it waits afterwards, no partition has what it waits for:
    it goes on waiting when it is notified of all partitions.  (A new segment is no change of a partition.)
    """
    for module in (fetch_handler, fetch_reading, fetch_replies, fetch_replies):
        monkeypatch.setattr(module, "READ_PER_SLICE_MAX", per_slice)

    async def main(loop: SimLoop) -> None:
        chance = random.Random(seed)
        broker = Broker(loop, tmp_path, rests=True)
        for number in range(EVENTS):
            (event,) = chance.choices(list(EVENTS_BY_WEIGHT), list(EVENTS_BY_WEIGHT.values()))
            if event is fetch:
                event = wait_for_records
            elif event is delete_segments:
                event = append
            event(broker, chance)
            for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                # The next change of any partition; those of the start of a log are not checked before.
                broker.disk.replicas.partitions_moved(())
                await settle()
                waiting = [reader.waiting for reader in broker.readers if reader.waiting is not None]
                waiting = [reply for reply in waiting if not reply.done()]
                for session in broker.sessions:
                    for position in session.positions.values():
                        session.moved(position)
                broker.disk.replicas.partitions_moved([partition.topic_partition for partition in broker.partitions])
                await settle()
                assert not any(reply.done() for reply in waiting), f"event {number}: {event.__name__}"
                await asyncio.sleep(chance.choice([0, 0.001, 0.01, 0.1, 1]))
            settled_readers(broker, chance)
        await asyncio.sleep(30)
        settled_readers(broker, chance)

    simulate(main, seed=seed)


@pytest.mark.parametrize("turns", range(0, 40, 2))
def test_a_partition_that_changes_before_a_long_fetch_waits_wakes_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """The change before does not make the response large enough, and a partition notifies a position once."""
    for module in (fetch_handler, fetch_reading, fetch_replies, fetch_replies):
        monkeypatch.setattr(module, "READ_PER_SLICE_MAX", 1)

    async def main(loop: SimLoop) -> None:
        broker = Broker(loop, tmp_path, rests=True)
        disk, reader = broker.disk, broker.readers[0]
        led = [disk.lead(f"t{number}", replicas=(0, reader.replica_id)) for number in range(PARTITIONS)]
        for _ in range(2):
            send(broker, reader, wait_ms=0, min_bytes=0, max_bytes=1 << 20, is_committed=False)
            await settle()
            settled_readers(broker, random.Random(1))
        reader.changed = {0, 1}
        send(broker, reader, wait_ms=20_000, min_bytes=2 * BATCH_BYTES, max_bytes=1 << 20, is_committed=False)
        waiting = reader.waiting
        assert waiting is not None
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(3):
            assert not waiting.done()
            disk.append(led[-1], 1)
            disk.replicas.partition_moved(led[-1].topic_partition)
            await settle()
        assert waiting.done()
        disk.close()

    simulate(main, seed=1)
