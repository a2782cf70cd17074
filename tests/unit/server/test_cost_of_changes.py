"""A change of one topic costs the controller and its broker as much with many topics as with few.

Counted in requests to ZooKeeper and in calls of functions, which do not depend on the machine.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import FrameType

import pytest

from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.zookeeper import paths
from kctl.zookeeper.znodes import TopicAssignment, encode_topic
from tests.unit.handlers.test_create_topics import create, topic
from tests.unit.handlers.world import World, play

FEW, MANY = 10, 300
CALLS_MORE_MAX = 60
"""Calls that may be more with many topics: names are compared, and sizes of collections cross a boundary."""
Change = Callable[[World], Awaitable[None]]
A = TopicPartition("a", 0)


async def create_a(world: World) -> None:
    (result,) = (await create(world, topic("a", assignment={0: [0, 1]}))).topics
    assert result.error_code == ErrorCode.NONE


async def add_partition(world: World) -> None:
    known = await world.topics.assignment("a")
    await world.topics.add_partitions("a", {1: (0,)})
    await world.until(lambda: world.metadata.has_leaders("a", len(known.replicas) + 1))


async def set_property(world: World) -> None:
    await world.topics.change_config("topics/a", {"unclean.leader.election.enable": "true"})
    await world.until(lambda: world.configs.topic("a").unclean_leader_election_enable)
    world.controller.topic_configs_changed(["a"])
    await world.until(lambda: world.controller.queue_size == 0)


async def reorder_replicas(world: World) -> None:
    assert await world.controller.reassign({A: (1, 0)}) == {A: ErrorCode.NONE}
    await world.until(lambda: (world.metadata.partition(A) or ((),) * 4)[3] == (1, 0))


async def elect_preferred(world: World) -> None:
    assert await world.controller.elect_leaders((A,), is_unclean=False) == {A: ErrorCode.NONE}


async def alter_isr(world: World) -> None:
    known = world.controller.state.leaders[A]
    assert await world.controller.alter_isrs({A: replace(known, isr=(known.leader,))})
    assert world.controller.state.leaders[A].isr == (known.leader,)


async def write_assignment(world: World) -> None:
    """As tools older than 2.8 add a partition, without the id of the topic, which stays."""
    known = await world.topics.assignment("a")
    written = TopicAssignment({**known.replicas, 2: (0,)})
    await world.zookeeper.set(paths.topic("a"), encode_topic(written))
    await world.until(lambda: world.metadata.has_leaders("a", 3))
    assert (await world.topics.assignment("a")).topic_id == known.topic_id == world.metadata.topic_id("a")


async def delete_and_create(world: World) -> None:
    await world.topics.request_deletion("a")
    await create_a(world)


async def delete(world: World) -> None:
    await world.topics.request_deletion("a")
    await world.until(lambda: "a" not in world.controller.state.topics)


CHANGES: list[Change] = [
    create_a,
    add_partition,
    set_property,
    reorder_replicas,
    elect_preferred,
    alter_isr,
    write_assignment,
    delete_and_create,
    delete,
]


def costs(topics: int) -> dict[str, tuple[Counter[str], int]]:
    """The cost of each change beside so many topics."""

    async def scene(world: World) -> dict[str, tuple[Counter[str], int]]:
        for number in range(topics):
            await world.topics.create(f"filler-{number}", {0: (0,)}, {})
        await world.until(lambda: len(world.metadata.topics) == topics and world.controller.queue_size == 0)
        found = {}
        for change in CHANGES:
            await world.until(lambda: world.controller.queue_size == 0)
            await settled(world)
            found[change.__name__] = await cost_of(change, world)
        return found

    return play(scene, others=1)


async def cost_of(change: Change, world: World) -> tuple[Counter[str], int]:
    """The requests to ZooKeeper, by kind, and the calls of functions."""
    calls, requests = 0, Counter[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call" and "/kctl/server/" in frame.f_code.co_filename:
            calls += 1
        if event == "call" and frame.f_code.co_qualname == "SimZooKeeperSession._request":
            requests[type(frame.f_locals["request"]).__name__] += 1

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        await change(world)
        await settled(world)
    finally:
        sys.setprofile(former)
    return requests, calls


async def settled(world: World) -> None:
    """Lets what follows from a change take place, in virtual time."""
    end_s = world.loop.time() + 1
    await world.until(lambda: world.loop.time() > end_s)


@pytest.mark.long
def test_the_cost_of_a_change_does_not_depend_on_the_number_of_topics() -> None:
    few, many = costs(FEW), costs(MANY)
    for name, (requests, calls) in few.items():
        assert many[name][0] == requests, name
        assert abs(many[name][1] - calls) <= CALLS_MORE_MAX, (name, calls, many[name][1])
