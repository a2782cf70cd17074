"""Measures the cost of 2,000 groups of 5 members: processor time per heartbeat, and memory.

    python -m benchmarks.group_heartbeats [--runs 5] [--groups 2000] [--members 5]

Every member sends a heartbeat in its turn over one of 250 connections, each of which waits for its response before it
goes on: broker and socket work as for as many consumers.  The last figure is the broker's part of it without sockets,
from the bytes of a request to the bytes of its response, in this process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from benchmarks.harness.members import Member, connect, create_topic
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject, parser, subject
from kctl.client.connections.framing import request_frame
from kctl.client.connections.transport import Connection
from kctl.config.dynamic import ConfigView
from kctl.errors import ErrorCode
from kctl.protocol.apis.heartbeat import HeartbeatRequest
from kctl.server.coordination.groups.actions import JoinOutcome
from kctl.server.coordination.groups.config import GroupConfig
from kctl.server.coordination.groups.coordinator import GroupCoordinator
from kctl.server.coordination.groups.events import JoinRequest
from kctl.server.coordination.replies import Reply
from kctl.server.handlers.heartbeat import HeartbeatHandler
from kctl.server.loop.tasks import SystemClock
from kctl.server.loop.timer import WheelTimer
from kctl.server.network.dispatch import Dispatcher
from kctl.server.peers.connections import address_of
from kctl.server.requests.context import Peer
from kctl.server.requests.quotas.client_quotas import ClientQuotas
from tests.unit.groups.hosting import MemoryOffsetsLog, settled

TOPIC = "shared"
GROUPS_AT_A_TIME = 50
HEARTBEAT_VERSION = 4
GOAL_US = "< 30"


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--groups", type=int, default=2000)
    options.add_argument("--members", type=int, default=5)
    chosen = options.parse_args()
    with subject(chosen) as broker:
        served, memory_mb = asyncio.run(measure(broker, chosen.groups, chosen.members, chosen.runs))
    decided = asyncio.run(in_process(chosen.groups, chosen.members, chosen.runs))
    figures = [
        Figure("heartbeat: broker processor", "us", served, GOAL_US),
        Figure("heartbeat: without sockets", "us", decided),
        Figure("memory of all groups", "MB", [memory_mb]),
        Figure("memory per member", "KB", [memory_mb * 1000 / chosen.groups / chosen.members]),
    ]
    report("group_heartbeats", figures, runs=chosen.runs, groups=chosen.groups, members=chosen.members)


async def measure(broker: Subject, groups: int, members: int, runs: int) -> tuple[list[float], float]:
    """Microseconds of the broker's processor per heartbeat, and the MB that it grew by with all the groups."""
    connections = await asyncio.gather(*(connect(broker.bootstrap) for _ in range(GROUPS_AT_A_TIME * members)))
    await create_topic(connections[0], TOPIC, members)
    before_mb = broker.resident_mb()
    lanes = [connections[start : start + members] for start in range(0, len(connections), members)]
    waiting = iter(range(groups))
    crews: list[list[Member]] = []

    async def form_groups(lane: Sequence[Connection]) -> None:
        for number in waiting:
            crew = [Member(connection, f"group-{number}", TOPIC) for connection in lane]
            await asyncio.gather(*(member.join_and_sync(members) for member in crew))
            crews.append(crew)

    await asyncio.gather(*(form_groups(lane) for lane in lanes))
    memory_mb = broker.resident_mb() - before_mb
    by_connection = [
        [crew[place] for crew in crews[lane::GROUPS_AT_A_TIME]]
        for lane in range(GROUPS_AT_A_TIME)
        for place in range(members)
    ]
    samples = []
    for _ in range(runs):
        used = broker.cpu_s()
        await asyncio.gather(*(beat(heartbeats) for heartbeats in by_connection))
        samples.append((broker.cpu_s() - used) / (groups * members) * 1e6)
    for connection in connections:
        await connection.close()
    return samples, memory_mb


async def beat(members: Sequence[Member]) -> None:
    for member in members:
        error = await member.heartbeat()
        if error is not ErrorCode.NONE:
            raise SystemExit(f"a heartbeat failed: {error.name}")


async def in_process(groups: int, members: int, runs: int) -> list[float]:
    """Microseconds from the bytes of a heartbeat to the bytes of its response."""
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    coordinator = GroupCoordinator(
        broker_id=0,
        config=GroupConfig(group_initial_rebalance_delay_ms=1),
        offsets_log=MemoryOffsetsLog(),
        clock=clock,
        timer=WheelTimer(clock, loop),
        random=random.Random(1),
    )
    coordinator.start()
    for partition in range(4):
        coordinator.partitions.on_leader(partition, 0)
    await coordinator.partitions.loaded()
    frames = []
    for number in range(groups):
        group_id = f"group-{number}"
        joins = [settled(join(coordinator, group_id)) for _ in range(members)]
        joined = await asyncio.gather(*joins)
        frames += [heartbeat_frame(group_id, member_id) for member_id in joined]
    dispatcher = Dispatcher(ClientQuotas(ConfigView({}).current, clock, address_of), time.monotonic)
    dispatcher.register("heartbeat", HeartbeatHandler(coordinator).handle)
    peer = Peer("/127.0.0.1", "PLAINTEXT")
    samples = []
    for _ in range(runs):
        used = time.process_time()
        for frame in frames:
            dispatcher.handle(frame, peer)
        samples.append((time.process_time() - used) / len(frames) * 1e6)
    await coordinator.stop()
    return samples


def join(coordinator: GroupCoordinator, group_id: str) -> Reply[JoinOutcome]:
    request = JoinRequest(
        member_id="",
        client_id="benchmark",
        client_host="/127.0.0.1",
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
    )
    return coordinator.join(group_id, request)


def heartbeat_frame(group_id: str, joined: JoinOutcome) -> memoryview:
    request = HeartbeatRequest(group_id=group_id, generation_id=joined.generation, member_id=joined.member_id)
    chunks = request_frame(request, HEARTBEAT_VERSION, correlation_id=1, client_id="benchmark")
    return memoryview(b"".join(bytes(chunk) for chunk in chunks))[4:]


if __name__ == "__main__":
    main()
