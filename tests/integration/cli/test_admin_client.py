"""AdminClient and AsyncAdminClient on our broker, on Apache Kafka 4 and on the oldest Kafka that is supported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kctl.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclResourceType,
    AdminClient,
    AdminConfig,
    AsyncAdminClient,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    Mechanism,
    NewPassword,
    NewTopic,
    Operation,
    Permission,
    QuotaChange,
    ResourcePattern,
    ResourceType,
    TopicPartition,
)
from kctl.client import CommittedOffset, Consumer, ConsumerConfig, Producer, ProducerConfig
from kctl.errors import ApiError, ClusterUnreachable, ErrorCode
from tests.peers import apache_kafka, probe
from tests.peers.kctl_broker import kctl_broker

OURS, NEWEST = "kctl", pytest.param(apache_kafka.NEWEST_BROKER, marks=pytest.mark.jvm)
SECRET = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "secret"),
    AclEntry("User:*", "*", Operation.ALL, Permission.DENY),
)


@pytest.fixture(scope="module", params=[OURS, NEWEST])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with ACLs that permits what no ACL denies."""
    folder = tmp_path_factory.mktemp("admin")
    properties = {"allow.everyone.if.no.acl.found": "true", "group.initial.rebalance.delay.ms": "0"}
    if request.param == OURS:
        authorizer = "kafka.security.authorizer.AclAuthorizer"
        with kctl_broker(folder / "data", properties={**properties, "authorizer.class.name": authorizer}) as broker:
            yield broker.bootstrap
        return
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    properties["authorizer.class.name"] = authorizer
    with apache_kafka.apache_kafka(request.param, folder, properties=properties) as address:
        yield address


@pytest.fixture
def admin(bootstrap: str) -> Iterator[AdminClient]:
    with AdminClient(AdminConfig(bootstrap_servers=bootstrap)) as client:
        yield client


def code_of(result: object) -> ErrorCode:
    return result.code if isinstance(result, ApiError) else ErrorCode.NONE


def produce(bootstrap: str, topic: str, count: int) -> None:
    with Producer(ProducerConfig(bootstrap_servers=bootstrap)) as producer:
        for number in range(count):
            producer.send(topic, f"{number}", partition=0, timestamp_ms=1_000 * number)


