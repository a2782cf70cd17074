"""The simulated ZooKeeper, the embedded server and Apache ZooKeeper give a session the same history.

Random operations by three sessions, closed and opened again now and then; compared is all that answers and events say.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from kctl.errors import ZooKeeperError
from kctl.testing.sim_zookeeper import SimZooKeeper
from kctl.zookeeper.operations import (
    Check,
    Create,
    Delete,
    Operation,
    OperationResult,
    SetData,
    WatchEvent,
    ZnodeStat,
    ZooKeeper,
)
from kctl.zookeeper.session import ZooKeeperSession
from tests.integration.zookeeper.test_session import own_folder

PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x", "/c", "/a/x/1/deep")
CALLS = ("create", "set", "delete", "get", "exists", "children", "multi")
WEIGHTS = (24, 12, 6, 16, 10, 16, 10)
SESSIONS = 3
LENGTH = 300
START_TIMEOUT_MS = 30_000

OpenSession = Callable[[Callable[[WatchEvent], None]], ZooKeeper]


class HistoryRecorder:
    """Performs the operations of a seed and records their results."""

    def __init__(self, open_session: OpenSession, seed: int) -> None:
        self._open_session = open_session
        self._rng = random.Random(seed)
        self._sessions: list[ZooKeeper] = []
        self._names: dict[int, str] = {}
        self._received: list[str] = []
        self.history: list[str] = []

    async def play(self) -> list[str]:
        for index in range(SESSIONS):
            self._sessions.append(await self._new_session(index))
        for number in range(LENGTH):
            index = self._rng.randrange(SESSIONS)
            if self._rng.random() < 0.02:
                await self._sessions[index].close()
                self._sessions[index] = await self._new_session(index)
                output: object = "begins again"
            else:
                output = await self._step(self._sessions[index])
            for session in self._sessions:
                await session.sync("/")
            self.history += [f"{number} session {index}: {output}", *sorted(self._received)]
            self._received.clear()
        for session in self._sessions:
            await session.close()
        return self.history

    async def _new_session(self, index: int) -> ZooKeeper:
        session = self._open_session(lambda event: self._received.append(f"    session {index} receives {event}"))
        await session.start(START_TIMEOUT_MS)
        self._names[session.session_id] = f"session {index}"
        return session

    async def _step(self, session: ZooKeeper) -> object:
        rng = self._rng
        path, version = rng.choice(PATHS), rng.choice((-1, -1, -1, -1, -1, -1, 0, 1))
        flag, other_flag, data = rng.random() < 0.5, rng.random() < 0.2, rng.choice((None, b"", b"data"))
        several = [self._operation() for _ in range(rng.randrange(4))]
        call = rng.choices(CALLS, WEIGHTS)[0]
        reported = f"{call} {path} {version} {flag} {other_flag} {data!r}"
        try:
            match call:
                case "create":
                    result: object = await session.create(
                        path, data, ephemeral=flag and other_flag, sequence=other_flag
                    )
                case "set":
                    result = await session.set(path, data, version=version)
                case "delete":
                    await session.delete(path, version=version, recursive=flag and other_flag)
                    result = None
                case "get":
                    result = await session.get(path, watch=flag)
                case "exists":
                    result = await session.exists(path, watch=flag)
                case "children":
                    result = await session.children(path, watch=flag)
                case _:
                    reported = f"multi {several}"
                    result = [self._plain(outcome) for outcome in await session.multi(several)]
        except ZooKeeperError as error:
            result = f"{type(error).__name__}: {error} ({error.path})"
        if isinstance(result, tuple) and not isinstance(result, ZnodeStat):
            return reported, result[0], self._plain(result[1])
        return reported, self._plain(result)

    def _operation(self) -> Operation:
        rng = self._rng
        path, version = rng.choice(PATHS), rng.choice((-1, -1, -1, 0, 1))
        match rng.randrange(5):
            case 0 | 1:
                return Create(path, rng.choice((None, b"x")), rng.random() < 0.4, rng.random() < 0.2)
            case 2:
                return SetData(path, b"multi", version)
            case 3:
                return Delete(path, version)
        return Check(path, max(version, 0))

    def _plain(self, result: object | OperationResult) -> object:
        """Without times, and zxids only as far as they identify the last transaction of a node."""
        if not isinstance(result, ZnodeStat):
            return result
        owner = self._names.get(result.ephemeral_owner, result.ephemeral_owner)
        order = (result.czxid == result.mzxid, result.czxid == result.pzxid, result.mzxid < result.pzxid)
        return (*order, *result[4:7], owner, *result[8:10])


def history_of(open_session: OpenSession, seed: int) -> list[str]:
    return asyncio.run(HistoryRecorder(open_session, seed).play())


def simulated(seed: int) -> list[str]:
    async def main() -> list[str]:
        ensemble = SimZooKeeper()
        return await HistoryRecorder(lambda receive: ensemble.session(on_watch=receive), seed).play()

    return asyncio.run(main())


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(2, 6))])
def test_simulated_and_real_servers_give_the_same_history(ensemble: str, seed: int) -> None:
    folder = own_folder(ensemble)
    real = history_of(lambda receive: ZooKeeperSession(folder, on_watch=receive), seed)
    for theirs, mine in zip(real, simulated(seed), strict=False):
        # A session's own /zookeeper does not show below a chroot, so no request is about the root.
        assert mine == theirs, f"seed {seed}"
