"""How long a registration in ZooKeeper allows a broker to lead, and who may replace it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from kctl.config.dynamic import ConfigView
from kctl.errors import ConnectionLossError
from kctl.model import Endpoint
from kctl.server.broker.registration import (
    BrokerIdInUse,
    EndedSessions,
    NoEndedSessions,
    choose_broker_id,
    ensure_paths,
    register,
    update_registration,
)
from kctl.server.process.data_folder import DataFolder
from kctl.server.process.host import FolderSessions
from kctl.server.replication.leader_lease import LeaderLease, LeaseKeeper
from kctl.testing.sim_clock import ManualClock, SimClock
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.broker_znodes import BrokerRegistration, decode_broker
from kctl.zookeeper.operations import SessionKey

T = TypeVar("T")
TIMEOUT_MS = 8_000
PATIENCE_MS = 10_000
HERE = BrokerRegistration((Endpoint("PLAINTEXT", "host", 9092),), 0)


def test_lease_lasts_three_quarters_of_the_timeout_from_the_time_of_the_request() -> None:
    clock = ManualClock()
    lease = LeaderLease(clock)
    assert not lease.covers(5), "not registered yet"
    assert lease.problem
    clock.advance(1_000)
    lease.begin(5, 1, asked_ms=0, timeout_ms=TIMEOUT_MS)
    for elapsed_ms, is_held in ((5_999, True), (6_000, False)):
        clock.advance(elapsed_ms - clock.elapsed_ms())
        assert (lease.covers(5), lease.is_held, not lease.problem) == (is_held, is_held, is_held), elapsed_ms
    lease.extend(asked_ms=6_000, timeout_ms=TIMEOUT_MS)
    assert lease.covers(5)
    assert not lease.covers(4), "a role of an earlier registration"
    lease.end("deleted")
    assert (lease.covers(5), lease.problem, lease.broker_epoch) == (False, "deleted", 5)
    lease.begin(6, 2, asked_ms=clock.elapsed_ms(), timeout_ms=TIMEOUT_MS)
    assert (lease.covers(5), lease.covers(6)) == (False, True)


def test_lease_of_a_zookeeper_in_the_same_process_lasts_as_long_as_the_session() -> None:
    clock, sessions = ManualClock(), {1}
    lease = LeaderLease(clock, is_session_open=sessions.__contains__)
    lease.begin(5, 1, asked_ms=0, timeout_ms=TIMEOUT_MS)
    clock.advance(10 * TIMEOUT_MS)
    assert lease.covers(5)
    sessions.clear()
    assert not lease.covers(5)


class Registering:
    """Sessions of one ensemble that register broker 1."""

    def __init__(self, loop: SimLoop) -> None:
        self.ensemble = SimZooKeeper()
        self._clock = SimClock(loop.time)

    async def session(self) -> SimZooKeeperSession:
        session = self.ensemble.session(session_timeout_ms=TIMEOUT_MS)
        await session.start(1_000)
        await ensure_paths(session)
        return session

    async def register(self, session: SimZooKeeperSession, sessions: EndedSessions | None = None) -> int:
        ended = sessions or NoEndedSessions()
        registered = await register(session, 1, HERE, sessions=ended, clock=self._clock, patience_ms=PATIENCE_MS)
        return registered.broker_epoch


class Ended(NoEndedSessions):
    """The session of a process that has certainly ended."""

    def __init__(self, key: SessionKey) -> None:
        self._key = key

    def latest_ended(self) -> SessionKey:
        return self._key


def play(scene: Callable[[Registering], Awaitable[T]]) -> T:
    async def main(loop: SimLoop) -> T:
        return await scene(Registering(loop))

    return simulate(main, seed=1)


def test_live_registration_with_the_same_endpoint_is_not_replaced() -> None:
    async def scene(world: Registering) -> None:
        first = await world.session()
        epoch = await world.register(first)
        with pytest.raises(BrokerIdInUse, match=r"host:9092.*is alive"):
            await world.register(await world.session())
        _, stat = await first.get(paths.broker(1))
        assert stat.czxid == epoch

    play(scene)


def test_registration_is_replaced_when_its_session_has_expired() -> None:
    async def scene(world: Registering) -> None:
        first = await world.session()
        epoch = await world.register(first)
        first.break_connection()
        assert await world.register(await world.session()) > epoch

    play(scene)


def test_registration_is_replaced_at_once_only_after_the_session_of_an_ended_process_is_closed() -> None:
    async def scene(world: Registering) -> None:
        first = await world.session()
        await world.register(first)
        await first.create(paths.CONTROLLER, b"{}", ephemeral=True)
        key = first.session_key
        second = await world.session()
        started_s = asyncio.get_running_loop().time()
        await world.register(second, Ended(key))
        assert asyncio.get_running_loop().time() == started_s, "the virtual time"
        assert world.ensemble.keeper.sessions.find(key.session_id) is None
        assert await second.exists(paths.CONTROLLER) is None
        with pytest.raises(BrokerIdInUse):
            await world.register(await world.session(), Ended(SessionKey(key.session_id + 99, key.password)))

    play(scene)


def test_registration_of_the_same_session_and_one_without_a_session_are_replaced() -> None:
    async def scene(world: Registering) -> None:
        session = await world.session()
        await session.create(paths.broker(1), b"{")
        epoch = await world.register(session)
        assert await world.register(session) > epoch

    play(scene)


def test_changed_endpoints_do_not_overwrite_the_registration_of_another_session() -> None:
    async def scene(world: Registering) -> None:
        first, second = await world.session(), await world.session()
        await world.register(first)
        other = BrokerRegistration((Endpoint("PLAINTEXT", "elsewhere", 1),), 0)
        await update_registration(second, 1, other)
        data, _ = await first.get(paths.broker(1))
        assert decode_broker("", data).endpoints == HERE.endpoints
        await update_registration(first, 1, other)
        data, _ = await first.get(paths.broker(1))
        assert decode_broker("", data).endpoints == other.endpoints

    play(scene)


def test_registration_that_was_deleted_is_made_again_until_that_succeeds() -> None:
    async def scene(world: Registering) -> None:
        session = await world.session()
        clock = SimClock(asyncio.get_running_loop().time)
        lease = LeaderLease(clock)
        failures = [ConnectionLossError("the connection was lost")]

        async def register_again() -> None:
            if failures:
                raise failures.pop()
            lease.begin(await world.register(session), session.session_id, asked_ms=clock.elapsed_ms(), timeout_ms=1)

        lease.begin(await world.register(session), session.session_id, asked_ms=clock.elapsed_ms(), timeout_ms=1)
        keeper = LeaseKeeper(lease, 1, session, clock, register_again=register_again, on_change=lambda: None)
        keeper.start()
        await session.delete(paths.broker(1))
        await asyncio.sleep(TIMEOUT_MS / 1000)
        assert await session.exists(paths.broker(1)) is not None
        assert lease.is_of(session.session_id)
        assert failures == []
        await keeper.close()

    play(scene)


def test_generated_ids_skip_those_of_brokers_that_a_restored_sequence_does_not_know() -> None:
    async def scene(world: Registering) -> list[int]:
        session = await world.session()
        await session.create(paths.broker(1001), b"{}", ephemeral=True)
        topic = znodes.encode_topic(znodes.TopicAssignment({0: (1002, 1004)}))
        await session.create(paths.topic("orders"), topic)
        config = ConfigView({"zookeeper.connect": "zookeeper:2181"}).current
        return [await choose_broker_id(session, config, stored=None) for _ in range(2)]

    assert play(scene) == [1003, 1005]


def test_only_the_locked_folder_itself_proves_that_its_latest_process_has_ended(tmp_path: Path) -> None:
    key = SessionKey(0x1234, b"secret")
    folder = DataFolder(tmp_path / "data")
    folder.acquire()
    FolderSessions(folder, has_own_zookeeper=False).keep(key)
    assert folder.session.stat().st_mode & 0o777 == 0o600
    assert "secret" not in repr(key)
    folder.release()
    shutil.copytree(folder.path, tmp_path / "copy")
    for path, has_own_zookeeper, ended in (
        ("data", False, key),
        ("copy", False, None),
        ("copy", True, None),
    ):
        again = DataFolder(tmp_path / path)
        assert FolderSessions(again, has_own_zookeeper=has_own_zookeeper).latest_ended() is None, "not locked"
        again.acquire()
        assert FolderSessions(again, has_own_zookeeper=has_own_zookeeper).latest_ended() == ended, path
        again.release()
    own = DataFolder(tmp_path / "copy")
    own.acquire()
    FolderSessions(own, has_own_zookeeper=True).keep(key)
    own.release()
    shutil.copytree(own.path, tmp_path / "copy of that")
    copied = DataFolder(tmp_path / "copy of that")
    copied.acquire()
    assert FolderSessions(copied, has_own_zookeeper=True).latest_ended() == key
    assert FolderSessions(copied, has_own_zookeeper=False).latest_ended() is None
    for damaged in (b"", b"{", b"[]", b'{"session_id": 1}', b"\xff" * 9_000):
        copied.session.write_bytes(damaged)
        assert FolderSessions(copied, has_own_zookeeper=True).latest_ended() is None, damaged
    copied.release()