def test_topics_each_with_its_own_result(bootstrap: str, admin: AdminClient) -> None:
    created = admin.create_topics(
        [
            NewTopic("fruit", partitions=2, configs={"retention.ms": "-1"}),
            NewTopic("not a name", partitions=1),
            NewTopic("too-many", replication_factor=99),
            NewTopic("set", configs={"cleanup.policy": "compress"}),
        ]
    )
    assert [code_of(result) for result in created.values()] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
    ]
    with pytest.raises(ApiError, match=r"^not a name: ") as raised:
        created.require()
    assert raised.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(admin.create_topics([NewTopic("fruit")])["fruit"]) is ErrorCode.TOPIC_ALREADY_EXISTS
    admin.create_topics([NewTopic("only-checked")], validate_only=True).require()
    names = [topic.name for topic in admin.list_topics()]
    assert "fruit" in names
    assert "only-checked" not in names
    grown = admin.create_partitions({"fruit": 3, "missing": 3, "fruit2": 1})
    assert list(map(code_of, grown.values())) == [ErrorCode.NONE, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
    described = admin.describe_topics(["missing", "fruit"])
    assert list(described) == ["missing", "fruit"]
    assert code_of(described["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(admin.describe_topics(["fruit"]).require()["fruit"].partitions) == 3
    deleted = admin.delete_topics(["fruit", "missing"])
    assert list(map(code_of, deleted.values())) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert "missing: " in str(deleted.errors["missing"])
    cluster = admin.describe_cluster()
    assert len(cluster.brokers) == 1
    assert cluster.cluster_id is not None


def test_records_offsets_and_configurations(bootstrap: str, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("log", partitions=1, configs={"retention.ms": "-1"})]).require()
    produce(bootstrap, "log", 10)
    held, absent = TopicPartition("log", 0), TopicPartition("log", 7)
    found = admin.list_offsets({held: 4_000, absent: "latest"})
    assert found.errors.keys() == {absent}
    assert admin.list_offsets({held: 4_000}).require()[held].offset == 4
    deleted = admin.delete_records({held: 3, absent: 1})
    assert deleted[held] == 3
    assert code_of(deleted[absent]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(admin.delete_records({held: 99})[held]) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert admin.delete_records({held: -1}).require() == {held: 10}
    log, missing = ConfigResource(ResourceType.TOPIC, "log"), ConfigResource(ResourceType.TOPIC, "missing")
    size = ConfigChange("max.message.bytes", ConfigOperation.SET, "1000")
    altered = admin.alter_configs({log: [size], missing: [size]})
    assert altered.errors.keys() == {missing}
    wrong = admin.alter_configs({log: [ConfigChange("max.message.bytes", ConfigOperation.SET, "many")]})
    assert code_of(wrong[log]) in {ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST}  # with KRaft, with ZooKeeper

    def is_described() -> bool:  # A broker of KRaft applies a change some time after the controller's response.
        (entry,) = admin.describe_configs([log], names=["max.message.bytes"]).require()[log]
        return (entry.value, entry.source) == ("1000", "DYNAMIC_TOPIC_CONFIG")

    probe.wait_until(is_described, what="the configuration is described", timeout_s=60)


def test_groups_with_members_and_without(bootstrap: str, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("queue", partitions=2)]).require()
    produce(bootstrap, "queue", 4)
    first, second = TopicPartition("queue", 0), TopicPartition("queue", 1)
    committed = admin.alter_group_offsets("resting", {first: 3, second: CommittedOffset(0, metadata="start")})
    committed.require()
    assert admin.reset_group_offsets("resting", {first: 2_000}).require() == {first: 2}
    assert admin.reset_group_offsets("resting", {first: 9_000_000}).require() == {first: 4}
    offsets = admin.group_offsets(["resting", "nobody"])
    assert code_of(offsets["nobody"]) is ErrorCode.GROUP_ID_NOT_FOUND
    kept = admin.group_offsets(["resting"]).require()["resting"]
    assert (kept[first].offset, kept[second].metadata) == (4, "start")
    assert admin.delete_group_offsets("resting", [second]).errors == {}
    config = ConsumerConfig(bootstrap_servers=bootstrap, group_id="busy", group_instance_id="till-7")
    with Consumer(config) as consumer:
        consumer.subscribe(["queue"])
        probe.wait_until(lambda: bool(consumer.poll(100) or consumer.assignment), what="a member", timeout_s=60)
        described = admin.describe_groups(["busy", "resting", "nobody"])
        assert code_of(described["nobody"]) is ErrorCode.GROUP_ID_NOT_FOUND
        (member,) = admin.describe_groups(["busy"]).require()["busy"].members
        assert member.group_instance_id == "till-7"
        assert {group.group_id for group in admin.list_groups()} >= {"busy", "resting"}
        assert code_of(admin.delete_groups(["busy"])["busy"]) is ErrorCode.NON_EMPTY_GROUP
        assert list(admin.alter_group_offsets("busy", {first: 0}).errors) == [first]
        removed = admin.remove_members("busy", instance_ids=["till-7", "till-8"])
        assert list(map(code_of, removed.values())) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        claim = lambda: not admin.describe_groups(["busy"]).require()["busy"].members  # noqa: E731
        probe.wait_until(claim, what="the member is removed", timeout_s=60)
    assert admin.delete_groups(["resting"]).require() == {"resting": None}


def test_acls_quotas_users_and_leaders(bootstrap: str, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("secret", partitions=1), NewTopic("open", partitions=1)]).require()
    assert admin.create_acls([SECRET]).require() == {SECRET: None}
    claim = lambda: admin.list_acls([AclFilter(name="secret")]) == [SECRET]  # noqa: E731 - a broker of KRaft is late
    probe.wait_until(claim, what="the ACL is listed", timeout_s=60)
    partitions = [TopicPartition("secret", 0), TopicPartition("open", 0)]

    def is_denied() -> bool:
        return code_of(admin.describe_topics(["secret"])["secret"]) is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    probe.wait_until(is_denied, what="the ACL is in force", timeout_s=60)
    assert admin.describe_topics(["secret", "open"]).errors.keys() == {"secret"}
    secret, public = ConfigResource(ResourceType.TOPIC, "secret"), ConfigResource(ResourceType.TOPIC, "open")
    changes = {key: [ConfigChange("retention.ms", ConfigOperation.SET, "-1")] for key in (secret, public)}
    for results in (admin.describe_configs([secret, public]), admin.alter_configs(changes)):
        assert results.errors.keys() == {secret}
        assert code_of(results[secret]) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    offsets = admin.list_offsets(dict.fromkeys(partitions, "latest"))
    assert code_of(offsets[partitions[0]]) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert code_of(offsets[partitions[1]]) is ErrorCode.NONE
    assert admin.delete_acls([SECRET]).require() == {SECRET: None}
    alice, bob = (("user", "alice"),), (("user", "bob"),)
    quota = QuotaChange("producer_byte_rate", 1_000)
    altered = admin.alter_quotas({alice: [quota], bob: [QuotaChange("no_such_rate", 1)]})
    assert list(map(code_of, altered.values())) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]

    claim = lambda: [quotas.entity for quotas in admin.describe_quotas()] == [alice]  # noqa: E731
    probe.wait_until(claim, what="the quota is described", timeout_s=60)
    assert admin.describe_quotas()[0].quotas == {"producer_byte_rate": 1_000.0}
    password = NewPassword("a secret", (Mechanism.SCRAM_SHA_256,), 4_096)
    admin.set_password("alice", password).require()
    claim = lambda: not admin.describe_users(["alice"]).errors  # noqa: E731
    probe.wait_until(claim, what="the user is described", timeout_s=60)
    users = admin.describe_users(["alice", "carol"])
    assert users["alice"] == {Mechanism.SCRAM_SHA_256: 4_096}
    assert code_of(users["carol"]) is ErrorCode.RESOURCE_NOT_FOUND
    assert admin.delete_credentials("alice", [Mechanism.SCRAM_SHA_256]).errors == {}
    elected = admin.elect_leaders([partitions[1], TopicPartition("missing", 0)])
    assert elected.errors.keys() == {TopicPartition("missing", 0)}
    moved = admin.alter_reassignments({partitions[1]: [0], TopicPartition("open", 9): [0]})
    assert moved.errors.keys() == {TopicPartition("open", 9)}
    assert admin.list_reassignments() == {}


