"""Time and changes of topics that one request uses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kctl.errors import ApiError, ErrorCode
from kctl.server.requests.quotas.accounts import PRODUCE_KEY, MutationAllowance, RequestAccount
from kctl.server.requests.quotas.meters import BucketMeter, LimitedClient, QuotaWindows, RateMeter

WINDOWS = QuotaWindows(11, 1000)
ANY_KEY = 3
RESPONSE_BYTES = 50


class ManualClock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def precise_s(self) -> float:
        return self.at_s


def timed(clock: ManualClock, limit: float = 10**9) -> tuple[RequestAccount, RateMeter]:
    meter = RateMeter(limit, WINDOWS, throttle_ms_max=1000)
    client = LimitedClient(None, None, meter, None)
    return RequestAccount(client, clock.precise_s, 100, running_since_s=clock.at_s), meter


def used_s(meter: RateMeter, clock: ManualClock) -> float:
    """The seconds of request time in the window, which has at least ten."""
    return meter.usage(int(clock.at_s * 1000)) * max(10.0, clock.at_s) / 100


def test_the_steps_of_a_coroutine_count_and_its_waits_do_not() -> None:
    clock = ManualClock()
    account, meter = timed(clock)

    async def inner() -> str:
        clock.at_s += 0.25
        await asyncio.sleep(0)
        clock.at_s += 0.5
        return "done"

    async def work() -> str:
        clock.at_s += 0.125
        return await inner()

    async def main() -> None:
        account.paused()
        running = asyncio.ensure_future(account.measured(work()))
        await asyncio.sleep(0)
        clock.at_s += 4  # Other work of the loop.
        assert await running == "done"

    asyncio.run(main())
    clock.at_s += 1
    account.settle(ANY_KEY, RESPONSE_BYTES)
    assert used_s(meter, clock) == pytest.approx(0.875)


def test_exceptions_pass_through_a_measured_coroutine_in_both_directions() -> None:
    async def main() -> None:
        account, _ = timed(ManualClock())
        seen: list[str] = []

        async def fails() -> None:
            await asyncio.sleep(0)
            raise ApiError(ErrorCode.INVALID_REQUEST)

        with pytest.raises(ApiError):
            await account.measured(fails())

        async def waits() -> str:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            return ""

        task = asyncio.ensure_future(account.measured(waits()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def recovers() -> str:
            try:
                await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0)
            except TimeoutError:
                await asyncio.sleep(0)
            return "went on"

        assert await account.measured(recovers()) == "went on"
        assert seen == ["cancelled"]

    asyncio.run(main())


def test_produce_with_acks_0_is_not_throttled_for_its_time() -> None:
    clock = ManualClock()
    account, meter = timed(clock, limit=1.0)
    clock.at_s += 5
    assert account.settle(PRODUCE_KEY, None) == 0
    assert meter.usage(5_000) == 0


def allowance(clock: ManualClock, quota: float, *, is_strict: bool) -> MutationAllowance:
    return MutationAllowance(BucketMeter(quota, WINDOWS), clock.precise_s, is_strict=is_strict)


def test_a_strict_allowance_refuses_what_comes_after_the_change_that_overdraws_it() -> None:
    """Quota 2 per second with windows of 11 s: a burst of 22, then 40 overdraw it by 18, which takes 9 s."""
    clock = ManualClock()
    made = allowance(clock, 2, is_strict=True)
    made.take(40)
    assert made.throttle_ms() == 0
    with pytest.raises(ApiError) as refused:
        made.take(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert made.throttle_ms() == 9_000
    clock.at_s += 4
    assert made.throttle_ms() == 5_000
    clock.at_s += 5
    assert made.throttle_ms() == 0
    made.take(1)


def test_a_permissive_allowance_makes_every_change_and_throttles() -> None:
    clock = ManualClock()
    made = allowance(clock, 2, is_strict=False)
    made.take(40)
    made.take(2)
    assert made.throttle_ms() == 10_000


def test_the_longer_throttle_time_counts() -> None:
    clock = ManualClock()
    request, mutation = RateMeter(1.0, WINDOWS, throttle_ms_max=1000), BucketMeter(2.0, WINDOWS)
    account = RequestAccount(LimitedClient(None, None, request, mutation), clock.precise_s, 100, running_since_s=0.0)
    taken: Any = account.mutations(is_strict=False)
    taken.take(40)
    clock.at_s += 5
    assert account.settle(19, RESPONSE_BYTES) == 4_000
    assert (request.throttle_count, mutation.throttle_count) == (0, 1)
