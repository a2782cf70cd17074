"""Measures one rebalance of a large group: 500 members over 1,000 partitions.

    python -m benchmarks.group_rebalance [--runs 5] [--members 500] [--partitions 1000]

All members are on connections of their own.  The leader joins again, as it does when partitions were added, the others
follow, and the clock stops when the last one has its assignment.  One process plays them all and costs more than the
broker, whose processor time is the second figure.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.harness.members import Member, connect, create_topic
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, parser, subject
from kctl.errors import ErrorCode

TOPIC = "shared"


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--members", type=int, default=500)
    options.add_argument("--partitions", type=int, default=1000)
    chosen = options.parse_args()
    with subject(chosen) as broker:
        runs = asyncio.run(measure(broker, chosen.members, chosen.partitions, chosen.runs))
    took_s, broker_s = zip(*runs, strict=True)
    figures = [
        Figure("one rebalance", "s", took_s),
        Figure("broker processor", "s", broker_s),
        Figure("broker processor per member", "us", [total_s / chosen.members * 1e6 for total_s in broker_s]),
    ]
    report("group_rebalance", figures, runs=chosen.runs, members=chosen.members, partitions=chosen.partitions)


async def measure(
    broker: Subject, members: int, partitions: int, runs: int, *, topic: str = TOPIC
) -> list[tuple[float, float]]:
    """Seconds, and seconds of the broker's processor, of each rebalance after the first."""
    connections = await asyncio.gather(*(connect(broker.bootstrap) for _ in range(members)))
    await create_topic(connections[0], topic, partitions)
    group = [Member(connection, f"readers of {topic}", topic) for connection in connections]
    await asyncio.gather(*(member.join_and_sync(partitions) for member in group))
    await settle(group, partitions)
    measured = []
    for _ in range(runs):
        generation = group[0].generation
        started, used = time.perf_counter(), broker.cpu_s()
        await rebalance(group, partitions)
        measured.append((time.perf_counter() - started, broker.cpu_s() - used))
        if {member.generation for member in group} != {generation + 1}:
            raise SystemExit("it was not one rebalance")
    if not all(member.assignment for member in group):
        raise SystemExit("a member has no partitions")
    for connection in connections:
        await connection.close()
    return measured


async def settle(group: list[Member], partitions: int) -> None:
    """Until all are of one generation: those that came first may have had some for themselves."""
    while len({member.generation for member in group}) > 1:
        newest = max(member.generation for member in group)
        old = [member for member in group if member.generation < newest]
        await asyncio.gather(*(member.join_and_sync(partitions) for member in old))


async def rebalance(group: list[Member], partitions: int) -> None:
    """The leader joins again, which it does to assign anew, and the others follow."""
    leader = next(member for member in group if member.is_leader)
    others = [member for member in group if member is not leader]
    first = asyncio.ensure_future(leader.join_and_sync(partitions))
    while await others[0].heartbeat() is ErrorCode.NONE:
        pass
    await asyncio.gather(first, *(member.join_and_sync(partitions) for member in others))


if __name__ == "__main__":
    main()
