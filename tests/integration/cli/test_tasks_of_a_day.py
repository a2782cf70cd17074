"""Twenty-four tasks of an operator: that kctl does each with no more commands than Kafka's scripts, and few requests.

The lines run against brokers of kctl and of Apache Kafka that other tests use, too.  Requests are counted by a relay in
front of a broker of kctl, with those for versions and metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.cli.conftest import Kctl, command_line
from tests.integration.cli.test_shell import Interruption, Relay
from tests.peers import apache_kafka, probe
from tests.peers.kctl_broker import kctl_broker
from tests.rows import for_rows


class Task(NamedTuple):
    """The lines of kctl, those of Kafka's scripts, the most requests of the lines, and their exit statuses."""

    kctl: tuple[str, ...]
    kafka: tuple[str, ...]
    requests: int
    """0 for a task that is done on three brokers or with TLS."""
    statuses: tuple[int, ...] = (0,)
    needs: str = ""
    """What not every broker here has: an authorizer, two more brokers, or TLS (tests/integration/tls has those)."""


ACLS, THREE, TLS = "acls", "three", "tls"
_TOPICS, _CONFIGS, _GROUPS = "kafka-topics.sh", "kafka-configs.sh", "kafka-consumer-groups.sh"

TASKS: dict[str, Task] = {
    "create a topic": Task(
        ("topics create {topic}-new --partitions 6 --replication-factor 1",),
        (f"{_TOPICS} --create --topic T --partitions 6 --replication-factor 1",),
        6,
    ),
    "add partitions": Task(
        ("topics alter {topic}-new --partitions 8",), (f"{_TOPICS} --alter --topic T --partitions 8",), 6
    ),
    "change the retention": Task(
        ("topics alter {topic} --set retention.ms=70d",),
        (f"{_CONFIGS} --alter --entity-type topics --entity-name T --add-config retention.ms=6048000000",),
        3,
    ),
    "find partitions that are not in sync": Task(
        ("topics describe --under-replicated-partitions",), (f"{_TOPICS} --describe --under-replicated-partitions",), 6
    ),
    "find the largest topic": Task(
        ("cluster log-dirs --by topic",), ("kafka-log-dirs.sh --describe > sizes.json", "jq ... sizes.json"), 4
    ),
    "find the partition that is written most": Task(
        ("top --once --interval 200ms --no-metrics --format json",),
        ("kafka-get-offsets.sh > before", "kafka-get-offsets.sh > after", "join before after"),
        26,
    ),
    "find who writes to a topic": Task(
        ("transactions describe-producers {topic}",),
        tuple(f"kafka-transactions.sh describe-producers --topic T --partition {number}" for number in range(3)),
        5,
    ),
    "look at the last records": Task(
        ("consume {topic} --last 5",),
        ("kafka-get-offsets.sh --topic T", "kafka-console-consumer.sh --topic T --partition 0 --offset N"),
        9,
    ),
    "copy a topic": Task(
        ("copy {topic} {topic}-copy",),
        (f"{_TOPICS} --create --topic T2", "kafka-console-consumer.sh ... | kafka-console-producer.sh ..."),
        18,
    ),
    "verify the replicas of a topic": Task(
        ("cluster verify --topic {topic}",), ("kafka-replica-verification.sh --topics-include T",), 8
    ),
    "find a group that is stuck": Task(
        ("groups lag",),
        (f"{_GROUPS} --describe --all-groups > before", f"{_GROUPS} --describe --all-groups > after"),
        24,
    ),
    "reset the offsets of a group": Task(
        ("groups reset-offsets {group} --topic {topic} --to-earliest --yes",),
        (f"{_GROUPS} --reset-offsets --group G --topic T --to-earliest --execute",),
        16,
    ),
    "find hanging transactions and abort them": Task(
        ("transactions find-hanging",), ("kafka-transactions.sh find-hanging --broker-id 0", "... abort ..."), 8
    ),
    "delete the oldest records": Task(
        ("records delete {topic}:0 --before-offset 1 --yes",),
        ("echo '{\"partitions\": ...}' > delete.json", "kafka-delete-records.sh --offset-json-file delete.json"),
        10,
    ),
    "elect the preferred leaders": Task(
        ("elect --preferred",),
        ("kafka-leader-election.sh --election-type preferred --all-topic-partitions",),
        8,
    ),
    "set a quota": Task(
        ("quotas alter --user day --producer-rate 1MB --yes",),
        (f"{_CONFIGS} --alter --entity-type users --entity-name day --add-config producer_byte_rate=1048576",),
        5,
    ),
    "rotate a SCRAM password": Task(
        ("users alter day --password-file {password}",),
        (f"{_CONFIGS} --alter --entity-type users --entity-name day --add-config SCRAM-SHA-256=[password=...]",),
        6,
    ),
    "allow a user to read": Task(
        ("acls add --allow User:day --consumer --topic {topic} --group {group}",),
        ("kafka-acls.sh --add --allow-principal User:day --consumer --topic T --group G",),
        4,
        needs=ACLS,
    ),
    "check the readiness for an upgrade": Task(
        ("doctor",),
        (
            "kafka-features.sh describe",
            "kafka-broker-api-versions.sh",
            f"{_TOPICS} --describe --under-min-isr-partitions",
        ),
        60,
        (0, 3),
    ),
    "see when disks are full": Task(
        ("cluster log-dirs",),
        ("kafka-log-dirs.sh --describe > sizes.json", "jq ... sizes.json", "df (on each broker)"),
        4,
    ),
    "check the certificates": Task(
        ("tls check {address}",),
        ("openssl s_client -connect HOST:PORT > certificate.pem", "openssl x509 -enddate -in certificate.pem"),
        0,
        needs=TLS,
    ),
    "move partitions": Task(
        ("reassign execute {topic}:0=1,2 --wait",),
        (
            "echo '{\"partitions\": ...}' > moves.json",
            "kafka-reassign-partitions.sh --reassignment-json-file moves.json --execute",
            "kafka-reassign-partitions.sh --reassignment-json-file moves.json --verify",
        ),
        0,
        needs=THREE,
    ),
    "drain a broker": Task(
        ("cluster remove-broker 0 --throttle 100m",),
        (
            f"{_TOPICS} --list > topics.json",
            "kafka-reassign-partitions.sh --topics-to-move-json-file topics.json --broker-list 1,2 --generate",
            "kafka-reassign-partitions.sh --reassignment-json-file moves.json --execute",
            "kafka-reassign-partitions.sh --reassignment-json-file moves.json --verify",
        ),
        0,
        (0, 1),  # 1: a topic of another test has as many replicas as there are brokers.
        needs=THREE,
    ),
    "restart all brokers one by one": Task(
        ("cluster roll --dry-run --restart-command true",),
        tuple(line for number in range(3) for line in (f"restart broker {number}", f"{_TOPICS} --describe ...")),
        0,
        (0, 3),
        needs=THREE,
    ),
}
SHARED = [
    "kctl",
    pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, marks=pytest.mark.jvm),
    pytest.param(apache_kafka.NEWEST_BROKER, marks=pytest.mark.jvm),
]


