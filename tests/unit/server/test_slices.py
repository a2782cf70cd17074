"""Long work in slices: however many requests need it, only the oldest response grows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX, REQUEST_ELEMENTS_PER_SLICE_MAX, SLICE_OBJECTS
from kctl.protocol.apis.stop_replica import StopReplicaTopicState
from kctl.server.loop.slices import held, in_slices, release, results_of

REQUESTS = 20
SLICES = 5


def test_the_oldest_response_is_completed_before_the_others_grow() -> None:
    made = [0] * REQUESTS
    unfinished_max = 0

    def parts(number: int) -> Iterator[int]:
        nonlocal unfinished_max
        for part in range(SLICES):
            made[number] += 1
            unfinished_max = max(unfinished_max, sum(count for count in made if 1 < count < SLICES))
            yield part

    async def respond(number: int) -> int:
        await in_slices(parts(number), lambda _: SLICE_OBJECTS)
        return number

    async def all_responses() -> list[int]:
        return [await done for done in asyncio.as_completed([respond(number) for number in range(REQUESTS)])]

    assert sorted(asyncio.run(all_responses())) == list(range(REQUESTS))
    assert unfinished_max < SLICES, "beyond its first slice, one response at a time"


def test_no_response_grows_while_others_wait_to_be_encoded() -> None:
    async def scene() -> None:
        with held(), held():
            growing = asyncio.ensure_future(in_slices(range(SLICES), lambda _: SLICE_OBJECTS))
            for _ in range(10 * SLICES):
                await asyncio.sleep(0)
            assert not growing.done()
        assert await growing == list(range(SLICES))

    asyncio.run(scene())


def test_the_tasks_of_a_long_request_are_started_in_slices() -> None:
    """1,500 topics of a CreateTopics request began in one iteration of the event loop."""
    count = 3 * COSTLY_ELEMENTS_PER_SLICE_MAX
    begun: list[int] = []

    async def work(number: int) -> int:
        begun.append(number)
        while len(begun) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return number

    async def scene() -> None:
        results = asyncio.ensure_future(results_of(work(number) for number in range(count)))
        while not results.done():
            before = len(begun)
            await asyncio.sleep(0)
            assert len(begun) <= before + COSTLY_ELEMENTS_PER_SLICE_MAX
        assert results.result() == begun == list(range(count)), "all of them ran at the same time"

    asyncio.run(scene())


def test_the_partitions_of_a_long_request_are_freed_in_slices() -> None:
    async def scene() -> None:
        few = [StopReplicaTopicState(topic_name="few", partition_states=[]) for _ in range(2_000)]
        many = StopReplicaTopicState(topic_name="many", partition_states=[None] * 2_000)  # type: ignore[list-item]
        topics = [*few, many]
        freeing = asyncio.ensure_future(release([*(topic.partition_states for topic in topics), topics]))
        left = len(topics) + len(many.partition_states)
        while not freeing.done():
            await asyncio.sleep(0)
            before, left = left, len(topics) + len(many.partition_states)
            assert before - left <= REQUEST_ELEMENTS_PER_SLICE_MAX + 1
        assert left == 0

    asyncio.run(scene())
