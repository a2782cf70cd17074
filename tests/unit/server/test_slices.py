"""Long work in slices: however many requests need it, only the oldest response grows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

from kctl.limits import COSTLY_ELEMENTS_PER_SLICE_MAX, REQUEST_ELEMENTS_PER_SLICE_MAX
from kctl.protocol.apis.stop_replica import StopReplicaTopicState
from kctl.server.loop.slices import Slices, gather_sliced, held, release, sliced, started

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
        assert len([part async for part in sliced(parts(number), per_slice=1)]) == SLICES
        return number

    async def all_responses() -> list[int]:
        return [await done for done in asyncio.as_completed([respond(number) for number in range(REQUESTS)])]

    assert sorted(asyncio.run(all_responses())) == list(range(REQUESTS))
    assert unfinished_max < SLICES, "beyond its first slice, one response at a time"


def test_no_response_grows_while_others_wait_to_be_encoded() -> None:
    async def grown() -> list[int]:
        return [part async for part in sliced(range(SLICES), per_slice=1)]

    async def scene() -> None:
        with held(), held():
            growing = asyncio.ensure_future(grown())
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
        results = asyncio.ensure_future(gather_sliced(work(number) for number in range(count)))
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


def test_started_work_needs_no_task_if_it_does_not_wait() -> None:
    async def work() -> int:
        return sum([number async for number in sliced(range(10))])

    assert started(work()) == sum(range(10))  # There is not even an event loop.


def test_started_work_continues_in_the_task_that_awaits_it() -> None:
    async def work() -> int:
        return sum([number async for number in sliced(range(10), per_slice=3)])

    async def scene() -> None:
        rest = started(work())
        assert isinstance(rest, Awaitable)
        assert await rest == sum(range(10))

    asyncio.run(scene())


def test_started_work_that_is_cancelled_or_fails_ends_as_in_a_task() -> None:
    ended: list[str] = []

    async def work(waits_for: asyncio.Future[int]) -> int:
        try:
            return await waits_for
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        except ValueError as error:
            ended.append(str(error))
            await asyncio.sleep(0)  # It may wait again after that.
            return -1

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        fails: asyncio.Future[int] = loop.create_future()
        rest = started(work(fails))
        assert isinstance(rest, Awaitable)
        fails.set_exception(ValueError("failed"))
        assert await rest == -1

        rest = started(work(loop.create_future()))
        assert isinstance(rest, Awaitable)
        task = asyncio.ensure_future(rest)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(scene())
    assert ended == ["failed", "cancelled"]


def test_the_loops_of_one_request_share_its_slices() -> None:
    """A request with 5,000 arrays of one element was handled without a pause if each loop had slices of its own."""
    handled = 0

    async def work() -> None:
        nonlocal handled
        slices = Slices(10)
        async for array in slices.of([[1]] * 100):
            async for element in slices.of(array):
                handled += element

    async def scene() -> None:
        working = asyncio.ensure_future(work())
        while not working.done():
            before = handled
            await asyncio.sleep(0)
            assert handled - before <= 10
        await working

    asyncio.run(scene())
    assert handled == 100


def test_an_element_is_made_after_the_pause_and_used_at_once() -> None:
    """Otherwise it describes what has changed while other connections were served."""
    now = 0

    async def work() -> None:
        async for made in sliced((now for _ in range(10)), per_slice=1):
            assert made == now

    async def scene() -> None:
        nonlocal now
        working = asyncio.ensure_future(work())
        while not working.done():
            now += 1
            await asyncio.sleep(0)
        await working

    asyncio.run(scene())