def test_no_task_needs_more_commands_than_with_kafkas_scripts() -> None:
    assert len(TASKS) == 24
    assert {name for name, task in TASKS.items() if len(task.kctl) > len(task.kafka)} == set()
    assert sum(len(task.kctl) for task in TASKS.values()) < sum(len(task.kafka) for task in TASKS.values()) / 1.5


def prepared(run: Kctl, folder: Path, *, assignment: str = "0,0,0") -> dict[str, str]:
    """A topic with records, a group that has read them, and a user; and what the lines name."""
    password = folder / "password"
    password.write_text("a-long-password")
    password.chmod(0o600)
    names = {"topic": "day", "group": "day-readers", "password": str(password)}
    assert run(f"topics create day --replica-assignment {assignment}").status == 0
    assert run("topics create day-copy --partitions 3").status == 0
    for partition in (0, 1):
        records = "".join(f"value {number}\n" for number in range(20)).encode()
        produced = run(f"produce day --partition {partition}", stdin=records)
        assert produced.status == 0, produced.err
    assert run("consume day --group day-readers --from start --max-messages 40").status == 0
    assert run(f"users create day --password-file {password}").status == 0
    return names


def done(run: Kctl, task: Task, names: dict[str, str]) -> None:
    for line in task.kctl:
        ran = run(line.format(**names))
        assert ran.status in task.statuses, f"{line}: {ran.status}\n{ran.out}{ran.err}"


@pytest.mark.parametrize("bootstrap", SHARED, indirect=True)
def test_each_task_is_done_on_one_broker(kctl: Kctl, bootstrap: str, tmp_path: Path) -> None:
    names = {**prepared(kctl, tmp_path), "address": bootstrap}
    for task in TASKS.values():
        if not task.needs:
            done(kctl, task, names)


@pytest.mark.parametrize(
    "three_brokers",
    ["kctl", pytest.param(apache_kafka.LAST_WITH_ZOOKEEPER, marks=pytest.mark.jvm)],
    indirect=True,
)
def test_each_task_is_done_on_three_brokers(operate: Kctl, tmp_path: Path) -> None:
    names = prepared(operate, tmp_path, assignment="0:1,1:2,2:0")
    for task in TASKS.values():
        if task.needs == THREE:
            done(operate, task, names)


class Requests(Interruption):
    """Counts requests, and passes all on."""

    def __init__(self) -> None:
        super().__init__(None)
        self.count = 0

    def stops(self, frame: bytes) -> bool:
        self.count += 1
        return False


class Counted(NamedTuple):
    """Runs a task, and returns the number of its requests."""

    requests_of: Callable[[Task], int]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    folder = tmp_path_factory.mktemp("day")
    port = probe.free_port()
    relay = Relay(port)
    properties = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    try:
        with kctl_broker(folder / "data", port=port, properties=properties):
            run = command_line({"KCTL_BOOTSTRAP_SERVER": f"127.0.0.1:{relay.port}", "XDG_STATE_HOME": str(folder)})
            names = {**prepared(run, folder), "address": f"127.0.0.1:{relay.port}"}

            def requests_of(task: Task) -> int:
                requests = Requests()
                with relay.asking(requests):
                    done(run, task, names)
                return requests.count

            yield Counted(requests_of)
    finally:
        relay.close()


@for_rows("name", {name: task for name, task in TASKS.items() if task.needs in {"", ACLS}})
def test_a_task_takes_few_requests(counted: Counted, name: str) -> None:
    assert counted.requests_of(TASKS[name]) <= TASKS[name].requests
