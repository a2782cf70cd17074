"""Foreign writes to the controller's znodes: each is reported precisely, and everything else continues."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from dataclasses import replace
from uuid import UUID

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.model import TopicPartition
from kctl.server.cluster.controller import runner
from kctl.server.cluster.controller.actions import Action, WriteStates
from kctl.server.cluster.controller.events import BrokersRead, RebalanceDue, StatesWritten, TopicsRead
from kctl.server.cluster.controller.step import step
from kctl.server.cluster.controller.znodes.candidacy import Candidacy, ElectionImpossible
from kctl.server.cluster.controller.znodes.znode_reader import read_reassignments, read_topics, read_written_states
from kctl.server.cluster.controller.znodes.znode_writer import ZnodeWriter
from kctl.server.znodes.large import decoded
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import Create, Delete
from tests.rows import for_rows
from tests.unit.handlers.world import World, play
from tests.unit.server.controller_world import World as Steps
from tests.unit.server.controller_world import brokers, topic

SETTLED_S = 5.0


async def goes_on(world: World) -> None:
    """Topics can still be created and configurations changed."""
    await asyncio.sleep(SETTLED_S)
    await world.topic("after")
    await world.topics.change_config("topics/after", {"retention.ms": "5"})
    await world.until(lambda: world.configs.topic("after").retention_ms == 5)
    assert world.controller.state.is_active


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/brokers/topics/broken", b"{"),
        ("/brokers/topics/broken", b'{"version":99,"partitions":{"0":[0]}}'),
        ("/brokers/topics/broken", b'{"version":3,"partitions":{"0":[]}}'),
        ("/brokers/topics/broken", b'{"version":3,"partitions":{"0":[0,0]}}'),
        ("/brokers/topics/broken", b'{"version":3}'),
        ("/brokers/ids/broken", b"{}"),
        ("/brokers/ids/7", b"{"),
        ("/admin/reassign_partitions", b"{"),
        ("/admin/reassign_partitions", b'{"version":2,"partitions":[]}'),
        ("/admin/reassign_partitions", b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":"0"}]}'),
        (
            "/admin/reassign_partitions",
            b'{"version":1,"partitions":[{"topic":"a","partition":Infinity,"replicas":[0]}]}',
        ),
        (
            "/admin/reassign_partitions",
            b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[4294967296]}]}',
        ),
        ("/admin/reassign_partitions", b"[" * 100_000),
        ("/admin/preferred_replica_election", b"\xff"),
        ("/admin/preferred_replica_election", b'{"version":2,"partitions":[]}'),
        ("/isr_change_notification/isr_change_0000000000", b"[]"),
        ("/log_dir_event_notification/log_dir_event_0000000000", b"null"),
        ("/config/changes/junk", b"{"),
        ("/config/changes/config_change_0000000000", b"{"),
        ("/config/changes/config_change_0000000000", b'{"version":3,"entity_path":"topics/a"}'),
        ("/config/changes/config_change_0000000000", b'{"version":2}'),
    ],
)
def test_a_malformed_znode_is_logged_and_skipped(caplog: pytest.LogCaptureFixture, path: str, data: bytes) -> None:
    async def scene(world: World) -> None:
        await world.zookeeper.create(path, data)
        await goes_on(world)
        assert any(path in record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR)
        assert not any(record.exc_info for record in caplog.records)

    with caplog.at_level(logging.ERROR):
        play(scene)


def reassignment(*partitions: tuple[str, int, tuple[int, ...]]) -> bytes:
    expected = {TopicPartition(name, partition): replicas for name, partition, replicas in partitions}
    return znodes.encode_reassignment(expected)


async def is_gone(world: World, path: str) -> bool:
    return await world.zookeeper.exists(path) is None


@pytest.mark.parametrize(
    ("expected", "is_refused"),
    [
        ([], False),
        ([("a", 0, (0, 1))], False),
        ([("a", 0, (1, 0))], False),
        ([("a", 0, (0, 1)), ("unknown", 0, (0,))], True),
        ([("unknown", 0, (0,))], True),
        ([("a", 7, (0,))], True),
        ([("a", -1, (0,))], True),
        ([("a", 0, ())], True),
        ([("a", 0, (0, 0))], True),
        ([("a", 0, (0, 9))], True),
        ([("a", 0, (-1,))], True),
    ],
)
def test_reassignment_without_changes_completes_and_allows_the_next(
    caplog: pytest.LogCaptureFixture, expected: list[tuple[str, int, tuple[int, ...]]], is_refused: bool
) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        epoch = world.controller.state.epoch
        await world.zookeeper.create(paths.REASSIGN_PARTITIONS, reassignment(*expected))
        await asyncio.sleep(SETTLED_S)
        assert await is_gone(world, paths.REASSIGN_PARTITIONS)
        assert any(paths.REASSIGN_PARTITIONS in record.getMessage() for record in caplog.records) == is_refused
        # Broker 2 is never in sync here, so the next reassignment stays until it is cancelled.
        await world.zookeeper.create(paths.REASSIGN_PARTITIONS, reassignment(("a", 0, (0, 2))))
        await asyncio.sleep(SETTLED_S)
        assert not await is_gone(world, paths.REASSIGN_PARTITIONS)
        assert await world.controller.reassign({TopicPartition("a", 0): None}) == {
            TopicPartition("a", 0): ErrorCode.NONE
        }
        await asyncio.sleep(SETTLED_S)
        assert await is_gone(world, paths.REASSIGN_PARTITIONS)
        assert world.controller.state.epoch == epoch

    with caplog.at_level(logging.WARNING):
        play(scene, others=2)


def test_reassignment_continues_beside_one_without_changes() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1), (0, 1))
        await world.zookeeper.create(
            paths.REASSIGN_PARTITIONS, reassignment(("a", 0, (1, 0)), ("a", 1, (0, 2)), ("unknown", 0, (0,)))
        )
        await asyncio.sleep(SETTLED_S)
        data, _ = await world.zookeeper.get(paths.REASSIGN_PARTITIONS)
        left = znodes.decode_reassignment(paths.REASSIGN_PARTITIONS, data)
        assert left == {TopicPartition("a", 1): (0, 2)}
        assert world.controller.state.replicas(TopicPartition("a", 0)) == (1, 0)

    play(scene, others=2)


def test_reassignment_of_a_topic_deleted_from_zookeeper_ends() -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        await world.zookeeper.create(paths.REASSIGN_PARTITIONS, reassignment(("a", 0, (0, 2))))
        await asyncio.sleep(SETTLED_S)
        assert not await is_gone(world, paths.REASSIGN_PARTITIONS)
        await world.zookeeper.delete(paths.topic("a"), recursive=True)
        await asyncio.sleep(SETTLED_S)
        assert await is_gone(world, paths.REASSIGN_PARTITIONS)
        assert world.controller.state.is_active

    play(scene, others=2)


def test_preferred_election_from_a_znode_logs_elected_and_refused_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", (0, 1))
        await world.controller.reassign({TopicPartition("a", 0): (1, 0)})
        expected = znodes.encode_partitions([TopicPartition("a", 0), TopicPartition("unknown", 3)])
        await world.zookeeper.create(paths.PREFERRED_REPLICA_ELECTION, expected)
        await asyncio.sleep(SETTLED_S)
        assert await is_gone(world, paths.PREFERRED_REPLICA_ELECTION)
        assert world.controller.state.leaders[TopicPartition("a", 0)].leader == 1
        output = [record.getMessage() for record in caplog.records]
        assert "leader election trigger=znode type=preferred count=1 partitions=a-0" in output
        assert (
            "leader election refused trigger=znode type=preferred count=1 "
            "partitions=unknown-3:UNKNOWN_TOPIC_OR_PARTITION"
        ) in output

    with caplog.at_level(logging.INFO):
        play(scene, others=1)


def test_automatic_preferred_election_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await world.topic("a", *[(0, 1)] * 250)
        await world.controller.reassign({TopicPartition("a", partition): (1, 0) for partition in range(250)})
        world.controller._inbox.put_nowait(RebalanceDue(10))
        await asyncio.sleep(SETTLED_S)
        assert {state.leader for state in world.controller.state.leaders.values()} == {1}
        begin = "leader election trigger=automatic type=preferred count=250 partitions="
        lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith(begin)]
        named = [name for line in lines for name in line.removeprefix(begin).split(",")]
        assert len(lines) == 3
        assert sorted(named) == sorted(f"a-{partition}" for partition in range(250))

    with caplog.at_level(logging.INFO):
        play(scene, others=1)


def test_deletion_request_for_an_unknown_topic_is_removed_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        path = paths.delete_topic("unknown")
        await world.zookeeper.create(path, b"")
        await asyncio.sleep(SETTLED_S)
        assert await is_gone(world, path)
        assert (
            f"rejecting topic deletion, the topic is unknown or delete.topic.enable is false path={path}" in caplog.text
        )

    with caplog.at_level(logging.INFO):
        play(scene)


@pytest.mark.parametrize(
    "path",
    ["/admin/reassign_partitions", "/admin/preferred_replica_election", "/admin/delete_topics/unknown"],
)
def test_a_deletion_request_is_removed_with_its_child_znodes(path: str) -> None:
    async def scene(world: World) -> None:
        epoch = world.controller.state.epoch
        await world.zookeeper.multi([Create(path, b"{}"), Create(f"{path}/below", b"")])
        await goes_on(world)
        assert await world.zookeeper.exists(path) is None
        assert world.controller.state.epoch == epoch

    play(scene)


def test_a_broker_starts_despite_malformed_config_change_znodes() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        await world.zookeeper.set("/config/topics/a", b'{"version":1,"config":{"retention.ms":"7"}}')
        await world.zookeeper.create("/config/changes/junk", b"{")
        again = World(world.loop, {})
        again.changes = type(again.changes)(
            0, world.zookeeper, again.configs, (again.credentials, again.quotas), again.clock, lambda _: None
        )
        await again.changes.load()
        assert again.configs.topic("a").retention_ms == 7

    play(scene)


def test_describing_a_malformed_config_znode_names_its_path() -> None:
    async def scene(world: World) -> None:
        await world.topic("a")
        await world.zookeeper.set("/config/topics/a", b"{")
        with pytest.raises(ApiError, match="/config/topics/a") as error:
            await world.topics.config("topics/a")
        assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    play(scene)


def test_a_topic_keeps_its_leader_after_a_foreign_write_of_its_assignment() -> None:
    world = Steps(1, 2, topics={"t": topic((1, 2))})
    tp = TopicPartition("t", 0)
    assert world.znodes[tp].leader == 1
    world.feed(TopicsRead({}))
    world.live(2)
    assert world.znodes[tp].leader == 2


def test_a_topic_whose_znodes_are_deleted_and_created_again_gets_leaders() -> None:
    """Also while its deletion, which then has nothing left to delete, waits for broker 7."""

    async def scene(world: World) -> None:
        for is_deleting in (False, True):
            await world.topics.create("a", {0: (0, 7)}, {})
            await world.until(lambda: world.metadata.has_leaders("a", 1))
            if is_deleting:
                await world.topics.request_deletion("a")
                await world.until(lambda: "a" in world.controller.state.deleting)
            path, assignment = paths.topic("a"), znodes.TopicAssignment({0: (0,), 1: (0,)}, UUID(int=9))
            await world.zookeeper.delete(f"{path}/partitions", recursive=True)
            await world.zookeeper.multi([Delete(path), Create(path, znodes.encode_topic(assignment))])
            await world.until(lambda: world.metadata.topic_id("a") == UUID(int=9))
            await world.until(lambda: world.metadata.has_leaders("a", 2))
            assert await world.zookeeper.exists(paths.partition_state("a", 0)) is not None
            await world.topics.request_deletion("a")
            await world.until(lambda: not world.controller.state.topics)
            assert await world.zookeeper.children(paths.DELETE_TOPICS) == []

    play(scene)


def test_a_malformed_partition_state_is_not_overwritten_by_the_controller() -> None:
    tp = TopicPartition("a", 0)

    async def scene(world: World) -> None:
        await world.topic("a")
        await world.zookeeper.set(paths.partition_state(*tp), b"{")
        await world.zookeeper.delete(paths.CONTROLLER)
        await goes_on(world)
        assert (await world.zookeeper.get(paths.partition_state(*tp)))[0] == b"{"

    play(scene)


def test_failed_brokers_leave_the_isr_despite_a_concurrent_leader_write() -> None:
    """Otherwise acks=all waits for the failed broker until the leader removes it for lag."""
    tp = TopicPartition("t", 0)
    world = Steps(1, 2, 3, topics={"t": topic((1, 2, 3))})
    (requested,) = writes(step(world.state, BrokersRead(brokers(1, 2)), 0))
    assert requested.changed[tp].isr == (1, 2)
    current = replace(world.znodes[tp], partition_epoch=7)
    (again,) = writes(step(world.state, StatesWritten({}, {tp: current}), 0))
    assert again.changed[tp].isr == (1, 2)
    assert again.changed[tp].partition_epoch == 7


def writes(actions: list[Action]) -> list[WriteStates]:
    return [action for action in actions if isinstance(action, WriteStates)]


# /controller


async def epoch_after(world: World) -> int:
    await goes_on(world)
    data, stat = await world.zookeeper.get(paths.CONTROLLER)
    assert znodes.decode_controller(paths.CONTROLLER, data).broker_id == 0
    assert stat.ephemeral_owner == world.zookeeper.session_id
    return world.controller.state.epoch


def test_controller_is_reelected_after_its_znode_is_deleted() -> None:
    async def scene(world: World) -> None:
        epoch = world.controller.state.epoch
        await world.zookeeper.delete(paths.CONTROLLER)
        assert await epoch_after(world) == epoch + 1

    play(scene)


@pytest.mark.parametrize("data", [b"{", b"", b"7", znodes.encode_controller(znodes.Controller(5, 0))])
def test_controller_is_reelected_after_its_znode_is_overwritten(data: bytes) -> None:
    async def scene(world: World) -> None:
        epoch = world.controller.state.epoch
        await world.zookeeper.set(paths.CONTROLLER, data)
        assert await epoch_after(world) == epoch + 1

    play(scene)


def test_a_persistent_controller_znode_blocks_election_until_it_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        manually = znodes.encode_controller(znodes.Controller(5, 0))
        await world.zookeeper.multi([Delete(paths.CONTROLLER), Create(paths.CONTROLLER, manually)])
        await asyncio.sleep(SETTLED_S)
        assert not world.controller.state.is_active
        assert "no election is possible, since no session owns the znode; delete it path=/controller" in caplog.text
        await world.zookeeper.delete(paths.CONTROLLER)
        await epoch_after(world)

    play(scene)


def test_the_controller_znode_of_another_broker_is_not_deleted() -> None:
    async def scene(world: World) -> None:
        other = world.ensemble.session()
        await other.start(10_000)
        claim = znodes.encode_controller(znodes.Controller(1, 0))
        await other.multi([Delete(paths.CONTROLLER), Create(paths.CONTROLLER, claim, ephemeral=True)])
        await asyncio.sleep(SETTLED_S)
        assert not world.controller.state.is_active
        world.zookeeper.break_connection()
        world.zookeeper.heal()
        await asyncio.sleep(SETTLED_S)
        assert (await other.get(paths.CONTROLLER))[0] == claim
        await other.close()
        await epoch_after(world)

    play(scene)


def test_a_controller_election_with_a_lost_response_is_retried() -> None:
    """The node was created in a live session: no other broker can win, and this one got no response."""

    async def scene(world: World) -> None:
        epoch = world.controller.state.epoch
        world.ensemble.delay_s = lambda: 1.0  # of the next connection
        world.zookeeper.break_connection()
        world.zookeeper.heal()
        await world.zookeeper.delete(paths.CONTROLLER)
        await world.until(lambda: world.ensemble.keeper.tree.find(paths.CONTROLLER) is not None)
        world.zookeeper.break_connection()
        await asyncio.sleep(0.2)
        world.ensemble.delay_s = lambda: 0.0
        world.zookeeper.heal()
        assert await epoch_after(world) >= epoch + 2

    play(scene)


def test_cancelled_reads_leave_no_unawaited_calls(recwarn: pytest.WarningsRecorder) -> None:
    """A controller that resigns during a reassignment leaves no coroutine that was never awaited."""

    async def main(loop: SimLoop) -> None:
        session = SimZooKeeper(delay_s=lambda: 0.1).session(
            session_timeout_ms=4000, on_watch=lambda _: None, on_state=lambda _: None
        )
        await session.start(1000)
        expected = [TopicPartition("t", number) for number in range(2000)]
        for turns in range(4):
            reading = loop.create_task(read_written_states(session, expected))
            for _ in range(turns):
                await asyncio.sleep(0)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    gc.freeze()  # Only what the scene creates is examined.
    simulate(main, seed=1)
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize(
    ("before", "are_supported", "after"),
    [
        (None, True, b'{"version":1,"status":1,"features":{}}'),
        (None, False, b'{"version":1,"status":0,"features":{}}'),
        (znodes.Features(0), True, b'{"version":1,"status":1,"features":{}}'),
        (znodes.Features(1, {"f": (1, 2)}), False, b'{"version":1,"status":0,"features":{}}'),
        (
            znodes.Features(0, {"f": (1, 2)}),
            True,
            b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":2}}}',
        ),
    ],
)
def test_the_feature_znode_follows_the_protocol_version_of_the_controller(
    before: znodes.Features | None, are_supported: bool, after: bytes
) -> None:
    """As Apache Kafka 2.8 writes it; a second election changes nothing."""

    async def main(_loop: SimLoop) -> None:
        session = SimZooKeeper().session()
        await session.start(10_000)
        await session.create(paths.CONTROLLER_EPOCH, b"1")
        writer = ZnodeWriter(session)
        writer.epoch_version = 0
        if before is not None:
            await session.create(paths.FEATURE, znodes.encode_features(before))
        versions = []
        for _election in range(2):
            await writer.set_up_features(are_supported=are_supported)
            data, stat = await session.get(paths.FEATURE)
            assert data == after
            versions.append(stat.version)
        assert versions[0] == versions[1]
        await session.close()

    simulate(main, seed=1)


def test_only_changed_topics_are_decoded_again() -> None:
    async def main(_loop: SimLoop) -> None:
        zookeeper = SimZooKeeper().session()
        await zookeeper.start(10_000)
        before = {name: znodes.TopicAssignment({0: (1,)}) for name in ("same", "grown", "recreated")}
        await zookeeper.create(paths.TOPICS, None, make_parents=True)
        for name, assignment in before.items():
            await zookeeper.create(paths.topic(name), znodes.encode_topic(assignment))
        first = await read_topics(zookeeper, before, {})
        await zookeeper.set(paths.topic("grown"), znodes.encode_topic(znodes.TopicAssignment({0: (1,), 1: (2,)})))
        await zookeeper.delete(paths.topic("recreated"))
        await zookeeper.create(paths.topic("recreated"), znodes.encode_topic(znodes.TopicAssignment({0: (2,)})))
        second = await read_topics(zookeeper, before, first)
        assert second["same"] is first["same"]
        assert second["grown"].assignment == znodes.TopicAssignment({0: (1,), 1: (2,)})
        assert second["recreated"].assignment == znodes.TopicAssignment({0: (2,)})
        assert second["recreated"].created_zxid != first["recreated"].created_zxid

    simulate(main, seed=1)


def test_the_assignment_of_a_large_topic_is_decoded_in_a_thread() -> None:
    async def main(loop: SimLoop) -> list[bool]:
        took_time = []
        for count in (1, 10_000):
            data = znodes.encode_topic(znodes.TopicAssignment(dict.fromkeys(range(count), (1, 2, 3))))
            began_s = loop.time()
            assert len((await decoded(znodes.decode_topic, "/brokers/topics/t", data)).replicas) == count
            took_time.append(loop.time() > began_s)
        return took_time

    assert simulate(main, seed=1) == [False, True]


def test_a_large_reassignment_request_is_decoded_in_a_thread() -> None:
    async def main(loop: SimLoop) -> float:
        zookeeper = SimZooKeeper().session()
        await zookeeper.start(10_000)
        requested = {TopicPartition("t", partition): (1, 2) for partition in range(10_000)}
        await zookeeper.create(paths.REASSIGN_PARTITIONS, znodes.encode_reassignment(requested), make_parents=True)
        began_s = loop.time()
        assert await read_reassignments(zookeeper) == requested
        return loop.time() - began_s

    assert simulate(main, seed=1) > 0


@for_rows("epoch", [b"", b"x", b"-1", b"1_0", b"{}", b"2147483647"])
def test_no_broker_is_elected_before_an_invalid_controller_epoch_is_corrected(epoch: bytes) -> None:
    async def main(loop: SimLoop) -> None:
        zookeeper = SimZooKeeper().session()
        await zookeeper.start(10_000)
        await zookeeper.create(paths.CONTROLLER_EPOCH, epoch)
        candidacy = Candidacy(1, zookeeper, SimClock(loop.time))
        with pytest.raises(ElectionImpossible, match=f"{paths.CONTROLLER_EPOCH} .*; write a number into it"):
            await candidacy.run(is_controller=False)
        await zookeeper.set(paths.CONTROLLER_EPOCH, b"6")
        lease = await candidacy.run(is_controller=False)
        assert lease is not None
        assert lease.epoch == 7

    simulate(main, seed=1)


def test_many_topics_are_created_without_reading_the_names_of_all_topics_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each creation beside 20,000 topics read 20,000 names; topics that others create are found a little later."""
    monkeypatch.setattr(runner, "_TOPICS_LISTED_PER_S", 10)
    listed: list[float] = []
    children = SimZooKeeperSession.children

    async def counted(session: SimZooKeeperSession, path: str, *, watch: bool = False) -> list[str]:
        if path == paths.TOPICS and watch:
            listed.append(asyncio.get_running_loop().time())
        return await children(session, path, watch=watch)

    monkeypatch.setattr(SimZooKeeperSession, "children", counted)

    async def scene(world: World) -> None:
        for number in range(60):
            await world.topic(f"own-{number}")
        assert len(listed) < 30
        foreign = znodes.TopicAssignment({0: (0,)}, UUID(int=9))
        await world.zookeeper.create(paths.topic("foreign"), znodes.encode_topic(foreign))
        await world.until(lambda: "foreign" in world.metadata.topics)

    play(scene)
