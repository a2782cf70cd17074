"""A session behaves the same on the embedded server and on Apache ZooKeeper: reconnects, expiry and close."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

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
from kctl.zookeeper import kazoo_link
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper
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
from kctl.zookeeper.session import ZooKeeperSession
from tests.peers import probe
from tests.peers.zookeeper_wire import end_session

START_TIMEOUT_MS = 30_000
SESSION_TIMEOUT_MS = 20_000
"""Not waited for by any test; long enough that a slow machine does not lose the connection."""
_numbers = itertools.count()


def own_folder(ensemble: str) -> str:
    """A connect string with a chroot of its own."""
    return f"{ensemble}/test-{next(_numbers)}/sub"


@contextlib.asynccontextmanager
async def session_on(connect: str, received: list[object] | None = None) -> AsyncIterator[ZooKeeperSession]:
    """A session that is closed at the end; `received` receives its events and states."""
    receive = received.append if received is not None else lambda _: None
    session = ZooKeeperSession(connect, session_timeout_ms=SESSION_TIMEOUT_MS, on_watch=receive, on_state=receive)
    await session.start(START_TIMEOUT_MS)
    try:
        yield session
    finally:
        await session.close()


async def until(claim: Callable[[], bool], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not claim():  # noqa: ASYNC110 - what is waited for comes from another thread or server
            await asyncio.sleep(0.01)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def break_connection(session: ZooKeeperSession) -> None:
    """Simulates a network failure: shuts down the socket of kazoo."""
    assert session._link is not None
    session._link._client._connection._socket.shutdown(2)


def test_all_operations_and_their_errors(ensemble: str) -> None:
    async def main() -> None:
        async with session_on(own_folder(ensemble)) as session:
            assert await session.create("/a/b/c", b"1", make_parents=True) == "/a/b/c"
            assert await session.create("/a/n-", sequence=True) == "/a/n-0000000001"
            assert (await session.get("/a/b/c"))[0] == b"1"
            assert (await session.set("/a/b/c", None, version=0)).version == 1
            assert (await session.get("/a/b/c"))[0] == b""
            assert await session.children("/a") == ["b", "n-0000000001"]
            assert await session.children("/") == ["a"]
            assert await session.exists("/nowhere") is None
            await session.sync("/")
            for wrong, call in (
                (NodeExistsError, session.create("/a")),
                (NoNodeError, session.create("/x/y")),
                (NoNodeError, session.get("/x")),
                (BadVersionError, session.set("/a/b/c", b"", version=7)),
                (NotEmptyError, session.delete("/a")),
                (ZooKeeperError, session.create("/a/")),
            ):
                with pytest.raises(wrong) as refused:
                    await call
                assert refused.value.path in str(refused.value)
            await session.delete("/a", recursive=True)
            assert await session.children("/") == []

    run(main)


def test_the_names_of_many_children_are_sorted_in_another_thread(
    ensemble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    in_order = kazoo_link.in_order

    def noting(names: list[str]) -> list[str]:
        threads.append(threading.get_ident())
        return in_order(names)

    monkeypatch.setattr(kazoo_link, "_SORTED_AT_ONCE", 10)
    monkeypatch.setattr(kazoo_link, "in_order", noting)

    async def main() -> None:
        async with session_on(own_folder(ensemble)) as session:
            await session.multi([Create(f"/{number * 7919 % 10_000}") for number in range(95)])
            assert await session.children("/") == sorted(f"{number * 7919 % 10_000}" for number in range(95))
            assert threading.get_ident() not in threads
            assert threads

    run(main)


def test_a_multi_is_all_or_nothing_and_names_what_failed(ensemble: str) -> None:
    async def main() -> None:
        async with session_on(own_folder(ensemble)) as session:
            await session.create("/epoch")
            with pytest.raises(BadVersionError) as refused:
                await session.multi([Create("/m"), Check("/epoch", 5), Delete("/nowhere")])
            assert refused.value.path == "/epoch"
            assert await session.exists("/m") is None
            path, stat, done = await session.multi(
                [Create("/m", None, ephemeral=True), SetData("/m", b"x", 0), Check("/epoch", 0)]
            )
            assert (path, done) == ("/m", True)
            assert isinstance(stat, ZnodeStat)
            assert stat == await session.exists("/m")
            assert stat.ephemeral_owner == session.session_id
            assert await session.multi([]) == []

    run(main)


def test_watch_events_arrive_before_responses_that_show_the_change(ensemble: str) -> None:
    """kazoo's own handler reorders about one in twenty, because it uses two threads."""

    async def main() -> None:
        received: list[object] = []
        folder = own_folder(ensemble)
        async with session_on(folder, received) as session, session_on(folder) as writer:
            await session.create("/a")
            for number in range(300):
                await session.get("/a", watch=True)
                received.clear()
                writing = asyncio.create_task(writer.set("/a", str(number).encode()))
                while True:
                    data, _ = await session.get("/a")
                    if data == str(number).encode():
                        break
                assert received == [WatchEvent(WatchEventType.CHANGED, "/a")]
                await writing

    run(main)