def test_calls_run_concurrently_and_a_cancelled_one_leaves_the_client_usable(bootstrap: str) -> None:
    async def run() -> list[int]:
        async with AsyncAdminClient(AdminConfig(bootstrap_servers=bootstrap)) as admin:
            names = [f"many-{number}" for number in range(8)]
            await asyncio.gather(*(admin.create_topics([NewTopic(name, partitions=2)]) for name in names))
            for _ in range(20):
                task = asyncio.create_task(admin.describe_topics(names))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            described = (await admin.describe_topics(names)).require()
            (await admin.delete_topics(names)).require()
            return [len(topic.partitions) for topic in described.values()]

    assert asyncio.run(run()) == [2] * 8


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    with kctl_broker(tmp_path / "data") as broker:
        config = AdminConfig(bootstrap_servers=broker.bootstrap)
        with AdminClient(config) as admin:
            admin.create_topics([NewTopic("kept", partitions=1)]).require()
            broker.kill9()
            with pytest.raises((ApiError, ClusterUnreachable)):
                admin.list_topics(timeout_ms=300)
            with ThreadPoolExecutor(1) as threads:
                creating = threads.submit(admin.create_topics, [NewTopic("later", partitions=1)])
                broker.start()
                creating.result(60).require()
            # As in Kafka with ZooKeeper, a broker knows itself before its controller has told it of topics.
            claim = lambda: [topic.name for topic in admin.list_topics()] == ["kept", "later"]  # noqa: E731
            probe.wait_until(claim, what="the topic is listed", timeout_s=60)


@pytest.mark.jvm
def test_the_oldest_kafka_does_what_it_can(tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    with (
        apache_kafka.apache_kafka(apache_kafka.OLDEST_BROKER, tmp_path / "broker") as bootstrap,
        AdminClient(AdminConfig(bootstrap_servers=bootstrap)) as admin,
    ):
        tp = TopicPartition("old", 0)
        admin.create_topics([NewTopic("old", partitions=1)]).require()
        produce(bootstrap, "old", 3)
        assert admin.list_offsets({tp: "latest"}).require()[tp].offset == 3
        assert admin.delete_records({tp: 1}).require() == {tp: 1}
        admin.alter_group_offsets("old-group", {tp: 2}).require()
        assert admin.group_offsets(["old-group"]).require()["old-group"][tp].offset == 2
        topic = ConfigResource(ResourceType.TOPIC, "old")
        admin.alter_configs({topic: [ConfigChange("retention.ms", ConfigOperation.SET, "-1")]}).require()
        too_new: list[Callable[[], object]] = [
            lambda: admin.create_partitions({"old": 2}).require(),
            lambda: admin.delete_groups(["old-group"]).require(),
            lambda: admin.remove_members("old-group", instance_ids=["x"]),
            lambda: admin.alter_quotas({(("user", "a"),): [QuotaChange("producer_byte_rate", 1)]}).require(),
            admin.describe_users,
            admin.list_reassignments,
            lambda: admin.elect_leaders([tp]),
        ]
        for call in too_new:
            with pytest.raises(ApiError, match=r"Kafka \d") as raised:
                call()
            assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION, call
