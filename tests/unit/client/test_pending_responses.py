"""The time limits of requests that share a connection and a timer; time is simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.client.connections.frame_receiver import PendingResponses
from kctl.client.connections.transport import ConnectionLost
from kctl.testing.sim_loop import SimLoop, simulate


def play(scenario: Callable[[SimLoop, PendingResponses], Awaitable[None]]) -> None:
    """Runs the scenario."""

    async def main(loop: SimLoop) -> None:
        await scenario(loop, PendingResponses())

    simulate(main, seed=1)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200), st.integers(0, 200)), min_size=1, max_size=20))
def test_each_request_fails_at_its_own_deadline_unless_its_response_arrives(
    requests: list[tuple[int, int, int]],
) -> None:
    """Pause before the request, time limit and time of the response, in ms."""

    async def request(
        loop: SimLoop, responses: PendingResponses, number: int, timeout_ms: int, response_ms: int
    ) -> None:
        started_s = loop.time()
        arrival = responses.expect(number, timeout_ms)
        loop.call_later(response_ms / 1000, responses.arrived, number, memoryview(b"%d" % number))
        try:
            assert bytes(await arrival) == b"%d" % number
            assert response_ms <= timeout_ms
        except TimeoutError:
            assert loop.time() - started_s == pytest.approx(timeout_ms / 1000, abs=1e-6)
            assert response_ms >= timeout_ms
        finally:
            responses.forget(number)

    async def scenario(loop: SimLoop, responses: PendingResponses) -> None:
        async with asyncio.TaskGroup() as group:
            for number, (pause_ms, timeout_ms, response_ms) in enumerate(requests):
                await asyncio.sleep(pause_ms / 1000)
                group.create_task(request(loop, responses, number, timeout_ms, response_ms))

    play(scenario)


def test_response_to_a_request_that_does_not_wait_any_more_is_ignored() -> None:
    async def scenario(_: SimLoop, responses: PendingResponses) -> None:
        arrival = responses.expect(1, 100)
        arrival.cancel()
        responses.arrived(1, memoryview(b"late"))
        responses.forget(1)
        responses.arrived(1, memoryview(b"later"))
        await asyncio.sleep(1)
        assert arrival.cancelled()

    play(scenario)


def test_lost_connection_fails_all_that_wait() -> None:
    async def scenario(_: SimLoop, responses: PendingResponses) -> None:
        first, second = responses.expect(1, 100), responses.expect(2, 200)
        responses.arrived(1, memoryview(b"in time"))
        responses.close(ConnectionLost("gone"))
        assert bytes(await first) == b"in time"
        with pytest.raises(ConnectionLost, match="gone"):
            await second
        await asyncio.sleep(1)

    play(scenario)