def test_a_deletion_is_reported_once_to_data_and_child_watches(ensemble: str) -> None:
    async def main() -> None:
        received: list[object] = []
        async with session_on(own_folder(ensemble), received) as session:
            await session.create("/a")
            await session.get("/a", watch=True)
            await session.exists("/a", watch=True)
            await session.children("/a", watch=True)
            received.clear()
            await session.delete("/a")
            assert received == [WatchEvent(WatchEventType.DELETED, "/a")]

    run(main)


def test_watches_survive_a_broken_connection_and_report_missed_changes(ensemble: str) -> None:
    async def main() -> None:
        received: list[object] = []
        folder = own_folder(ensemble)
        async with session_on(folder, received) as session, session_on(folder) as other:
            await session.create("/data")
            await session.create("/later")
            await session.create("/ephemeral", ephemeral=True)
            await session.get("/data", watch=True)
            await session.get("/later", watch=True)
            await session.exists("/new", watch=True)
            await session.children("/", watch=True)
            first_id = session.session_id
            received.clear()
            break_connection(session)
            await other.set("/data", b"changed")
            await other.create("/new")
            await until(lambda: SessionState.CONNECTED in received)
            await session.sync("/")
            assert session.session_id == first_id
            assert received[:2] == [SessionState.SUSPENDED, SessionState.CONNECTED]
            assert set(received[2:]) == {
                WatchEvent(WatchEventType.CHANGED, "/data"),
                WatchEvent(WatchEventType.CREATED, "/new"),
                WatchEvent(WatchEventType.CHILD, "/"),
            }
            assert await other.exists("/ephemeral") is not None
            received.clear()
            await other.set("/later", b"changed")
            await session.get("/later")
            assert received == [WatchEvent(WatchEventType.CHANGED, "/later")]

    run(main)


def test_reads_wait_for_a_broken_connection_and_writes_under_way_are_in_doubt(ensemble: str) -> None:
    async def main() -> None:
        async with session_on(own_folder(ensemble)) as session:
            await session.create("/a", b"here")
            in_doubt = 0
            for _ in range(20):
                calls = [session.get("/a") if turn % 2 else session.set("/a", b"here") for turn in range(200)]
                tasks = [asyncio.ensure_future(call) for call in calls]
                await asyncio.sleep(0)
                break_connection(session)
                for turn, outcome in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
                    if turn % 2:
                        assert not isinstance(outcome, BaseException)
                        assert outcome[0] == b"here"
                    else:
                        assert isinstance(outcome, (ZnodeStat, ConnectionLossError))
                        in_doubt += isinstance(outcome, ConnectionLossError)
            assert in_doubt > 0

    run(main)


def test_a_session_that_another_client_closed_has_expired(ensemble: str) -> None:
    async def main() -> None:
        received: list[object] = []
        folder = own_folder(ensemble)
        async with session_on(folder, received) as session, session_on(folder) as other:
            await session.create("/e", ephemeral=True)
            await session.get("/e", watch=True)
            ended = session.session_key
            received.clear()
            end_session(ensemble, ended.session_id, ended.password)
            await until(lambda: session.state is SessionState.EXPIRED)
            assert received == [SessionState.SUSPENDED, SessionState.EXPIRED]
            assert await other.exists("/e") is None
            with pytest.raises(SessionLostError):
                await session.get("/")
            await session.reconnect(START_TIMEOUT_MS)
            assert received[-1] is SessionState.CONNECTED
            assert session.session_id != ended.session_id
            await session.create("/e", ephemeral=True)
            assert received[-1] is SessionState.CONNECTED, "watches of the old session are gone"

    run(main)


