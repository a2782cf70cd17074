"""The simulated ZooKeeper handles sessions as a real one, at times that the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kctl.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionLostError,
    ZooKeeperError,
)
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper.operations import (
    Check,
    Create,
    Delete,
    SessionState,
    SetData,
    WatchEvent,
    WatchEventType,
    ZnodeStat,
)

Play = Callable[[SimZooKeeper, SimZooKeeperSession, list[object]], Awaitable[None]]


def played(play: Play, *, delay: bool = False) -> list[object]:
    """Runs a scenario with one session that is started; returns the events of its callbacks."""
    received: list[object] = []

    async def main(loop: SimLoop) -> None:
        ensemble = SimZooKeeper(delay_s=lambda: loop.random.random() / 10 if delay else 0.0)
        session = ensemble.session(session_timeout_ms=4000, on_watch=received.append, on_state=received.append)
        await session.start(1000)
        received.clear()
        await play(ensemble, session, received)

    simulate(main, seed=1)
    return received


def test_all_operations_and_their_errors() -> None:
    async def play(_: SimZooKeeper, session: SimZooKeeperSession, __: list[object]) -> None:
        assert await session.create("/a/b/c", b"1", make_parents=True) == "/a/b/c"
        assert await session.create("/a/n-", sequence=True) == "/a/n-0000000001"
        data, stat = await session.get("/a/b/c")
        assert (data, stat.version) == (b"1", 0)
        assert (await session.set("/a/b/c", None, version=0)).version == 1
        assert (await session.get("/a/b/c"))[0] == b""
        assert await session.children("/a") == ["b", "n-0000000001"]
        assert await session.exists("/nowhere") is None
        for wrong, call in (
            (NodeExistsError, session.create("/a")),
            (NoNodeError, session.create("/x/y")),
            (NoNodeError, session.get("/x")),
            (BadVersionError, session.set("/a/b/c", b"", version=7)),
            (NotEmptyError, session.delete("/a")),
            (ZooKeeperError, session.create("/a/")),
        ):
            with pytest.raises(wrong):
                await call
        with pytest.raises(BadVersionError) as refused:
            await session.multi([Create("/m"), Check("/a/b", 5), Delete("/a")])
        assert refused.value.path == "/a/b"
        assert await session.exists("/m") is None
        results = await session.multi([Create("/m", None, ephemeral=True), SetData("/m", b"x", 0), Delete("/a/b/c")])
        assert results[0] == "/m"
        assert isinstance(results[1], ZnodeStat)
        assert results[1].ephemeral_owner == session.session_id
        await session.delete("/a", recursive=True)
        assert await session.children("/") == ["m", "zookeeper"]

    played(play)


def test_an_event_comes_before_the_response_that_shows_the_change() -> None:
    async def play(_: SimZooKeeper, session: SimZooKeeperSession, received: list[object]) -> None:
        await session.create("/a")
        await session.get("/a", watch=True)
        await session.children("/", watch=True)
        setting, deleting = asyncio.create_task(session.set("/a", b"")), asyncio.create_task(session.delete("/a"))
        setting.add_done_callback(lambda _: received.append("set"))
        deleting.add_done_callback(lambda _: received.append("deleted"))
        await asyncio.gather(setting, deleting)
        assert received.index(WatchEvent(WatchEventType.CHANGED, "/a")) < received.index("set")
        assert received.index(WatchEvent(WatchEventType.CHILD, "/")) < received.index("deleted")

    played(play, delay=True)


def test_ephemeral_nodes_are_deleted_on_session_expiry() -> None:
    async def play(ensemble: SimZooKeeper, session: SimZooKeeperSession, received: list[object]) -> None:
        other = ensemble.session()
        await other.start(1000)
        await session.create("/e", ephemeral=True)
        await session.get("/e", watch=True)
        first_id = session.session_id
        session.expire()
        assert received == [SessionState.EXPIRED]
        assert await other.exists("/e") is None
        with pytest.raises(SessionLostError):
            await session.get("/")
        await session.reconnect(1000)
        assert session.session_id != first_id
        await session.create("/e", ephemeral=True)
        assert received == [SessionState.EXPIRED, SessionState.CONNECTED]

    played(play)


def test_a_session_that_reconnects_in_time_gets_missed_events() -> None:
    async def play(ensemble: SimZooKeeper, session: SimZooKeeperSession, received: list[object]) -> None:
        other = ensemble.session()
        await other.start(1000)
        await session.create("/e", ephemeral=True)
        await session.get("/e", watch=True)
        await session.exists("/new", watch=True)
        await session.children("/", watch=True)
        session.break_connection()
        await other.create("/new")
        reading = asyncio.create_task(session.get("/new"))
        await asyncio.sleep(3)
        assert not reading.done()
        session.heal()
        await reading
        assert received == [
            SessionState.SUSPENDED,
            SessionState.CONNECTED,
            WatchEvent(WatchEventType.CREATED, "/new"),
            WatchEvent(WatchEventType.CHILD, "/"),
        ]
        received.clear()
        await other.set("/e", b"")
        await session.sync("/")
        assert received == [WatchEvent(WatchEventType.CHANGED, "/e")]

    played(play)


def test_an_expired_session_is_notified_on_reconnect() -> None:
    async def play(ensemble: SimZooKeeper, session: SimZooKeeperSession, received: list[object]) -> None:
        other = ensemble.session()
        await other.start(1000)
        await session.create("/e", ephemeral=True)
        session.break_connection()
        await asyncio.sleep(3.9)
        assert await other.exists("/e") is not None
        await asyncio.sleep(0.2)
        assert await other.exists("/e") is None
        waiting = asyncio.create_task(session.get("/"))
        await asyncio.sleep(0)
        assert session.state is SessionState.SUSPENDED
        session.heal()
        with pytest.raises(SessionLostError):
            await waiting
        assert received == [SessionState.SUSPENDED, SessionState.EXPIRED]

    played(play)


def test_a_write_under_way_when_the_connection_breaks_may_have_happened() -> None:
    """The read after it is sent again; the write is reported to the caller."""

    async def play(ensemble: SimZooKeeper, session: SimZooKeeperSession, _: list[object]) -> None:
        outcomes = set()
        for number in range(30):
            writing = asyncio.create_task(session.create(f"/w{number}"))
            reading = asyncio.create_task(session.exists(f"/w{number}"))
            await asyncio.sleep(0.06)
            session.break_connection()
            await asyncio.sleep(1)
            session.heal()
            stat = await reading
            error = (await asyncio.gather(writing, return_exceptions=True))[0]
            assert error == f"/w{number}" or isinstance(error, ConnectionLossError)
            assert stat is not None or isinstance(error, ConnectionLossError)
            outcomes.add((type(error).__name__, stat is not None))
        assert outcomes == {("str", True), ("ConnectionLossError", True), ("ConnectionLossError", False)}

    played(play, delay=True)


def test_closing_ends_the_session_and_the_calls_that_wait() -> None:
    async def play(ensemble: SimZooKeeper, session: SimZooKeeperSession, received: list[object]) -> None:
        other = ensemble.session()
        await other.start(1000)
        await session.create("/e", ephemeral=True)
        waiting = asyncio.create_task(session.get("/"))
        await asyncio.sleep(0)
        await session.close()
        with pytest.raises(SessionLostError):
            await waiting
        assert await other.exists("/e") is None
        assert received == []

    played(play, delay=True)


def test_one_seed_is_one_history() -> None:
    def history(seed: int) -> list[str]:
        reported: list[str] = []

        async def main(loop: SimLoop) -> None:
            ensemble = SimZooKeeper(delay_s=loop.random.random)
            sessions = [ensemble.session(on_watch=lambda event: reported.append(str(event))) for _ in range(3)]
            for session in sessions:
                await session.start(1000)

            async def work(index: int) -> None:
                for number in range(20):
                    await sessions[index].children("/", watch=True)
                    path = await sessions[index].create("/n-", sequence=True)
                    reported.append(f"{loop.time():.6f} {index} {number} {path}")

            await asyncio.gather(*(work(index) for index in range(3)))

        simulate(main, seed=seed)
        return reported

    assert history(5) == history(5)
    assert history(5) != history(6)
