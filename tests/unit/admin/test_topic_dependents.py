"""What depends on topics."""

from __future__ import annotations

from kctl.admin.groups.dependents import Readings, dependents_of
from kctl.admin.topics.transactions import ActiveProducer
from kctl.client.outcome import Outcome
from kctl.lag.facts import GroupDescription, GroupMember, GroupOffset
from kctl.model import TopicPartition
from kctl.security.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType

ORDERS = TopicPartition("orders", 0)


def found(topic: str, readings: Readings) -> list[tuple[str, str, str]]:
    return [(dependent.kind.value, dependent.name, dependent.detail) for dependent in dependents_of(topic, readings)]


def group(name: str, *, members: tuple[GroupMember, ...] = (), committed: int = -1) -> GroupDescription:
    return GroupDescription(Outcome(name), members=members, offsets=(GroupOffset(ORDERS, committed, -1, "", -1),))


def test_members_count_by_assignment_or_subscription() -> None:
    assigned = GroupMember("a", None, "c", "/h", (ORDERS,))
    subscribed = GroupMember("b", None, "c", "/h", (), subscribed_topics=("orders",))
    other = GroupMember("c", None, "c", "/h", (TopicPartition("other", 0),))
    readings = Readings(groups=[group("g", members=(assigned, subscribed, other), committed=4)])
    assert found("orders", readings) == [("group", "g", "2 active members and 1 committed offset")]
    assert found("nothing", readings) == []


def test_partition_without_commit_is_no_dependency() -> None:
    assert found("orders", Readings(groups=[group("g")])) == []


def test_open_transactions_are_counted_by_producer() -> None:
    def producer(number: int, start: int) -> ActiveProducer:
        return ActiveProducer(number, 0, 0, 0, 0, start)

    readings = Readings(
        producers={ORDERS: [producer(1, 5), producer(2, -1)], TopicPartition("orders", 1): [producer(1, 0)]}
    )
    assert found("orders", readings) == [("transaction", "producer 1", "open in 2 partitions")]


def test_reassignments_and_internal_topics_of_kafka() -> None:
    readings = Readings(moving=[ORDERS], internal=["orders"])
    assert found("orders", readings) == [
        ("kafka", "orders", "an internal topic of the brokers"),
        ("reassignment", "orders", "1 partition being moved"),
    ]


def test_applications_of_kafka_streams_are_recognized_by_their_internal_topics() -> None:
    topics = ["app-store-changelog", "app-x-repartition", "other-store-changelog"]
    readings = Readings(topics=topics, groups=[group("app", committed=1), group("other")])
    assert found("orders", readings)[1:] == [
        ("streams", "app", "reads it and has 2 internal topics: app-store-changelog app-x-repartition")
    ]
    assert found("app-store-changelog", readings) == [("streams", "app", "the topic is internal to this application")]


def test_acls_that_name_the_topic_are_listed_by_principal() -> None:
    def acl(topic: str, principal: str, operation: Operation) -> AclBinding:
        pattern = ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL)
        return AclBinding(pattern, AclEntry(principal, "*", operation, Permission.ALLOW))

    acls = [
        acl("orders", "User:a", Operation.READ),
        acl("orders", "User:a", Operation.WRITE),
        acl("*", "User:b", Operation.READ),
    ]
    assert found("orders", Readings(acls=acls)) == [("acl", "User:a", "Allow Read and Allow Write")]