def test_closing_deletes_ephemeral_nodes_at_once(ensemble: str) -> None:
    async def main() -> None:
        folder = own_folder(ensemble)
        async with session_on(folder) as other:
            async with session_on(folder) as session:
                await session.create("/e", ephemeral=True)
                waiting = asyncio.ensure_future(session.get("/e"))
                await asyncio.sleep(0)  # The request is pending; its response needs another iteration of the loop.
            assert await other.exists("/e") is None
            with pytest.raises(SessionLostError):
                await waiting
            with pytest.raises(SessionLostError):
                await session.get("/e")

    run(main)


def test_a_chroot_is_created_only_on_request(ensemble: str) -> None:
    async def main() -> None:
        folder = own_folder(ensemble)
        looking = ZooKeeperSession(folder, create_chroot=False)
        await looking.start(START_TIMEOUT_MS)
        with pytest.raises(NoNodeError):
            await looking.children("/")
        await looking.close()
        async with session_on(folder) as session:
            assert await session.children("/") == []

    run(main)


def test_more_requests_than_a_pipe_holds_do_not_block_the_loop(shared_embedded: str) -> None:
    async def main() -> None:
        async with session_on(own_folder(shared_embedded)) as session:
            created = await asyncio.gather(*(session.create(f"/n{number}") for number in range(2000)))
            assert created == [f"/n{number}" for number in range(2000)]
            assert len(await session.children("/")) == 2000

    run(main)


def test_an_unreachable_address_is_an_error_with_a_remedy() -> None:
    connect = f"127.0.0.1:{probe.free_port()}"

    async def main() -> None:
        session = ZooKeeperSession(connect)
        with pytest.raises(ZooKeeperError, match=rf"does not respond at {connect} \(waited 300 ms\): start it, or"):
            await session.start(300)

    run(main)


def test_an_unresponsive_server_is_an_error() -> None:
    async def main() -> None:
        # The kernel accepts connections, but no process reads from them.
        with socket.create_server(("127.0.0.1", 0)) as mute:
            host, port = mute.getsockname()
            session = ZooKeeperSession(f"{host}:{port}", session_timeout_ms=1000)
            with pytest.raises(ZooKeeperError, match=f"does not respond at {host}:{port}"):
                await session.start(300)

    run(main)


@contextlib.asynccontextmanager
async def server_on(folder: Path, port: int = 0) -> AsyncIterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(folder, port=port)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def test_sessions_watches_and_nodes_survive_a_restart_of_the_embedded_server(tmp_path: Path) -> None:
    async def main() -> None:
        received: list[object] = []
        async with server_on(tmp_path) as server:
            session = ZooKeeperSession(server.connect, on_watch=received.append, on_state=received.append)
            await session.start(START_TIMEOUT_MS)
            await session.create("/e", b"x", ephemeral=True)
            await session.get("/e", watch=True)
            port, first_id, received[:] = server.port, session.session_id, []
        await until(lambda: SessionState.SUSPENDED in received)
        async with server_on(tmp_path, port):
            assert (await session.get("/e"))[0] == b"x"
            assert session.session_id == first_id
            await session.set("/e", b"y")
            assert received == [
                SessionState.SUSPENDED,
                SessionState.CONNECTED,
                WatchEvent(WatchEventType.CHANGED, "/e"),
            ]
            await session.close()

    run(main)


def test_the_error_for_a_busy_port_names_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with server_on(tmp_path / "one") as server:
            other = EmbeddedZooKeeper(tmp_path / "two", port=server.port)
            with pytest.raises(ZooKeeperError, match=f"port {server.port} of 127.0.0.1 is in use"):
                await other.start()
            again = EmbeddedZooKeeper(tmp_path / "one")
            with pytest.raises(ZooKeeperError, match="is in use by another ZooKeeper server"):
                await again.start()

    run(main)
