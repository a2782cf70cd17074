"""kctl copy of several topics: targets are created, each topic has a row and is verified, offsets are translated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kctl.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kctl.protocol.apis.offset_commit import OffsetCommitRequest
from kctl.protocol.apis.produce import ProduceRequest
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl

GROUP = "kctl-copy-fake-cluster"
"""The default group of the progress."""


@pytest.fixture
def shop(cluster: FakeCluster) -> FakeCluster:
    """Topics orders-eu with two partitions, orders-us and payments with one; 3 records in each partition."""
    for name, partitions in (("orders-eu", 2), ("orders-us", 1), ("payments", 1)):
        for number, log in enumerate(cluster.create(name, partitions)):
            for index in range(3):
                value = f"{name}-{number}-{index}".encode()
                log.append(build_batch([Record(0, 1_000 + index, b"k%d" % index, value, (("h", b"1"),))]))
    cluster.configs["orders-eu"] = {
        "retention.ms": "1000",
        "min.insync.replicas": "2",
        "leader.replication.throttled.replicas": "0:1",
    }
    return cluster


@pytest.fixture
def other() -> Iterator[FakeCluster]:
    """Another cluster, without topics."""
    with FakeCluster() as started:
        started.cluster_id = "another-cluster"
        yield started


def values(cluster: FakeCluster, topic: str, partition: int = 0) -> list[bytes]:
    return [record.value for record in cluster.records_of(topic, partition)]


def statuses(ran: Any) -> dict[str, tuple[str, int]]:
    return {row["topic"]: (row["status"], row["copied"]) for row in ran.document}


def test_topics_are_created_with_their_properties_and_verified(
    kctl: Kctl, shop: FakeCluster, other: FakeCluster
) -> None:
    ran = kctl(f"copy orders-* payments --to-cluster {other.bootstrap}")
    assert ran.status == 0, ran
    assert [row[:9] for row in ran.rows] == [
        ["orders-eu", "orders-eu", "2", "6", "6", "102", "0", "verified", "6"],
        ["orders-us", "orders-us", "1", "3", "3", "51", "0", "verified", "3"],
        ["payments", "payments", "1", "3", "3", "48", "0", "verified", "3"],
    ]
    for name, partition in (("orders-eu", 0), ("orders-eu", 1), ("orders-us", 0), ("payments", 0)):
        assert values(other, name, partition) == values(shop, name, partition)
    assert other.configs["orders-eu"] == {"retention.ms": "1000", "min.insync.replicas": "1"}
    assert "min.insync.replicas lowered to the number of replicas: 1 topic: orders-eu" in ran.err
    assert "leader.replication.throttled.replicas is not copied: 1 topic: orders-eu" in ran.err
    assert "3 topics copied, 12 records\n" in ran.err


def test_repeated_command_continues(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    line = f"copy orders-* --to-cluster {other.bootstrap} --format json"
    assert statuses(kctl(line)) == {"orders-eu": ("verified", 6), "orders-us": ("verified", 3)}
    assert other.groups[GROUP].offsets[TopicPartition("orders-us", 0)] == 3
    shop.topics["orders-us"][0].append(build_batch([Record(0, 1, None, b"new", ())]))
    again = kctl(line)
    assert (again.status, statuses(again)) == (0, {"orders-eu": ("verified", 0), "orders-us": ("verified", 1)})
    assert [row["verified"] for row in again.document] == [6, 4]


def test_prefix_is_for_copies_in_the_same_cluster(kctl: Kctl, shop: FakeCluster) -> None:
    refused = kctl("copy payments")
    assert (refused.status, "give --prefix or another cluster" in refused.err) == (ExitStatus.REFUSED, True)
    assert kctl("copy payments --prefix old-").status == 0
    assert values(shop, "old-payments") == values(shop, "payments")
    assert f"{GROUP}-old-" in shop.groups


def test_two_topics_are_copied_each_with_an_option(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    ran = kctl(f"copy orders-us payments --each --to-cluster {other.bootstrap}")
    assert (ran.status, set(other.topics)) == (0, {"orders-us", "payments"})
    assert values(other, "payments") == values(shop, "payments")


def test_two_topics_of_the_source_are_not_copied_without_a_word_on_which_is_meant(
    kctl: Kctl, shop: FakeCluster, other: FakeCluster
) -> None:
    line = f"copy orders-us payments --to-cluster {other.bootstrap}"
    for exists in (False, True):
        if exists:
            other.create("payments")
        refused = kctl(line)
        assert refused.status == ExitStatus.REFUSED
        for option in ("--each", "--no-each"):
            assert f"'kctl copy orders-us payments {option} ...' copies" in refused.err
    assert other.requested(ProduceRequest) == []
    assert kctl(f"{line} --no-each").status == 0
    assert values(other, "payments") == values(shop, "orders-us")
    assert kctl("copy orders-us payments").status == 0, "in one cluster the second topic is always the target"


def test_dry_run_counts_and_creates_nothing(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    other.create("payments")
    shop.groups["g"] = FakeGroup({TopicPartition("payments", 0): 2})
    ran = kctl(f"copy orders-us payments --each --groups g --to-cluster {other.bootstrap} --dry-run --format json")
    assert (ran.status, statuses(ran)) == (
        0,
        {"orders-us": ("would be created", 3), "payments": ("would be copied", 3)},
    )
    assert ran.document[0]["groups"] == []
    assert ran.document[1]["groups"][0]["status"] == "would be committed"
    assert (set(other.topics), other.requested(ProduceRequest), other.requested(OffsetCommitRequest)) == (
        {"payments"},
        [],
        [],
    )


@pytest.mark.usefixtures("shop")
def test_other_partitions_are_refused_before_anything_is_written(kctl: Kctl, other: FakeCluster) -> None:
    other.create("orders-eu", 3)
    ran = kctl(f"copy orders-* --to-cluster {other.bootstrap}")
    assert (ran.status, set(other.topics)) == (ExitStatus.REFUSED, {"orders-eu"})
    assert "nothing was written: orders-eu has 3 partitions, orders-eu has 2" in ran.err


@pytest.mark.usefixtures("shop")
def test_topics_that_the_target_refuses_are_named_before_anything_is_written(kctl: Kctl, other: FakeCluster) -> None:
    def refuse(request: Any) -> Any:
        code = ErrorCode.POLICY_VIOLATION
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=code, error_message="no") for topic in request.topics
            ]
        )

    other.intercept(CreateTopicsRequest, refuse)
    ran = kctl(f"copy orders-* --to-cluster {other.bootstrap}")
    assert (ran.status, set(other.topics)) == (ExitStatus.FAILED, set())
    assert "topic 'orders-eu' (and 1 more topic) cannot be created in the target: no" in ran.err


def test_topic_that_fails_does_not_stop_the_others(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    (log,) = other.create("orders-us")
    log.append(build_batch([Record(0, 1, None, b"of others", ())]))
    ran = kctl(f"copy orders-* payments --to-cluster {other.bootstrap} --format json")
    assert ran.status == ExitStatus.FAILED
    assert statuses(ran) == {"orders-eu": ("verified", 6), "orders-us": ("failed", 0), "payments": ("verified", 3)}
    assert "the target has had records" in ran.document[1]["message"]
    assert values(other, "orders-us") == [b"of others"]
    assert values(other, "payments") == values(shop, "payments")


@pytest.mark.usefixtures("shop")
def test_copy_that_differs_is_found(kctl: Kctl, other: FakeCluster) -> None:
    line = f"copy orders-us --to-cluster {other.bootstrap} --format json"
    assert kctl(line).status == 0
    other.topics["orders-us"][0].append(build_batch([Record(0, 1_002, b"k2", b"orders-us-0-2", (("h", b"1"),))]))
    ran = kctl(line)
    assert (ran.status, statuses(ran)) == (ExitStatus.UNMET, {"orders-us": ("different", 0)})
    assert ran.document[0]["message"] == (
        "the record at offset 3 of orders-us-0 is not one of orders-us-0, or a second copy"
    )
    assert kctl(f"{line} --no-verify").document[0]["status"] == "copied"


def test_selected_records_are_copied_and_verified(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    ran = kctl(f"copy orders-* --key k1 --to-cluster {other.bootstrap} --format json")
    assert (ran.status, statuses(ran)) == (0, {"orders-eu": ("verified", 2), "orders-us": ("verified", 1)})
    assert values(other, "orders-us") == values(shop, "orders-us")[1:2]
    assert GROUP not in other.groups


def test_offsets_of_groups_are_translated_in_their_topics(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    shop.groups["g"] = FakeGroup({TopicPartition("orders-us", 0): 2, TopicPartition("elsewhere", 0): 9})
    shop.groups["both"] = FakeGroup({TopicPartition("orders-us", 0): 1, TopicPartition("payments", 0): 3})
    ran = kctl(f"copy orders-us payments --each --groups g,both --to-cluster {other.bootstrap} --format json")
    assert ran.status == 0, ran
    assert [[group["group"] for group in row["groups"]] for row in ran.document] == [["g", "both"], ["both"]]
    assert other.groups["g"].offsets == {TopicPartition("orders-us", 0): 2}
    assert other.groups["both"].offsets == shop.groups["both"].offsets
    absent = kctl(f"copy orders-us payments --each --groups absent --to-cluster {other.bootstrap}")
    assert "group 'absent' has no committed offset in these topics" in absent.err


def acls_of(*patterns: tuple[str, int]) -> Any:
    """Resources of topics with one ACL each: the name, and the type of the pattern."""
    acl = AclDescription(principal="User:a", host="*", operation=3, permission_type=3)
    resources = [
        DescribeAclsResource(resource_type=2, resource_name=name, pattern_type=kind, acls=[acl])
        for name, kind in patterns
    ]
    return lambda _: DescribeAclsResponse(error_code=0, error_message=None, resources=resources)


def test_acls_of_topics_are_created_and_none_is_removed(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    shop.intercept(DescribeAclsRequest, acls_of(("orders-us", 3), ("orders-", 4), ("payments", 3), ("*", 3), ("x", 4)))
    other.intercept(DescribeAclsRequest, acls_of(("dr-orders-us", 3), ("of-others", 3)))
    created: list[tuple[str, int]] = []

    def create(request: Any) -> Any:
        created.extend((acl.resource_name, acl.resource_pattern_type) for acl in request.creations)
        return CreateAclsResponse(results=[AclCreationResult(error_code=0) for _ in request.creations])

    other.intercept(CreateAclsRequest, create)
    line = f"copy orders-* --prefix dr- --acls --to-cluster {other.bootstrap} --format json"
    dry = kctl(f"{line} --dry-run")
    names = [[(acl["resource_name"], acl["status"]) for acl in row["acls"]] for row in dry.document]
    would = ("dr-orders-", "would be created")
    assert (dry.status, names, created) == (0, [[would], [would, ("dr-orders-us", "present")]], [])
    assert (kctl(line).status, created) == (0, [("dr-orders-", 4)])
    assert "dr-orders-us" in kctl(line.replace(" --format json", "")).out


def test_acls_need_an_authorizer_before_anything_is_written(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    disabled = DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="no authorizer", resources=[])
    shop.intercept(DescribeAclsRequest, lambda _: disabled)
    ran = kctl(f"copy orders-* --acls --to-cluster {other.bootstrap}")
    assert (ran.status, "no authorizer" in ran.err, set(other.topics)) == (ExitStatus.FAILED, True, set())


def test_no_topic_is_created_if_its_acls_are_refused(kctl: Kctl, shop: FakeCluster, other: FakeCluster) -> None:
    shop.intercept(DescribeAclsRequest, acls_of(("orders-us", 3), ("orders-", 4)))
    other.intercept(DescribeAclsRequest, acls_of())

    def create(request: Any) -> Any:
        codes = [ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED][: len(request.creations)]
        return CreateAclsResponse(results=[AclCreationResult(error_code=code) for code in codes])

    other.intercept(CreateAclsRequest, create)
    ran = kctl(f"copy orders-* --acls --to-cluster {other.bootstrap}")
    assert ran.status == ExitStatus.FAILED
    assert "CLUSTER_AUTHORIZATION_FAILED: 1 ACL cannot be created in the target, such as that of User:a" in ran.err
    assert "1 ACL created, no topic was created and no record copied" in ran.err
    assert set(other.topics) == set()


@pytest.mark.usefixtures("shop")
@for_rows(
    "line, message",
    [
        ("copy orders-* --max-messages 1", "--max-messages is for one topic"),
        ("copy orders-* --partition 0", "--partition is for one topic"),
        ("copy orders-* --partitions hash", "--partitions hash is for one topic"),
        ("copy orders-* --prefix x --key a --transactional-id t", "--transactional-id and --progress require"),
        ("copy payments x --acls", "--acls is for several topics"),
        ("copy", "give topics or --topic-regex"),
        ("copy absent-* --prefix x", "no topic matches 'absent-*'"),
        ("copy a b c --prefix x", "topic 'a' does not exist"),
    ],
)
def test_invalid_lines(kctl: Kctl, line: str, message: str) -> None:
    ran = kctl(line)
    assert ran.status in {ExitStatus.USAGE, ExitStatus.FAILED}
    assert message in ran.err, ran.err
