"""The rules of `kctl migrate check`: each kind of problem, from the facts that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kctl.admin.doctor.findings import Severity
from kctl.admin.doctor.snapshot import (
    BrokerState,
    DirectoryState,
    OldRequestState,
    PartitionState,
    ReassignmentState,
    Snapshot,
    TopicState,
    TransactionState,
)
from kctl.errors import UsageError
from kctl.migration.check.directory_reading import read_directories
from kctl.migration.check.facts import BrokerProperty, ClusterFacts, DirectoryFiles, Missing, ReplicaPlace, Source
from kctl.migration.check.judging import CHECKS, judge
from kctl.migration.check.kinds import KINDS, Way
from kctl.migration.check.release_rules import least_release, release_of
from kctl.migration.check.steps import HIDDEN, steps_of
from kctl.migration.source.cluster import Znode, parse_cluster
from kctl.model import TopicPartition
from kctl.storage.state.checkpoints import partition_metadata_text
from tests.rows import for_rows

APIS = {"Fetch": "0-17", "ListTransactions": "0-1"}
OLD_APIS = {"Fetch": "0-11", "ListPartitionReassignments": "0-0"}
ORDERS = TopicState(name="orders", partitions=(PartitionState(0, 1, (1, 2), (1, 2)),), min_insync_replicas=1, records=9)
HEALTHY = Snapshot(
    taken_ms=0,
    cluster_id="c",
    is_kraft=False,
    controller=1,
    brokers=tuple(BrokerState(broker_id=number, apis=APIS) for number in (1, 2)),
    topics=(ORDERS,),
)
VALUES: Mapping[str, str | None] = {
    "broker.id": "1",
    "inter.broker.protocol.version": "3.9-IV0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    "security.inter.broker.protocol": "PLAINTEXT",
    "zookeeper.connect": "zk:2181/kafka",
}
STATIC = {"broker.id": BrokerProperty("1", False)}
CLEAN = ClusterFacts(
    target="4.3",
    snapshot=HEALTHY,
    broker_values={1: VALUES, 2: VALUES},
    broker_properties={1: STATIC, 2: STATIC},
)
ID = {"/cluster/id": b'{"version":"1","id":"c"}'}
TOPIC = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2]}}'
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
WHOLE = ID | {"/brokers/topics/orders": TOPIC, "/brokers/topics/orders/partitions/0/state": STATE}


def stored(znodes: Mapping[str, bytes]) -> ClusterFacts:
    """The facts with these znodes and their parents."""
    paths = {path[:at] for path in znodes for at, letter in enumerate(path) if letter == "/" and at}
    known = {path: Znode(znodes.get(path, b"")) for path in sorted({"/", *paths, *znodes})}
    return replace(CLEAN, stored=parse_cluster(known))


def seen(**more: Any) -> ClusterFacts:
    return replace(CLEAN, snapshot=replace(HEALTHY, **more))


def with_values(**values: str) -> ClusterFacts:
    named = {name.replace("_", "."): value for name, value in values.items()}
    return replace(CLEAN, broker_values={1: {**VALUES, **named}, 2: VALUES})


def with_properties(properties: Mapping[str, BrokerProperty], **more: Any) -> ClusterFacts:
    return replace(CLEAN, broker_properties={1: {**STATIC, **properties}, 2: STATIC}, **more)


def of_topic(**values: str) -> ClusterFacts:
    return replace(
        CLEAN, topic_properties={"orders": {name.replace("_", "."): value for name, value in values.items()}}
    )


def files(**more: Any) -> ClusterFacts:
    return replace(CLEAN, files=(DirectoryFiles(path="/data", cluster_id="c", broker_id=1, **more),))


TP = TopicPartition("orders", 0)
PLACE = ReplicaPlace(broker_id=1, directory="/data", tp=TP)
HANGING = TransactionState(
    topic="orders",
    partition=0,
    producer_id=7,
    producer_epoch=0,
    coordinator_epoch=-1,
    start_offset=3,
    idle_ms=86_400_000,
    blocked_records=5,
)
DYNAMIC_PASSWORD = {"listener.name.ssl.ssl.keystore.password": BrokerProperty(None, is_dynamic=True)}
CASES: list[tuple[str, ClusterFacts, str]] = [
    ("not-zookeeper", seen(is_kraft=True), "no ZooKeeper"),
    (
        "broker-away",
        seen(brokers=(*HEALTHY.brokers[:1], BrokerState(broker_id=2, is_listed=False))),
        "broker 2 is down",
    ),
    ("no-controller", seen(controller=None), "no broker is the controller"),
    ("mixed-releases", seen(brokers=(HEALTHY.brokers[0], BrokerState(broker_id=2, apis=OLD_APIS))), "releases"),
    ("mixed-protocols", with_values(inter_broker_protocol_version="3.8-IV0"), "inter.broker.protocol.version"),
    ("before-bridge", seen(brokers=(BrokerState(broker_id=1, apis=OLD_APIS),)), "has the APIs of 2.4"),
    ("kctl-broker", with_values(metrics_consumer_lag="true"), "kctl's own"),
    ("generated-broker-id", replace(CLEAN, broker_properties={1: {}, 2: STATIC}), "broker 1"),
    ("small-segments", of_topic(segment_bytes="1048575"), "the minimum is 1048576"),
    ("refused-topic-value", of_topic(flush_messages="0"), "the minimum is 1"),
    ("refused-topic-value", of_topic(cleanup_policy="delete,delete"), "twice"),
    ("small-segments", stored(WHOLE | {"/config/topics/orders": b'{"config":{"segment.bytes":"14"}}'}), "minimum"),
    ("refused-broker-value", with_properties({"num.replica.fetchers": BrokerProperty("0", False)}), "the minimum is 1"),
    ("small-segments", with_properties({"log.segment.bytes": BrokerProperty("9999", True)}), "1048576"),
    ("forgotten-topic-property", of_topic(message_format_version="2.8"), "message.format.version"),
    ("forgotten-broker-property", with_properties({"host.name": BrokerProperty("a", False)}), "1 property"),
    ("changed-default", of_topic(retention_ms="1"), "message.timestamp.after.max.ms is 3600000"),
    (
        "old-format-written",
        replace(
            with_values(inter_broker_protocol_version="2.8-IV1"),
            written_formats={"orders": "0.10.2", "other": "2.8-IV1"},
        ),
        "1 topic is written in the message format of 0.10.2",
    ),
    ("old-format-stored", replace(CLEAN, stored_formats={TP: 1, TopicPartition("a", 0): 2}), "1 partition has"),
    ("old-format-stored", files(logs=1, old_format={TP: 0}), "1 partition has"),
    (
        "removed-authorizer",
        with_values(authorizer_class_name="kafka.security.authorizer.AclAuthorizer"),
        "AclAuthorizer",
    ),
    ("custom-class", with_values(authorizer_class_name="com.example.Authorizer"), "com.example"),
    ("custom-class", with_values(create_topic_policy_class_name="com.example.Policy"), "com.example.Policy"),
    (
        "acls-without-authorizer",
        stored(
            WHOLE
            | {
                "/kafka-acl/Topic/orders": b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow",'
                b'"operation":"Read","host":"*"}]}'
            }
        ),
        "1 ACL is stored",
    ),
    ("security-contents", stored(WHOLE | {"/config/clients/a": b'{"config":{"producer_byte_rate":"1"}}'}), "1 quota"),
    ("escaped-names", stored(WHOLE | {"/config/clients/a%20b": b'{"config":{"producer_byte_rate":"1"}}'}), "1 name"),
    (
        "delegation-tokens",
        with_properties({"delegation.token.master.key": BrokerProperty(None, False)}),
        "broker 1 has",
    ),
    ("encrypted-passwords", with_properties(DYNAMIC_PASSWORD), "passwords"),
    (
        "encrypted-passwords",
        stored(WHOLE | {"/config/brokers/<default>": b'{"config":{"ssl.truststore.password":"encrypted"}}'}),
        "passwords",
    ),
    (
        "scram-between-brokers",
        with_values(security_inter_broker_protocol="SASL_SSL", sasl_mechanism_inter_broker_protocol="SCRAM-SHA-512"),
        "SCRAM-SHA-512",
    ),
    ("controller-listener", CLEAN, "PLAINTEXT"),
    ("bad-znode", stored(WHOLE | {"/brokers/topics/broken": b"{"}), "/brokers/topics/broken"),
    ("bad-znode", stored({"/brokers": b""}), "not the root of a cluster"),
    ("unknown-znode", stored(WHOLE | {"/solr": b""}), "1 znode"),
    (
        "no-topic-id",
        stored(WHOLE | {"/brokers/topics/old": b'{"version":1,"partitions":{"0":[1]}}'}),
        "1 topic has no id",
    ),
    ("no-partition-state", stored(ID | {"/brokers/topics/orders": TOPIC}), "1 partition has no state"),
    ("orphan-properties", stored(WHOLE | {"/config/topics/gone": b'{"config":{}}'}), "1 topic that does not exist"),
    (
        "bad-partition-state",
        stored(WHOLE | {"/brokers/topics/orders/partitions/0/state": STATE.replace(b"[1,2]", b"[1,9]")}),
        "1 partition has in-sync replicas",
    ),
    (
        "bad-partition-state",
        stored(WHOLE | {"/brokers/topics/orders/partitions/0/state": STATE.replace(b"[1,2]", b"[]")}),
        "or none",
    ),
    ("bad-quota", stored(WHOLE | {"/config/clients/a": b'{"config":{"producer_byte_rate":"x"}}'}), "client-id a"),
    ("doubled-log", replace(CLEAN, replicas=(PLACE, replace(PLACE, directory="/b"))), "1 partition has two logs"),
    (
        "other-topic-id",
        replace(stored(WHOLE), files=files(logs=1, topic_ids={TP: UUID(int=9)}).files),
        "1 log in /data has the id of another topic",
    ),
    ("pending-deletion", stored(WHOLE | {"/admin/delete_topics/orders": b""}), "1 topic is being deleted"),
    (
        "pending-reassignment",
        seen(reassignments=(ReassignmentState(topic="orders", partition=0, adding=(3,), removing=(1,)),)),
        "1 partition is being moved",
    ),
    (
        "pending-reassignment",
        stored(
            WHOLE
            | {
                "/admin/reassign_partitions": b'{"version":1,"partitions":[{"topic":"orders","partition":0,'
                b'"replicas":[3]}]}'
            }
        ),
        "1 partition is being moved",
    ),
    (
        "pending-election",
        stored(
            WHOLE
            | {"/admin/preferred_replica_election": b'{"version":1,"partitions":[{"topic":"orders","partition":0}]}'}
        ),
        "1 partition",
    ),
    ("migration-begun", stored(WHOLE | {"/migration": b"{}"}), "/migration"),
    ("offsets-in-zookeeper", stored(WHOLE | {"/consumers/old/offsets/orders/0": b"12"}), "group old has committed 1"),
    (
        "unavailable-partitions",
        seen(topics=(replace(ORDERS, partitions=(PartitionState(0, -1, (1, 2), (1,)),)),)),
        "cannot be written or read",
    ),
    (
        "under-replicated",
        seen(topics=(replace(ORDERS, partitions=(PartitionState(0, 1, (1, 2), (1,)),)),)),
        "broker 2 responds",
    ),
    ("hanging-transactions", seen(transactions=(HANGING,)), "orders-0"),
    ("old-clients", seen(old_requests=(OldRequestState(broker_id=1, api="Fetch", version=2, count=9),)), "refuse"),
    ("offline-directory", seen(directories=(DirectoryState(broker_id=1, path="/data", error="EIO"),)), "/data"),
    ("future-replica", replace(CLEAN, replicas=(PLACE, replace(PLACE, directory="/b", is_future=True))), "1 replica"),
    ("future-replica", files(future=(TP,)), "1 copy"),
    ("left-over-directory", files(left_over=("orders-0.0123456789abcdef0123456789abcdef-stray",)), "1 directory"),
    ("unknown-replica", replace(CLEAN, replicas=(replace(PLACE, tp=TopicPartition("gone", 0)),)), "1 log is"),
    (
        "several-directories",
        seen(directories=(DirectoryState(broker_id=1, path="/a"), DirectoryState(broker_id=1, path="/b"))),
        "broker 1 has several",
    ),
    ("no-partition-metadata", files(logs=3, without_metadata=(TP,)), "1 of 3 logs"),
    ("other-cluster", replace(CLEAN, files=(DirectoryFiles(path="/data", cluster_id="d", broker_id=1),)), "cluster d"),
    ("other-cluster", files(problem="has no meta.properties"), "has no meta.properties"),
    ("disk-room", files(free_bytes=5, total_bytes=100), "are free"),
    (
        "disk-room",
        seen(directories=(DirectoryState(broker_id=1, path="/a", usable_bytes=1, total_bytes=100),)),
        "the disk of broker 1 fills",
    ),
]


@for_rows("kind, facts, text", CASES)
def test_facts_show_the_problem(kind: str, facts: ClusterFacts, text: str) -> None:
    (problem,) = [found for found in judge(facts).problems if found.kind == kind]
    assert text in problem.finding.cause
    assert problem.finding.repair
    assert problem.finding.look


def test_every_kind_is_found_by_a_case_and_belongs_to_a_check() -> None:
    assert {kind for kind, _, _ in CASES} == set(KINDS)
    assert {kind.check for kind in KINDS.values()} == set(CHECKS)


def test_healthy_cluster_on_the_bridge_release_is_not_blocked() -> None:
    report = judge(stored(WHOLE))
    assert [problem.kind for problem in report.problems] == ["changed-default", "controller-listener"]
    assert not report.blocking(None)


def test_what_blocks_comes_first_and_only_the_ways_that_it_blocks() -> None:
    facts = replace(
        stored(WHOLE | {"/admin/delete_topics/orders": b"", "/migration": b""}),
        topic_properties={"orders": {"segment.bytes": "14"}},
    )
    report = judge(facts)
    assert [problem.kind for problem in report.problems[:3]] == [
        "small-segments",
        "pending-deletion",
        "migration-begun",
    ]
    assert [problem.kind for problem in report.blocking(Way.BRIDGE)] == ["small-segments", "pending-deletion"]
    assert [problem.kind for problem in report.blocking(Way.OFFLINE)] == ["migration-begun"]
    assert all(problem.finding.severity >= Severity.WARNING for problem in report.blocking(None))
    assert not judge(facts, {"small-segments", "pending-deletion", "migration-begun"}).blocking(None)


def test_source_that_was_not_read_is_named_for_each_check_that_needs_it() -> None:
    for source in Source:
        report = judge(replace(CLEAN, missing={source: Missing("no permission", "ask for it")}))
        needing = {name for name, check in CHECKS.items() if source in check.needs}
        assert needing
        assert {skipped.check for skipped in report.not_checked} == needing
        assert all("no permission" in skipped.reason for skipped in report.not_checked)


@for_rows("target, value, is_refused", [
        ("4.0", "14", False),
        ("4.0", "13", True),
        ("4.1", "1048575", True),
        ("4.4", "1048576", False),
        ("4.4", "9" * 5_000, True),
    ])  # fmt: skip
def test_segment_bytes_of_a_topic_is_judged_by_the_rule_of_the_target(
    target: str, value: str, is_refused: bool
) -> None:
    report = judge(replace(of_topic(segment_bytes=value), target=target))
    assert any(problem.kind in {"refused-topic-value", "small-segments"} for problem in report.problems) is is_refused


@for_rows("apis, release", [
        ({}, None),
        ({"Fetch": "0-5"}, (0, 11)),
        ({"Fetch": "0-7"}, (1, 1)),
        ({"Fetch": "0-8"}, (2, 0)),
        (OLD_APIS, (2, 4)),
        (APIS, (3, 9)),
    ])  # fmt: skip
def test_release_follows_from_apis(apis: Mapping[str, str], release: tuple[int, int] | None) -> None:
    assert least_release(BrokerState(broker_id=1, apis=apis)) == release


@for_rows("text, release", [
        ("2.8-IV1", (2, 8)),
        ("0.10.2-IV0", (0, 10)),
        ("3.9", (3, 9)),
        ("", None),
        ("x.y", None),
        ("9" * 5_000 + ".1", None),
    ])  # fmt: skip
def test_release_of_a_protocol_version(text: str, release: tuple[int, int] | None) -> None:
    assert release_of(text) == release


def test_steps_of_the_bridge_have_the_lines_of_this_cluster() -> None:
    facts = with_properties(
        {
            "zookeeper.connect": BrokerProperty("zk:2181/kafka", False),
            "ssl.keystore.password": BrokerProperty(None, False),
            "control.plane.listener.name": BrokerProperty("CONTROL", False),
        },
        broker_values={
            1: {**VALUES, "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
            2: VALUES,
        },
    )
    start, connect, turn, end, upgrade = steps_of(Way.BRIDGE, facts, ["c1:9093", "c2:9093"])
    quorum = "3000@c1:9093,3001@c2:9093"
    (first, second) = start.files
    assert (first.node, second.node) == ("controller 3000", "controller 3001")
    assert first.set["controller.quorum.voters"] == quorum
    assert first.set["zookeeper.connect"] == "zk:2181/kafka"
    assert first.set["ssl.keystore.password"] == HIDDEN
    assert first.set["authorizer.class.name"] == "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert first.set["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert connect.files[0].set == {
        "inter.broker.protocol.version": "3.9",
        "zookeeper.metadata.migration.enable": "true",
        "controller.quorum.voters": quorum,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    assert turn.files[0].set["process.roles"] == "broker"
    assert {"broker.id", "zookeeper.connect", "control.plane.listener.name"} <= set(turn.files[0].remove)
    assert end.way_back == "none"
    assert {"zookeeper.connect", "zookeeper.metadata.migration.enable"} <= set(end.files[0].remove)
    assert "kctl features upgrade --metadata-version 4.3" in upgrade.actions


def test_steps_begin_with_the_upgrade_to_the_bridge_release_if_a_broker_is_older() -> None:
    old = BrokerState(broker_id=1, apis=OLD_APIS)
    facts = replace(with_properties({"port": BrokerProperty("9092", False)}), snapshot=replace(HEALTHY, brokers=(old,)))
    first = steps_of(Way.BRIDGE, facts)[0]
    assert first.title == "Upgrade the brokers to 3.9"
    assert first.files[0].remove == ("port",)
    generated = replace(facts, broker_properties={1: {}, 2: {}})
    assert steps_of(Way.BRIDGE, generated)[2].files[0].set["broker.id"] == "1"


def test_name_of_the_listener_of_controllers_is_free() -> None:
    facts = with_values(listener_security_protocol_map="CONTROLLER:SSL,CLIENTS:SSL")
    assert steps_of(Way.BRIDGE, facts)[0].files[0].set["controller.listener.names"] == "KRAFT_CONTROLLER"


def test_steps_of_the_offline_way_name_every_node_and_its_way_back() -> None:
    steps = steps_of(Way.OFFLINE, CLEAN, ["c1:9093"], "zk:2181/kafka")
    lines = [line for step in steps for line in step.actions]
    assert "kctl migrate convert --plan plan.json --node 2 --yes" in lines
    assert any(
        "--inventory broker-1.json --inventory broker-2.json" in line and "zk:2181/kafka" in line for line in lines
    )
    assert all(step.way_back for step in steps)


def test_directories_are_read_with_the_format_of_each_segment(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    unique = "0" * 32
    for name in (
        "orders-0",
        "old-0",
        f"orders-1.{unique}-future",
        f"gone-0.{unique}-stray",
        "notes",
        "__cluster_metadata-0",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "orders-0" / "partition.metadata").write_bytes(partition_metadata_text(UUID(int=7)))
    for log, number, magic in (("orders-0", 0, 2), ("old-0", 0, 2), ("old-0", 5, 1)):
        (tmp_path / log / f"{number:020}.log").write_bytes(bytes(16) + bytes([magic]))
    (tmp_path / "old-0" / f"{9:020}.log").write_bytes(b"")
    (directory,) = read_directories([str(tmp_path)])
    assert (directory.cluster_id, directory.broker_id, directory.problem) == ("c", 1, None)
    assert directory.logs == 2
    assert directory.topic_ids == {TopicPartition("orders", 0): UUID(int=7)}
    assert directory.without_metadata == (TopicPartition("old", 0),)
    assert directory.future == (TopicPartition("orders", 1),)
    assert directory.left_over == (f"gone-0.{unique}-stray",)
    assert directory.old_format == {TopicPartition("old", 0): 1}
    assert directory.free_bytes is not None


def test_directory_without_meta_properties_is_a_problem_and_one_that_is_not_there_an_error(tmp_path: Path) -> None:
    (directory,) = read_directories([str(tmp_path)])
    assert directory.problem == "has no meta.properties"
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    assert "version '1'" in str(read_directories([str(tmp_path)])[0].problem)
    with pytest.raises(UsageError, match="missing: No such file"):
        read_directories([str(tmp_path / "missing")])
