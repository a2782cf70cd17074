"""Overrides of topics that are kept while a watch reports no change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

import pytest

from kctl.errors import ApiError
from kctl.server.cluster.configs.resources import KEPT_TOPIC_CONFIG_BYTES_MAX, WatchedConfigs
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.operations import SessionState, WatchEvent
from tests.rows import for_rows

TOPICS = ("a", "b")


class Scene:
    """Sessions of a broker, which keeps overrides, and of another one, which changes them."""

    def __init__(self, ensemble: SimZooKeeper) -> None:
        self.session = ensemble.session(on_watch=self._on_watch)
        self.other: SimZooKeeperSession = ensemble.session()
        self.watched = WatchedConfigs(self.session)

    def _on_watch(self, event: WatchEvent) -> None:
        self.watched.on_watch(event)

    async def start(self) -> None:
        await self.session.start(10_000)
        await self.other.start(10_000)
        for topic in TOPICS:
            await self.other.create(
                paths.topic_config(topic), znodes.encode_config({"retention.ms": "0"}), make_parents=True
            )

    async def set(self, topic: str, overrides: Mapping[str, str]) -> None:
        await self.other.set(paths.topic_config(topic), znodes.encode_config(overrides))

    async def overrides(self, topic: str) -> Mapping[str, str]:
        """Those that a request which arrives now returns."""
        await self.watched.confirm()
        kept = self.watched.kept(topic)
        return await self.watched.read(topic) if kept is None else kept


def play(scene: Callable[[Scene], Awaitable[None]], *, seed: int = 1, has_delays: bool = False) -> None:
    async def main(loop: SimLoop) -> None:
        chance = random.Random(loop.seed)
        ensemble = SimZooKeeper(delay_s=lambda: chance.random() / 100) if has_delays else SimZooKeeper()
        played = Scene(ensemble)
        await played.start()
        await scene(played)

    simulate(main, seed=seed)


def test_overrides_are_kept_until_they_change() -> None:
    async def scene(played: Scene) -> None:
        assert played.watched.kept("a") is None
        assert await played.overrides("a") == {"retention.ms": "0"}
        assert played.watched.kept("a") == {"retention.ms": "0"}
        await played.set("a", {"retention.ms": "1"})
        assert await played.overrides("a") == {"retention.ms": "1"}
        assert played.watched.kept("b") is None

    play(scene)


def test_overrides_of_a_deleted_topic_are_not_kept() -> None:
    async def scene(played: Scene) -> None:
        await played.overrides("a")
        await played.other.delete(paths.topic_config("a"))
        assert await played.overrides("a") == {}
        await played.other.create(paths.topic_config("a"), znodes.encode_config({"retention.ms": "2"}))
        assert await played.overrides("a") == {"retention.ms": "2"}

    play(scene)


def test_overrides_that_changed_after_the_session_was_lost_are_read_again() -> None:
    async def scene(played: Scene) -> None:
        await played.overrides("a")
        played.session.expire()
        await played.session.reconnect(10_000)
        await played.set("a", {"retention.ms": "1"})
        assert await played.overrides("a") == {"retention.ms": "1"}

    play(scene)


def test_large_overrides_are_not_kept() -> None:
    async def scene(played: Scene) -> None:
        large = {"x": "y" * KEPT_TOPIC_CONFIG_BYTES_MAX}
        await played.set("a", large)
        for _ in range(2):
            assert await played.overrides("a") == large
            assert played.watched.kept("a") is None
        await played.set("a", {"retention.ms": "3"})
        assert await played.overrides("a") == {"retention.ms": "3"}
        assert played.watched.kept("a") == {"retention.ms": "3"}

    play(scene)


def test_invalid_overrides_are_an_error_until_they_are_valid() -> None:
    async def scene(played: Scene) -> None:
        await played.other.set(paths.topic_config("a"), b"{")
        for _ in range(2):
            with pytest.raises(ApiError, match="/config/topics/a"):
                await played.overrides("a")
        await played.set("a", {"retention.ms": "3"})
        assert await played.overrides("a") == {"retention.ms": "3"}
        assert played.watched.kept("a") == {"retention.ms": "3"}

    play(scene)


@for_rows("seed", range(10))
@pytest.mark.long
def test_a_request_gets_every_change_that_was_complete_before_it(seed: int) -> None:
    """While others write and read, and connections break."""

    async def scene(played: Scene) -> None:
        complete = dict.fromkeys(TOPICS, 0)
        kept = 0

        async def write(topic: str) -> None:
            for number in range(1, 100):
                await played.set(topic, {"retention.ms": str(number)})
                complete[topic] = number
                await asyncio.sleep(random.Random(seed + number).random() / 20)

        async def read(topic: str) -> None:
            nonlocal kept
            while complete[topic] < 99:
                before = complete[topic]
                kept += played.watched.kept(topic) is not None
                found = await played.overrides(topic)
                assert before <= int(found["retention.ms"]) <= complete[topic] + 1

        async def break_connections() -> None:
            while min(complete.values()) < 99:
                played.session.break_connection()
                await asyncio.sleep(0.02)
                played.session.heal()
                assert played.session.state is SessionState.CONNECTED
                await asyncio.sleep(0.1)

        async with asyncio.TaskGroup() as tasks:
            for topic in TOPICS:
                tasks.create_task(write(topic))
                for _ in range(3):
                    tasks.create_task(read(topic))
            tasks.create_task(break_connections())
        assert kept

    play(scene, seed=seed, has_delays=True)
