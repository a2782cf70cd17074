"""Measures what each change of the controller costs with few and with many topics.

    python -m benchmarks.controller_changes [--runs 15] [--topics 20 2000] [--apache 2.8.2] [--only delete]

Three brokers with so many topics of one partition and one replica.  Each change concerns one topic, group, principal
or broker, so that its cost should not depend on how many there are.  A change ends when its response arrives, a
reassignment when none is ongoing, and a registration when the metadata of each broker has the broker.  Processor time
is that of the three brokers together, until they rest after the last run.  `idle` is the processor time of a second
without clients.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from benchmarks.harness.cluster import BROKERS, Cluster, Observer, cluster, parser, poll
from benchmarks.harness.report import Figure, report
from kctl.admin.groups.groups import delete_groups
from kctl.admin.groups.offsets import commit_offsets
from kctl.admin.placement.election import ElectionType, elect_leaders
from kctl.admin.placement.reassignment import alter_reassignments, list_reassignments
from kctl.admin.security.acls import create_acls
from kctl.admin.security.quotas import QuotaChange, alter_quotas
from kctl.admin.topics.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType, alter_configs
from kctl.admin.topics.topics import NewTopic, create_partitions, create_topics, delete_topics
from kctl.client.cluster import ClusterClient
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.model import Endpoint, TopicPartition
from kctl.security.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern
from kctl.security.acls import ResourceType as AclResourceType
from kctl.zookeeper import paths
from kctl.zookeeper.broker_znodes import BrokerRegistration, encode_broker
from kctl.zookeeper.session import ZooKeeperSession
from tests.peers import probe

TOPICS_PER_REQUEST = 100
UNCLEAN = "unclean.leader.election.enable"
NEW_BROKER = 99
IDLE_S = 10.0
REST_S = 1.0
PROPERTIES = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "default.replication.factor": "1",
}


def main() -> None:
    arguments = parser(__doc__, runs=15)
    arguments.add_argument("--topics", type=int, nargs="+", default=[20, 2000], help="topics beside the changed ones")
    arguments.add_argument("--only", default="", help="measure only changes that begin with this")
    options = arguments.parse_args()
    figures = []
    for topics in options.topics:
        with cluster(options, PROPERTIES) as brokers:
            figures += asyncio.run(Changes(brokers, options.runs, options.only).measure(topics))
    report("controller_changes", figures, subject=options.apache or "kctl", runs=options.runs)


class Changes:
    """The changes, on one cluster.  Owner: event loop."""

    def __init__(self, brokers: Cluster, runs: int, only: str) -> None:
        self._brokers = brokers
        self._runs = runs
        self._only = only

    async def measure(self, topics: int) -> list[Figure]:
        """The figures with so many topics."""
        figures: list[Figure] = []
        async with Observer(self._brokers) as observer:
            client = observer.client(await observer.controller())
            await fill(client, topics)
            for name, change in self.changes(client, observer).items():
                if name.startswith(self._only):
                    figures += await self.cost_of(f"{name}, {topics} topics", change)
            if "idle".startswith(self._only):
                await asyncio.sleep(REST_S)
                used_s = cpu_s(self._brokers)
                await asyncio.sleep(IDLE_S)
                idle_ms = (cpu_s(self._brokers) - used_s) / IDLE_S * 1000
                figures.append(Figure(f"idle, {topics} topics", "CPU ms/s", [idle_ms]))
        return figures

    async def cost_of(self, name: str, change: Callable[[int], Awaitable[None]]) -> list[Figure]:
        """Elapsed time of each run, and the processor time of all of them, per run."""
        await asyncio.sleep(REST_S)
        used_s = cpu_s(self._brokers)
        elapsed_ms = []
        for run in range(self._runs):
            started_s = time.perf_counter()
            await change(run)
            elapsed_ms.append((time.perf_counter() - started_s) * 1000)
        await asyncio.sleep(REST_S)
        cpu_ms = (cpu_s(self._brokers) - used_s) * 1000 / self._runs
        figures = [Figure(name, "ms", elapsed_ms), Figure(name, "CPU ms", [cpu_ms])]
        print(f"{name}: {statistics.median(elapsed_ms):.1f} ms, {cpu_ms:.1f} CPU ms", file=sys.stderr, flush=True)
        return figures

    def changes(self, client: ClusterClient, observer: Observer) -> dict[str, Callable[[int], Awaitable[None]]]:
        """The changes, in an order in which each finds what it changes."""

        async def create(run: int) -> None:
            (created,) = await create_topics(client, [NewTopic(f"changed-{run}", assignment=[[0]])])
            assert created.outcome.is_done, created.outcome

        async def grow(run: int) -> None:
            outcome = await create_partitions(client, f"changed-{run}", 2, assignment=[[0]])
            assert outcome.is_done, outcome

        async def configure(run: int) -> None:
            resource = ConfigResource(ResourceType.TOPIC, f"changed-{run}")
            change = ConfigChange("retention.ms", ConfigOperation.SET, "60000")
            assert (await alter_configs(client, {resource: [change]}))[resource].is_done

        async def allow_unclean_elections(run: int) -> None:
            resource = ConfigResource(ResourceType.TOPIC, f"changed-{run}")
            change = ConfigChange(UNCLEAN, ConfigOperation.SET, "true")
            assert (await alter_configs(client, {resource: [change]}))[resource].is_done

        async def reassign(run: int) -> None:
            await reassigned(client, TopicPartition(f"changed-{run}", 0), (1, 2))

        async def reorder(run: int) -> None:
            await reassigned(client, TopicPartition(f"changed-{run}", 0), (2, 1))

        async def elect(run: int) -> None:
            partition = TopicPartition(f"changed-{run}", 0)
            before = await client.metadata([partition.topic])
            (election,) = await elect_leaders(client, ElectionType.PREFERRED, [partition], before)
            assert election.outcome.is_done, election

        async def delete(run: int) -> None:
            (deleted,) = await delete_topics(client, [f"changed-{run}"])
            assert deleted.is_done, deleted

        async def commit(run: int) -> None:
            position = {TopicPartition("filler-0", 0): CommittedOffset(0, -1, "")}
            (outcome,) = (await commit_offsets(client, f"changed-{run}", position)).values()
            assert getattr(outcome, "is_done", outcome is None), outcome

        async def delete_group(run: int) -> None:
            (outcome,) = await delete_groups(client, [f"changed-{run}"])
            assert outcome.is_done, outcome

        async def set_quota(run: int) -> None:
            await alter_quotas(client, (("user", f"changed-{run}"),), [QuotaChange("producer_byte_rate", 1e6)])

        async def allow(run: int) -> None:
            pattern = ResourcePattern(AclResourceType.TOPIC, f"changed-{run}", PatternType.LITERAL)
            entry = AclEntry("User:reader", "*", Operation.READ, Permission.ALLOW)
            (outcome,) = await create_acls(client, [AclBinding(pattern, entry)])
            assert outcome.is_done, outcome

        async def register(_: int) -> None:
            async with registered(self._brokers):
                await poll(lambda: is_known(observer, NEW_BROKER), what="the registered broker")

        return {
            "create topic": create,
            "add partition": grow,
            "set property": configure,
            "allow unclean elections": allow_unclean_elections,
            "reassign partition": reassign,
            "reorder replicas": reorder,
            "preferred election": elect,
            "delete topic": delete,
            "commit offset": commit,
            "delete group": delete_group,
            "set quota": set_quota,
            "create ACL": allow,
            "register broker": register,
        }


async def fill(client: ClusterClient, topics: int) -> None:
    """Creates so many topics."""
    names = [f"filler-{number}" for number in range(topics)]
    for start in range(0, topics, TOPICS_PER_REQUEST):
        together = [NewTopic(name, 1, 1) for name in names[start : start + TOPICS_PER_REQUEST]]
        for created in await create_topics(client, together):
            assert created.outcome.is_done, created.outcome


async def reassigned(client: ClusterClient, partition: TopicPartition, target: tuple[int, ...]) -> None:
    """Reassigns a partition and waits until that is done."""
    outcome = (await alter_reassignments(client, {partition: target}))[partition]
    assert outcome.is_done, outcome

    async def is_done() -> bool:
        return not await list_reassignments(client, [partition])

    await poll(is_done, what=f"the reassignment of {partition}")


@asynccontextmanager
async def registered(brokers: Cluster) -> AsyncIterator[None]:
    """Meanwhile ZooKeeper has one broker more, which does not serve."""
    session = ZooKeeperSession(brokers.zookeeper, on_watch=lambda _: None)
    await session.start(10_000)
    try:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", probe.free_port(), "PLAINTEXT")
        registration = BrokerRegistration((endpoint,), int(time.time() * 1000))
        await session.create(paths.broker(NEW_BROKER), encode_broker(registration), ephemeral=True)
        yield
    finally:
        await session.close()


async def is_known(observer: Observer, broker_id: int) -> bool:
    """Whether the metadata of all brokers has this one."""
    found = [await observer.metadata(number, []) for number in BROKERS]
    return all(metadata is not None and broker_id in metadata.brokers for metadata in found)


def cpu_s(brokers: Cluster) -> float:
    """Processor seconds that the brokers have used since their starts."""
    return sum(brokers.broker(broker_id).cpu_s() for broker_id in BROKERS)


if __name__ == "__main__":
    main()
