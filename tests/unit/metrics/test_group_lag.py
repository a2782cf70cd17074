"""The lag of groups in the metrics of a broker: when it is collected, and how long its text takes at a time."""

from __future__ import annotations

import asyncio
from typing import cast

from kctl.admin.groups.lag import ClusterLag, PartitionSummary
from kctl.client.outcome import Outcome
from kctl.lag.facts import Facts, LogRange
from kctl.lag.rules import GroupLag, PartitionLag, judge
from kctl.model import TopicPartition
from kctl.server.metrics.group_lag import METRICS_LAG_CACHE_MS, GroupLagReader
from kctl.server.metrics.sources import Sources
from kctl.server.metrics.subjects import lag
from kctl.testing.sim_loop import SimLoop, simulate

SOURCES = cast("Sources", None)
"""Only passed on."""
PARTITIONS = 5000


class Collections:
    """Returns one more group with each collection, when the test lets it end."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Semaphore(0)

    async def __call__(self, _: Sources) -> list[GroupLag]:
        self.begun += 1
        await self.may_end.acquire()
        return [GroupLag(Outcome(f"group-{number}")) for number in range(self.begun)]


async def count_of(reader: GroupLagReader) -> int:
    """How many groups a scrape has."""
    async with reader.groups(SOURCES) as groups:
        return len(groups)


async def release(groups: list[GroupLag]) -> None:
    groups.clear()


def test_the_first_scrape_waits_for_the_lag_and_later_ones_have_that_of_the_collection_before() -> None:
    async def main(loop: SimLoop) -> None:
        collections = Collections()
        reader = GroupLagReader(collections, release)
        first = loop.create_task(count_of(reader))
        await asyncio.sleep(4)
        assert not first.done()
        collections.may_end.release()
        assert await first == 1
        assert await count_of(reader) == 1
        assert collections.begun == 1
        await asyncio.sleep(50)  # It took 4 s, and is used for ten times as long.
        assert await count_of(reader) == 1
        assert await count_of(reader) == 1
        assert collections.begun == 2
        collections.may_end.release()
        await asyncio.sleep(0.01)
        assert await count_of(reader) == 2

    simulate(main, seed=1)


def test_a_scrape_has_the_lag_of_a_collection_that_ends_soon() -> None:
    async def main(loop: SimLoop) -> None:
        collections = Collections()
        reader = GroupLagReader(collections, release)
        for count in (1, 2, 3):
            loop.call_later(0.01, collections.may_end.release)
            assert await count_of(reader) == count
            await asyncio.sleep(METRICS_LAG_CACHE_MS / 1000 + 1)

    simulate(main, seed=1)


def test_groups_are_freed_when_there_are_newer_ones_and_no_scrape_reads_them() -> None:
    async def main(loop: SimLoop) -> None:
        collections = Collections()
        reader = GroupLagReader(collections, release)
        loop.call_later(0.01, collections.may_end.release)
        async with reader.groups(SOURCES) as read:
            await asyncio.sleep(METRICS_LAG_CACHE_MS / 1000 + 1)
            loop.call_later(0.01, collections.may_end.release)
            assert await count_of(reader) == 2
            assert len(read) == 1
        assert read == []
        async with reader.groups(SOURCES) as unread:
            pass
        assert len(unread) == 2
        await asyncio.sleep(METRICS_LAG_CACHE_MS / 1000 + 1)
        loop.call_later(0.01, collections.may_end.release)
        assert await count_of(reader) == 3
        assert unread == []

    simulate(main, seed=1)


def test_the_values_of_many_partitions_are_gathered_in_pieces() -> None:
    log = LogRange(0, 10, 10)
    tps = [TopicPartition("topic", number) for number in range(PARTITIONS)]
    judgement = judge(Facts(now_ms=0, log=log, committed=4))
    group = GroupLag(Outcome("group"), partitions=tuple(PartitionLag(tp, 4, log, None, judgement) for tp in tps))
    summary = PartitionSummary(1, (1,), (1,), log)
    found = ClusterLag({1: "localhost:9092"}, [("topic", PARTITIONS)], [(tp, summary) for tp in tps], [group])
    rows = {}
    pauses = 0
    for family in lag.families(found, of_exporter=True):
        if family is None:
            pauses += 1
        else:
            rows[family.definition] = list(family.rows)  # Later they are gone.
    assert pauses >= 2 * PARTITIONS / 500
    assert len(rows[lag.LAG]) == len(rows[lag.COMMITTED]) == len(rows[lag.LEADER]) == PARTITIONS
    labels = 'consumergroup="group",topic="topic"'
    assert rows[lag.LAG_SUM] == [(labels, 6 * PARTITIONS)]
    assert rows[lag.COMMITTED_SUM] == [(labels, 4 * PARTITIONS)]
