"""Measures lists and descriptions of a large cluster, also with one of its three brokers dead.

    python -m benchmarks.large_cluster [--runs 3] [--topics 2000] [--groups 500] [--partitions 1000] [--only groups]

Three brokers with all topics replicated three times, groups that each committed in four topics, and a group with a
topic of many partitions, an ACL for each topic, and a user with a quota and a password for each group. Each command
runs as a process of its own with its output in a pipe; the processor time is also shown as a multiple of `python -c
pass`, beside that of the brokers in the same time. Then a broker that is not in the bootstrap list is ended by `kill
-9`, and the commands run again when its partitions have other leaders.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.harness.cluster import BROKERS, Cluster, Observer, cluster, is_led, kill, parser
from benchmarks.harness.environment import command_environment
from benchmarks.harness.report import Figure, report
from benchmarks.harness.subject import Subject
from kctl.admin.security.acls import create_acls
from kctl.admin.security.quotas import QuotaChange, alter_quotas
from kctl.admin.security.users import NewPassword, set_password
from kctl.admin.topics.topics import NewTopic, create_topics
from kctl.client.metadata import ClusterMetadata, Partition
from kctl.security.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kctl.security.scram import Mechanism

TOPICS_PER_GROUP = 4
TOPICS_PER_REQUEST = 50
TIMEOUT_S = 120
WIDE = "wide"
DEAD = 2
LINES = [
    "topics list",
    "topics list --topics-with-overrides",
    "topics describe",
    "topics describe --under-replicated-partitions",
    "topics describe wide",
    "groups list",
    "groups describe --all",
    "groups describe --all --show state",
    "groups describe wide",
    "groups members --all",
    "groups lag",
    "groups lag wide --by partition",
    "groups export --all",
    "topics offsets wide",
    "topics offsets wide --time earliest",
    "cluster describe",
    "cluster health",
    "cluster log-dirs",
    "cluster log-dirs --replicas",
    "configs describe topic",
    "configs describe broker",
    "configs diff topic wide orders-of-shop-00000",
    "acls list",
    "features describe",
    "cluster verify --topic wide",
    "groups history group-0000",
    "reassign status",
    "reassign plan rebalance",
    "reassign list",
    "transactions list",
    "transactions find-hanging",
    "transactions describe-producers wide",
    "quotas describe",
    "users list",
    "loggers list",
    "cluster api-versions",
    "plan --export",
    "top --once --interval 200ms --format json",
]
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
GOALS = {"s": "< 2", "CPU s": "< 1"}
STATES = ("all alive", "one dead")


def main() -> None:
    arguments = parser(__doc__, runs=3)
    arguments.add_argument("--topics", type=int, default=2000)
    arguments.add_argument("--groups", type=int, default=500)
    arguments.add_argument("--partitions", type=int, default=1000, help="of the topic that one group reads")
    arguments.add_argument("--only", default="", help="measure only commands that begin with this")
    options = arguments.parse_args()
    lines = [line for line in LINES if line.startswith(options.only)]
    figures = []
    with cluster(options, AUTHORIZER) as brokers:
        asyncio.run(create(brokers, options.topics, options.partitions))
        asyncio.run(permit(brokers, options.topics, options.groups))
        commit(brokers, options.topics, options.groups, options.partitions)
        bootstrap = ",".join(brokers.broker(number).bootstrap for number in BROKERS if number != DEAD)
        figures += measure(STATES[0], lines, bootstrap, options.runs, [brokers.broker(number) for number in BROKERS])
        asyncio.run(lose(brokers, options.topics))
        alive = [brokers.broker(number) for number in BROKERS if number != DEAD]
        figures += measure(STATES[1], lines, bootstrap, options.runs, alive)
    report("large_cluster", figures, subject=options.apache or "kctl", topics=options.topics, groups=options.groups)


async def create(brokers: Cluster, topics: int, partitions: int) -> None:
    """Creates the topics, and waits until every broker has their leaders in its metadata."""
    names = [name_of(number) for number in range(topics)]
    async with Observer(brokers) as observer:
        for at in range(0, topics, TOPICS_PER_REQUEST):
            wanted = [NewTopic(name, 1, len(BROKERS)) for name in names[at : at + TOPICS_PER_REQUEST]]
            for created in await create_topics(observer.client(0), wanted):
                assert created.outcome.is_done, created.outcome
        (created,) = await create_topics(observer.client(0), [NewTopic(WIDE, partitions, len(BROKERS))])
        assert created.outcome.is_done, created.outcome
        await observer.until_all([*names, WIDE], is_led)


async def permit(brokers: Cluster, topics: int, users: int) -> None:
    """An ACL for each topic, and users with a quota and a password."""
    reader = AclEntry("User:reader", "*", Operation.READ, Permission.ALLOW)
    patterns = [ResourcePattern(ResourceType.TOPIC, name_of(number), PatternType.LITERAL) for number in range(topics)]
    password = NewPassword("secret", (Mechanism.SCRAM_SHA_256,), 4096)
    async with Observer(brokers) as observer:
        client = observer.client(0)
        outcomes = await create_acls(client, [AclBinding(pattern, reader) for pattern in patterns])
        for number in range(users):
            user = f"user-{number:04}"
            outcomes.append(await alter_quotas(client, (("user", user),), [QuotaChange("producer_byte_rate", 1e6)]))
            outcomes.extend((await set_password(client, user, password)).values())
        assert all(outcome.is_done for outcome in outcomes), outcomes


async def lose(brokers: Cluster, topics: int) -> None:
    """Kills a broker, and waits until the others have no partition of it."""
    async with Observer(brokers) as observer:
        session = await observer.watch_broker(DEAD)
        kill(brokers.broker(DEAD))
        await session
        alive = [number for number in BROKERS if number != DEAD]

        def is_without_it(partition: Partition, metadata: ClusterMetadata) -> bool:
            return DEAD not in partition.isr and is_led(partition, metadata)

        await observer.until_all([WIDE, *map(name_of, range(topics))], is_without_it, brokers=alive)


def commit(brokers: Cluster, topics: int, groups: int, partitions: int) -> None:
    """Records, and offsets that the groups have committed before them, without members."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": brokers.broker(0).bootstrap,
        "broker.address.family": "v4",
    }
    producer = Producer(settings | {"linger.ms": 20, "acks": 1})
    for partition in range(partitions):
        producer.produce(WIDE, b"x" * 100, partition=partition)
        producer.poll(0)
    for number in range(topics):
        producer.produce(name_of(number), b"x" * 100, partition=0)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    positions = {WIDE: [TopicPartition(WIDE, partition, 0) for partition in range(partitions)]}
    for group in range(groups):
        read = [name_of((group * TOPICS_PER_GROUP + index) % topics) for index in range(TOPICS_PER_GROUP)]
        positions[f"group-{group:04}"] = [TopicPartition(topic, 0, 0) for topic in read]
    for name, wanted in positions.items():
        consumer = Consumer(settings | {"group.id": name, "enable.auto.commit": False})
        consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()


