"""A plan has all that KRaft stores, names all that is not carried, and is refused when it was changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kctl.errors import UsageError
from kctl.migration.planning.controller_security import check_controller_security
from kctl.migration.planning.making import Choices, ControllerSpec, check_choices
from kctl.migration.planning.plan import MigrationPlan, parse_plan, plan_text
from kctl.migration.source.cluster import Znode
from kctl.migration.source.inventory import inventory_document, parse_inventory, take_inventory
from kctl.migration.target.properties import translate_server, translate_topic
from kctl.migration.target.records import Findings
from kctl.migration.target.snapshot import read_messages
from kctl.model import ZERO_UUID, parse_uuid
from kctl.output.documents import parse_json
from kctl.records.batch import iterate_batches, iterate_records
from kctl.records.internal.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserScramCredentialRecord,
    decode_quorum_control,
)
from kctl.zookeeper import paths, security_znodes, znodes
from tests.rows import for_rows
from tests.unit.migration.stored_cluster import (
    CLUSTER_ID,
    CONTROLLERS,
    CREDENTIAL,
    LOGS,
    ORDERS,
    PRODUCER_ID,
    disk,
    inventories,
    planned,
    state_of,
)


def _messages(plan: MigrationPlan, kind: type) -> list[Any]:
    return [message for message in read_messages(plan.snapshot) if type(message) is kind]


def _partitions(plan: MigrationPlan) -> dict[tuple[Any, int], PartitionRecord]:
    return {(record.topic_id, record.partition_id): record for record in _messages(plan, PartitionRecord)}


def test_the_snapshot_has_everything_that_zookeeper_stores() -> None:
    token = security_znodes.TokenZnode("token-1", "User:alice", ("User:bob",), 1, 2, 3)
    more = {
        "/delegation_token": Znode(b""),
        "/delegation_token/tokens": Znode(b""),
        paths.delegation_token("token-1"): Znode(security_znodes.encode_token(token)),
    }
    plan, findings = planned(disk(), more)
    assert findings.problems == []
    topics = {record.name: record.topic_id for record in _messages(plan, TopicRecord)}
    assert topics["orders"] == ORDERS
    assert topics.keys() == {"orders", "old"}
    (quota,) = _messages(plan, ClientQuotaRecord)
    assert ([(part.entity_type, part.entity_name) for part in quota.entity], quota.key, quota.value) == (
        [("user", "alice")],
        "producer_byte_rate",
        5.0,
    )
    (scram,) = _messages(plan, UserScramCredentialRecord)
    assert (scram.name, scram.mechanism, scram.salt, scram.iterations) == ("alice", 1, CREDENTIAL.salt, 4096)
    (acl,) = _messages(plan, AccessControlEntryRecord)
    assert (acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal) == (2, "orders", 3, "User:alice")
    (stored_token,) = _messages(plan, DelegationTokenRecord)
    assert (stored_token.owner, stored_token.renewers, stored_token.token_id) == ("User:alice", ["User:bob"], "token-1")
    assert {record.name for record in _messages(plan, FeatureLevelRecord)} == set(plan.features)


def test_partitions_keep_replicas_in_sync_replicas_and_directories_and_have_no_leader() -> None:
    plan, _ = planned(disk())
    record = _partitions(plan)[ORDERS, 1]
    assert (record.replicas, record.isr, record.leader) == ([2, 1], [2], -1)
    assert record.eligible_leader_replicas is None
    metas = {path: _meta(node.files[path]) for node in plan.nodes.values() for path in node.files if "meta." in path}
    assert record.directories == [
        parse_uuid(metas["/c/meta.properties"]["directory.id"]),
        parse_uuid(metas["/b/meta.properties"]["directory.id"]),
    ]


def test_the_leader_epoch_is_at_least_that_of_the_logs() -> None:
    plan, _ = planned(disk())
    assert _partitions(plan)[ORDERS, 0].leader_epoch == 6  # ZooKeeper has 4.


def test_the_next_producer_id_is_above_those_of_zookeeper_and_of_the_logs() -> None:
    (record,) = _messages(planned(disk())[0], ProducerIdsRecord)
    assert record.next_producer_id == PRODUCER_ID + 1
    block = znodes.encode_producer_id_block(znodes.ProducerIdBlock(1, 9000, 9999))
    (record,) = _messages(planned(disk(), {paths.LATEST_PRODUCER_ID_BLOCK: Znode(block)})[0], ProducerIdsRecord)
    assert record.next_producer_id == 10_000


def test_a_topic_without_an_id_gets_one_in_the_snapshot_and_in_its_logs() -> None:
    plan, findings = planned(disk())
    (topic_id,) = (record.topic_id for record in _messages(plan, TopicRecord) if record.name == "old")
    assert topic_id != ZERO_UUID
    assert _meta(plan.nodes[1].files["/a/old-0/partition.metadata"], ":")["topic_id"] in str(findings.notes)
    assert parse_uuid(_meta(plan.nodes[1].files["/a/old-0/partition.metadata"], ":")["topic_id"]) == topic_id


def test_properties_of_topics_that_4_refuses_are_changed_and_named() -> None:
    plan, findings = planned(disk())
    configs = {record.name: record.value for record in _messages(plan, ConfigRecord)}
    assert configs == {"segment.bytes": "1048576"}
    assert any("segment.bytes raised from 4096" in note for note in findings.notes)
    assert any("message.format.version dropped" in note for note in findings.notes)


def test_a_limit_on_timestamps_is_carried_under_its_new_names() -> None:
    carried, changes = translate_topic({"message.timestamp.difference.max.ms": "60000"})
    assert carried == {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    assert [change.name for change in changes] == ["message.timestamp.difference.max.ms"]


def test_properties_of_a_server_are_translated_and_each_change_is_named_without_its_value() -> None:
    old = {
        "broker.id": "1",
        "zookeeper.connect": "zk:2181",
        "zookeeper.ssl.keystore.password": "hunter2",
        "inter.broker.protocol.version": "2.8",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "log.segment.bytes": "1000",
        "delegation.token.master.key": "hunter2",
        "num.io.threads": "8",
    }
    carried, changes = translate_server(old, {"node.id": "1"})
    assert carried == {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "log.segment.bytes": "1048576",
        "delegation.token.secret.key": "hunter2",
        "num.io.threads": "8",
        "node.id": "1",
    }
    assert {change.name for change in changes} == old.keys() - {"num.io.threads"}
    assert "hunter2" not in str(changes)


def test_combined_nodes_have_both_roles_and_both_listeners() -> None:
    plan, _ = planned(disk())
    assert plan.nodes[1].roles == "broker,controller"
    assert plan.nodes[1].settings["listeners"] == "PLAINTEXT://kafka-1:9092,CONTROLLER://kafka-1:9093"
    assert plan.nodes[1].settings["controller.quorum.voters"] == "1@kafka-1:9093"
    assert (plan.nodes[2].roles, plan.nodes[2].metadata_dir) == ("broker", None)
    assert plan.nodes[2].settings["listeners"] == "PLAINTEXT://kafka-2:9092"


def test_a_controller_of_its_own_is_a_voter_of_a_dynamic_quorum() -> None:
    spec = ControllerSpec(100, "quorum", 9093, "/controller")
    plan, _ = planned(disk(), controllers=(spec,), is_dynamic=True)
    node = plan.nodes[100]
    assert (node.roles, node.metadata_dir, node.home) == ("controller", "/controller", "/controller")
    assert node.settings["controller.quorum.bootstrap.servers"] == "quorum:9093"
    assert "controller.quorum.voters" not in node.settings
    controls = _controls(plan.snapshot)
    assert [name for name, _ in controls] == ["SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"]
    (voter,) = controls[2][1].voters
    directory_id = _meta(node.files["/controller/meta.properties"])["directory.id"]
    assert (voter.voter_id, voter.voter_directory_id) == (100, parse_uuid(directory_id))


def test_offsets_of_a_snapshot_are_consecutive_from_zero() -> None:
    view = memoryview(planned(disk())[0].snapshot)
    offsets = [record.offset for header in iterate_batches(view) for record in iterate_records(view, header)]
    assert offsets == list(range(len(offsets)))


def test_a_topic_that_is_being_deleted_is_left_out_and_named() -> None:
    plan, findings = planned(
        disk(), {"/admin": Znode(b""), "/admin/delete_topics": Znode(b""), "/admin/delete_topics/old": Znode(b"")}
    )
    assert [record.name for record in _messages(plan, TopicRecord)] == ["orders"]
    assert any("topic old: its deletion was pending" in note for note in findings.notes)
    assert "/a/old-0/partition.metadata" not in plan.nodes[1].files


PROBLEMS: dict[str, tuple[dict[str, Znode], str]] = {
    "a broker that runs": (
        {"/brokers/ids": Znode(b""), "/brokers/ids/1": Znode(b'{"version":1,"host":"h","port":9092}')},
        "brokers are running: 1",
    ),
    "a controller's session": (
        {paths.CONTROLLER: Znode(znodes.encode_controller(znodes.Controller(1, 1)))},
        "the session of a controller is open",
    ),
    "another cluster": ({paths.CLUSTER_ID: Znode(znodes.encode_cluster_id("other"))}, "belongs to cluster"),
    "a replica without inventory": (
        {paths.topic("old"): Znode(znodes.encode_topic(znodes.TopicAssignment({0: (1, 9)})))},
        "old-0 has replicas on nodes [9]",
    ),
    "another topic's log": (
        {paths.topic("orders"): Znode(znodes.encode_topic(znodes.TopicAssignment({0: (1, 2), 1: (2, 1)}, ZERO_UUID)))},
        "topic orders has the id",
    ),
    "an in-sync replica that is none": (
        {paths.partition_state("old", 0): Znode(state_of(7, (7,)))},
        "old-0: its in-sync",
    ),
    "an in-sync replica without a log": (
        {
            paths.topic("old"): Znode(znodes.encode_topic(znodes.TopicAssignment({0: (1, 2)}))),
            paths.partition_state("old", 0): Znode(state_of(1, (1, 2))),
        },
        "old-0: in-sync replicas [2] have no log",
    ),
    "an encrypted password": (
        {
            "/config/brokers": Znode(b""),
            "/config/brokers/1": Znode(znodes.encode_config({"ssl.key.password": "encryptor:hunter2"})),
        },
        "dynamic properties of broker 1 are encrypted: ssl.key.password",
    ),
    "a value that 4.x refuses": (
        {"/config/topics/orders": Znode(znodes.encode_config({"flush.messages": "0"}))},
        "topic orders: 4.3 refuses flush.messages=0: the minimum is 1; change it first",
    ),
    "a znode that cannot be read": ({paths.topic("broken"): Znode(b"{}")}, "/brokers/topics/broken"),
    "Apache's own migration": ({"/migration": Znode(b"")}, "Apache's own migration"),
}


@for_rows("row", PROBLEMS)
def test_a_problem_is_named(row: str) -> None:
    changed, text = PROBLEMS[row]
    _, findings = planned(disk(), changed)
    assert any(text in problem for problem in findings.problems), findings.problems
    assert "hunter2" not in str(findings)


SCRAM_BETWEEN_BROKERS = {
    "authorizer.class.name": "x",
    "super.users": "User:admin",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "INTERNAL:SASL_SSL,EXTERNAL:SASL_SSL",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.internal.ssl.keystore.location": "/k",
}


@for_rows(
    "case, properties, protocol, controllers, expected",
    [
        ("with an authorizer", {"authorizer.class.name": "x"}, "PLAINTEXT", 1, ["controllers as User:ANONYMOUS"]),
        ("as a super user",
            {"authorizer.class.name": "x", "super.users": "User:admin;User:ANONYMOUS"}, "PLAINTEXT", 1, [],
        ),
        ("the same login", SCRAM_BETWEEN_BROKERS, "SASL_SSL", 1, []),
        ("several by SCRAM", SCRAM_BETWEEN_BROKERS, "SASL_SSL", 3, ["give --controller-protocol SSL"]),
        ("certificates",
            {**SCRAM_BETWEEN_BROKERS, "ssl.client.auth": "required"}, "SSL", 3, ["with other names than"],
        ),
        ("no certificates", SCRAM_BETWEEN_BROKERS, "SSL", 1, ["SSL controllers as User:ANONYMOUS"]),
        ("less secure than brokers",
            SCRAM_BETWEEN_BROKERS, "PLAINTEXT", 1, ["give --controller-protocol", "User:ANONYMOUS"],
        ),
        ("no key store", {}, "SSL", 1, ["has no key store"]),
        ("no login", {}, "SASL_PLAINTEXT", 1, ["do not log in to each other"]),
    ],
)  # fmt: skip
def test_security_of_controllers_is_judged_by_that_between_brokers(
    case: str, properties: dict[str, str], protocol: str, controllers: int, expected: list[str]
) -> None:
    findings = Findings()
    check_controller_security(1, properties, protocol=protocol, controllers=controllers, findings=findings)
    texts = findings.problems + findings.notes
    assert len(texts) == len(expected), (case, texts)
    for text, part in zip(texts, expected, strict=True):
        assert part in text


def test_a_secured_listener_of_controllers_has_the_properties_of_the_listener_between_brokers() -> None:
    old = {
        "listener.security.protocol.map": "INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "listener.name.internal.ssl.keystore.location": "/internal",
        "listener.name.internal.scram-sha-512.sasl.jaas.config": "hunter2",
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "none",
        "listener.name.external.ssl.keystore.location": "/external",
    }
    for protocol, copies in (("SASL_SSL", 2), ("PLAINTEXT", 0)):
        settings = {"listener.security.protocol.map": f"INTERNAL:SASL_SSL,CONTROLLER:{protocol}"}
        carried, changes = translate_server(old, settings)
        added = carried.keys() - old.keys()
        assert len(added) == len(changes) == copies
        assert "hunter2" not in str(changes)
        assert carried["listener.name.controller.ssl.client.auth"] == "none"
        if copies:
            assert carried["listener.name.controller.ssl.keystore.location"] == "/internal"
            assert carried["listener.name.controller.scram-sha-512.sasl.jaas.config"] == "hunter2"


def test_two_logs_of_one_partition_are_a_problem() -> None:
    logs = {1: {"/a": ["orders-0", "old-0"], "/b": ["orders-1", "orders-0"]}, 2: LOGS[2]}
    files = disk(logs)
    _, findings = planned(files, nodes=inventories(files, logs))
    assert any("orders-0 in /a and in /b" in problem for problem in findings.problems)


REFUSED: dict[str, Sequence[ControllerSpec]] = {
    "no controller": (),
    "a controller twice": (CONTROLLERS[0], CONTROLLERS[0]),
    "a new controller without a directory": (ControllerSpec(9, "kafka-9", 9093),),
}


@for_rows("row", REFUSED)
def test_choices_that_contradict_the_inventories_are_refused(row: str) -> None:
    with pytest.raises(UsageError):
        check_choices(inventories(disk()), Choices(REFUSED[row], "zk:2181", "4.3"))


def test_an_inventory_is_the_same_after_its_document_was_read_and_has_no_secret() -> None:
    for node in inventories(disk()):
        text = json.dumps(inventory_document(node))
        assert parse_inventory(parse_json(text), "1.json") == node
        assert "hunter2" not in text


def test_a_digest_of_a_directory_follows_its_records() -> None:
    files = disk()
    before = inventories(files)[0].directories[0].digest
    files.write_atomically("/a/orders-0/00000000000000000000.log", b"one more record")
    assert inventories(files)[0].directories[0].digest != before


def test_a_directory_that_was_converted_has_no_inventory() -> None:
    files = disk()
    files.write_atomically("/c/meta.properties", b"version=1\nnode.id=2\ncluster.id=x\n")
    with pytest.raises(UsageError, match="/c has been converted to KRaft"):
        inventories(files)


def test_directories_of_two_brokers_are_refused() -> None:
    with pytest.raises(UsageError, match="do not name one broker"):
        take_inventory(disk(), {"log.dirs": "/a,/c"}, config_path="x", config_data=b"")


def test_a_plan_that_was_changed_is_refused() -> None:
    text = plan_text(planned(disk())[0])
    for changed in (text.replace("kafka-1:9093", "kafka-9:9093"), text.replace(CLUSTER_ID, CLUSTER_ID[::-1])):
        with pytest.raises(UsageError, match="digest differs"):
            parse_plan(parse_json(changed), "plan.json")
    others: list[Any] = [{}, [], {"kind": "kctl-migration-plan", "version": 1, "digest": "x"}]
    for other in others:
        with pytest.raises(UsageError):
            parse_plan(other, "plan.json")


@for_rows(
    "path", ["/etc/passwd", "/a/../etc/meta.properties", "/a/.lock", "/a/orders/partition.metadata", "meta.properties"]
)
def test_a_plan_that_names_files_that_no_conversion_writes_is_refused(path: str) -> None:
    plan, _ = planned(disk())
    node = replace(plan.nodes[1], files={path: "x"})
    with pytest.raises(UsageError, match="no conversion writes"):
        parse_plan(parse_json(plan_text(replace(plan, nodes={1: node}))), "plan.json")


def _meta(text: str, separator: str = "=") -> dict[str, str]:
    pairs = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _controls(snapshot: bytes) -> list[tuple[str, Any]]:
    view = memoryview(snapshot)
    decoded = (
        decode_quorum_control(record)
        for header in iterate_batches(view)
        if header.is_control
        for record in iterate_records(view, header)
    )
    return [control for control in decoded if control is not None]
