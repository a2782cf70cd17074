"""Fetches of limited consumers: empty responses, sessions and followers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from kctl.config.dynamic import ConfigView
from kctl.model import TopicPartition
from kctl.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.server.requests.context import RequestContext
from kctl.server.requests.quotas.accounts import FETCH_KEY
from kctl.server.requests.quotas.client_quotas import ClientQuotas
from tests.unit.handlers.test_fetch_replicas import CONSUMER, FOLLOWER, Scene, play
from tests.unit.handlers.world import context

VERSION = 11


async def _no_hosts(_: str) -> str | None:
    return None


async def quotas(scene: Scene, rate: int, **more: str) -> ClientQuotas:
    made = ClientQuotas(ConfigView({}).current, scene.disk.clock, _no_hosts)
    await made.replace({"users/ANONYMOUS": {"consumer_byte_rate": str(rate), **more}})
    return made


def limited(scene: Scene, made: ClientQuotas) -> tuple[RequestContext, Callable[[], int]]:
    """The context of a request of the limited client, and what settles it."""
    client = made.client("User:ANONYMOUS", "client")
    assert client is not None
    requested = context(VERSION)
    requested.now_s = now_s = scene.disk.loop.time
    requested.limited, requested.request_bytes, requested.busy_s, requested.running_since_s = client, 100, 0.0, now_s()
    return requested, lambda: 0 if requested.account is None else requested.account.settle(FETCH_KEY, 0)


def request(*, replica_id: int = CONSUMER, session_id: int = 0, session_epoch: int = -1) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="a", partitions=partitions)] if session_epoch <= 0 else [],
    )


def completed(response: object) -> FetchResponse:
    assert isinstance(response, FetchResponse)
    return response


def used(made: ClientQuotas) -> float:
    (reading,) = made.readings()["consumer_byte_rate"].values()
    return reading.usage


def test_a_throttled_fetch_gets_no_records_and_does_not_count(tmp_path: Path) -> None:
    async def main(scene: Scene) -> None:
        scene.disk.append(scene.disk.lead("a"), 100)
        made = await quotas(scene, 1_000)
        requested, settle = limited(scene, made)
        first = completed(scene.handler.handle(request(), requested))
        assert 7_000 < len(first.responses[0].partitions[0].records) < 9_000  # type: ignore[arg-type]
        assert settle() == 0
        before = used(made)
        requested, settle = limited(scene, made)
        second = completed(scene.handler.handle(request(), requested))
        assert second.responses == []
        assert settle() > 0
        assert used(made) == before

    play(tmp_path, main)


def test_a_fetch_returns_at_most_what_the_quota_allows_in_its_windows(tmp_path: Path) -> None:
    """A larger response could never be sent; with its header it exceeds the quota by little, as in Kafka."""

    async def main(scene: Scene) -> None:
        scene.disk.append(scene.disk.lead("a"), 100)
        made = await quotas(scene, 200)
        for _ in range(3):
            requested, settle = limited(scene, made)
            response = completed(scene.handler.handle(request(), requested))
            throttle_ms = settle()
            if not throttle_ms:
                break
            assert throttle_ms < 1_000
            await asyncio.sleep(throttle_ms / 1000)
        assert 1_000 < len(response.responses[0].partitions[0].records) <= 2_000  # type: ignore[arg-type]

    play(tmp_path, main)


def test_a_throttled_fetch_leaves_its_session_as_it_was(tmp_path: Path) -> None:
    async def main(scene: Scene) -> None:
        partition = scene.disk.lead("a")
        made = await quotas(scene, 1_000)
        requested, _ = limited(scene, made)
        opened = completed(scene.handler.handle(request(session_epoch=0), requested))
        assert opened.session_id > 0
        scene.disk.append(partition, 30)
        made.client("User:ANONYMOUS", "client").fetch.add(30_000, scene.disk.clock.monotonic_ms())  # type: ignore[union-attr]
        requested, settle = limited(scene, made)
        follow = request(session_id=opened.session_id, session_epoch=1)
        throttled = completed(scene.handler.handle(follow, requested))
        assert (throttled.session_id, throttled.responses) == (opened.session_id, [])
        assert settle() > 0
        await asyncio.sleep(3600)
        requested, settle = limited(scene, made)
        follow = request(session_id=opened.session_id, session_epoch=2)
        served = completed(scene.handler.handle(follow, requested))
        assert [topic.topic for topic in served.responses] == ["a"]
        assert settle() == 0

    play(tmp_path, main)


def test_fetches_of_followers_are_exempt(tmp_path: Path) -> None:
    async def main(scene: Scene) -> None:
        partition = scene.disk.lead("a", replicas=(0, FOLLOWER))
        scene.disk.append(partition, 100)
        made = await quotas(scene, 1, request_percentage="0")
        for _ in range(3):
            requested, settle = limited(scene, made)
            response = completed(scene.handler.handle(request(replica_id=FOLLOWER), requested))
            assert len(response.responses[0].partitions[0].records) > 5_000  # type: ignore[arg-type]
            assert settle() == 0
        assert TopicPartition("a", 0) in scene.disk.replicas.partitions
        assert used(made) == 0

    play(tmp_path, main)


def test_a_fetch_over_the_request_quota_gets_no_records_either(tmp_path: Path) -> None:
    async def main(scene: Scene) -> None:
        scene.disk.append(scene.disk.lead("a"), 10)
        made = await quotas(scene, 10**9, request_percentage="10")
        made.client("User:ANONYMOUS", "client").request.add(1_000, scene.disk.clock.monotonic_ms())  # type: ignore[union-attr]
        requested, settle = limited(scene, made)
        response = completed(scene.handler.handle(request(), requested))
        assert response.responses == []
        assert settle() == 1_000
        assert used(made) == 0

    play(tmp_path, main)