def name_of(number: int) -> str:
    return f"orders-of-shop-{number:05}"


def measure(state: str, lines: list[str], bootstrap: str, runs: int, brokers: Sequence[Subject]) -> list[Figure]:
    """Elapsed and processor time of each command; the first run, which may write bytecode, does not count."""
    unit_s = min(used_s([sys.executable, "-c", "pass"], ()).command_s for _ in range(max(runs, 5)))
    figures = []
    for line in lines:
        command = [sys.executable, "-m", "kctl", *line.split(), "-b", bootstrap, "--quiet"]
        samples = [used_s(command, brokers) for _ in range(runs + 1)][1:]
        named: list[tuple[str, Callable[[Used], float]]] = [
            ("s", lambda sample: sample.elapsed_s),
            ("CPU s", lambda sample: sample.command_s),
            ("x python -c pass", lambda sample: sample.command_s / unit_s),
            ("broker CPU s", lambda sample: sample.brokers_s),
        ]
        figures += [
            Figure(f"{line}, {state}", unit, [value(sample) for sample in samples], GOALS.get(unit, ""))
            for unit, value in named
        ]
        print(*figures[-len(named) :], sep="\n", file=sys.stderr, flush=True)
    return figures


class Used(NamedTuple):
    """Elapsed time of one run, and the processor time of the command and of all brokers."""

    elapsed_s: float
    command_s: float
    brokers_s: float


def used_s(command: list[str], brokers: Sequence[Subject]) -> Used:
    """The time of one run."""
    brokers_before_s = sum(broker.cpu_s() for broker in brokers)
    started_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env=command_environment(NO_COLOR="1"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode not in (0, 1, 3):  # 1: a row has an error, 3: a check does not hold
        raise SystemExit(f"{command} ended with {ran.returncode}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Used(time.monotonic() - started_s, used, sum(broker.cpu_s() for broker in brokers) - brokers_before_s)


if __name__ == "__main__":
    main()
