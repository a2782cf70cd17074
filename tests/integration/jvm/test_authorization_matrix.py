"""The authorization matrix: all APIs in all versions with each permission given and missing, beside Apache Kafka 2.8.2.

Delegation tokens are in test_authorization_of_tokens.py; the two APIs of Kafka 3.0 are compared with Kafka 3.9.1.

Both brokers run AclAuthorizer on a chroot of their own, and every request comes from User:ANONYMOUS.  The ACLs are
written straight into ZooKeeper in Kafka's layout, by hand, so that the test also shows that our broker reads it.  Each
operation has a topic, a group and a transactional id of its own, on which it is the only one allowed; the operations on
the cluster are given one after the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from kctl.protocol import codec, registry
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.broker.releases import versions_of_release
from tests.integration.jvm.side_by_side import Case, SideBySide, side_by_side
from tests.peers import probe
from tests.peers.apache_kafka import LAST_WITH_ZOOKEEPER, OLDEST_JUDGE

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

WITHOUT_PERMISSION = {"api_versions", "sasl_handshake", "sasl_authenticate"}
DELEGATION_TOKENS = {
    "create_delegation_token", "renew_delegation_token", "expire_delegation_token", "describe_delegation_token",
}  # fmt: skip
NEWER_THAN_2_8 = {"describe_transactions", "list_transactions"}
APACHE_FAILS = {("elect_leaders", 0)}
"""Apache Kafka cannot encode an error of the whole request in this version, and closes the connection."""
NONE = "None"
TOPIC_OPERATIONS = (
    NONE, "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs",
)  # fmt: skip
GROUP_OPERATIONS = (NONE, "All", "Read", "Delete", "Describe")
ID_OPERATIONS = (NONE, "All", "Write", "Describe")
CLUSTER_OPERATIONS = (
    NONE, "All", "Create", "Alter", "Describe", "ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite",
)  # fmt: skip
BATCH = build_batch([Record(0, 1_600_000_000_000, b"k", b"v")])
TRANSACTIONAL = build_batch(
    [Record(0, 1_600_000_000_000, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
)


def make(kind: Any, value: Any) -> Any:
    """A message from nested dictionaries and lists."""
    if isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        return kind(**{name: make(hints[name], part) for name, part in value.items()})
    if isinstance(value, list):
        lists = [hint for hint in (kind, *typing.get_args(kind)) if typing.get_origin(hint) is list]
        (element,) = typing.get_args(lists[0])
        return [make(element, part) for part in value]
    return value


def case(api: str, label: str, **fields: Any) -> Case:
    """A request in the newest version."""
    definition = registry.api_named(api)
    return Case(f"{api} {label}", make(definition.request, fields), compared_versions(definition)[-1])


def compared_versions(api: registry.Api) -> range:
    """The versions that both brokers serve."""
    judge = versions_of_release("3.9" if api.name in NEWER_THAN_2_8 else "2.8").get(api.key, range(0))
    return range(max(api.served.start, judge.start), min(api.served.stop, judge.stop))


def in_every_version(each: Case) -> list[Case]:
    """The request in each version that has its fields and that both brokers serve."""
    api = registry.api_of(type(each.request))
    return [
        dataclasses.replace(each, name=f"{each.name} v{version}", version=version)
        for version in compared_versions(api)
        if (api.name, version) not in APACHE_FAILS and can_encode(each.request, version)
    ]


def can_encode(request: Any, version: int) -> bool:
    try:
        codec.encode(request, version)
    except ValueError:
        return False
    return True


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    with authorizing_brokers(tmp_path_factory.mktemp("matrix"), OLDEST_JUDGE) as both:
        prepare(both)
        yield both


@contextlib.contextmanager
def authorizing_brokers(folder: Path, version: str) -> Iterator[SideBySide]:
    port, admin_port = probe.free_port(), probe.free_port()
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    with side_by_side(
        folder,
        version=version,
        properties={
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
        },
        # Its requests to itself are those of a client, so they need another listener with a super user.
        apache_port=port,
        apache_properties={
            "listeners": f"PLAINTEXT://127.0.0.1:{port},ADMIN://127.0.0.1:{admin_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT",
            "inter.broker.listener.name": "ADMIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.admin.plain.sasl.jaas.config": (
                f'{plain} username="admin" password="secret" user_admin="secret";'
            ),
        },
    ) as both:
        yield both


def prepare(both: SideBySide) -> None:
    """Topics, and coordinators that serve."""
    grant(both, ("Cluster", "kafka-cluster", "All"), ("Group", "*", "All"), ("TransactionalId", "*", "All"))
    names = [f"t-{operation}" for operation in TOPIC_OPERATIONS]
    create = case(
        "create_topics",
        "to prepare",
        topics=[
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in names
        ],
        timeout_ms=30_000,
        validate_only=False,
    )
    find = [case("find_coordinator", "to prepare", key="k", key_type=kind) for kind in (0, 1)]
    wait_for(both, [create], lambda response: all(topic.error_code in {0, 36} for topic in response.topics))
    wait_for(both, find, lambda response: not response.error_code)
    # A coordinator that is still loading would respond differently.
    heartbeat = [
        case("heartbeat", "to prepare", group_id=f"g-{operation}", generation_id=1, member_id="m")
        for operation in GROUP_OPERATIONS
    ]
    wait_for(both, heartbeat, lambda response: response.error_code == 25)
    end = [
        case(
            "end_txn", "to prepare", transactional_id=f"x-{operation}", producer_id=1, producer_epoch=0, committed=True
        )
        for operation in ID_OPERATIONS
    ]
    wait_for(both, end, lambda response: response.error_code == 49)
    grant(both, ("Cluster", "kafka-cluster", NONE), ("Group", "*", NONE), ("TransactionalId", "*", NONE))


def wait_for(both: SideBySide, cases: Sequence[Case], is_ready: Callable[[Any], bool]) -> None:
    """Repeats the requests until both brokers respond to every case as expected."""

    def are_ready() -> bool:
        return all(is_ready(response) for answer in both.call(cases) for response in (answer.apache, answer.ours))

    probe.wait_until(are_ready, what=cases[0].name, timeout_s=60)


_numbers = itertools.count()


def grant(both: SideBySide, *rules: tuple[str, str, str]) -> None:
    """Allows User:ANONYMOUS one operation on each resource, or nothing, and waits until both brokers apply it.

    The last rule is about a topic of its own: notifications are read in their order.
    """
    marker = f"marker-{next(_numbers)}"
    with both.zookeepers() as clients:
        for client in clients:
            for kind, name, operation in (*rules, ("Topic", marker, "Describe")):
                path = f"/kafka-acl/{kind}/{name}"
                if operation == NONE:
                    try:
                        client.delete(path)
                    except NoNodeError:
                        continue
                else:
                    entry = {
                        "principal": "User:ANONYMOUS",
                        "permissionType": "Allow",
                        "operation": operation,
                        "host": "127.0.0.1",
                    }
                    data = json.dumps({"version": 1, "acls": [entry]}).encode()
                    client.ensure_path(path)
                    client.set(path, data)
                changed = f"{'TRANSACTIONAL_ID' if kind == 'TransactionalId' else kind.upper()}:{name}"
                client.create("/kafka-acl-changes/acl_changes_", changed.encode(), sequence=True)
    seen = case("metadata", "marker", topics=[{"name": marker}], allow_auto_topic_creation=False)
    wait_for(both, [seen], lambda response: response.topics[0].error_code == 3)


def topic_cases(topic: str) -> list[Case]:
    """What needs an operation on the topic; the group and the transactional id of All allow the rest."""
    group, transactional_id = "g-All", "x-All"
    producer = {"producer_id": 1, "producer_epoch": 0}
    partition = {"partition_index": 0}
    commit = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    data = [{"name": topic, "partition_data": [{"index": 0, "records": BATCH}]}]
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    position = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fetched = [{"topic": topic, "partitions": [position]}]
    time = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    configs = [{"resource_type": 2, "resource_name": topic, "configuration_keys": ["retention.ms"]}]
    altered = [{"resource_type": 2, "resource_name": topic, "configs": [{"name": "retention.ms", "value": "1000"}]}]
    changed = [
        {
            "resource_type": 2,
            "resource_name": topic,
            "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1000"}],
        }
    ]
    epoch = [{"topic": topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    return [
        case("metadata", topic, topics=[{"name": topic}], allow_auto_topic_creation=False),
        case("metadata", f"{topic} with operations", topics=[{"name": topic}], allow_auto_topic_creation=False,
             include_topic_authorized_operations=True),
        case("fetch", topic, max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=fetched),
        case("fetch", f"{topic} as a follower", replica_id=5, max_wait_ms=0, min_bytes=0, max_bytes=1000,
             topics=fetched),
        case("list_offsets", topic, replica_id=-1, topics=time),
        case("offset_for_leader_epoch", topic, topics=epoch),
        case("describe_configs", topic, resources=configs),
        case("alter_configs", topic, resources=altered, validate_only=True),
        case("incremental_alter_configs", topic, resources=changed, validate_only=True),
        case("create_partitions", topic, topics=[{"name": topic, "count": 3, "assignments": None}], timeout_ms=1000,
             validate_only=True),
        case("create_topics", topic, topics=[new], timeout_ms=1000, validate_only=True),
        case("delete_records", topic, topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
             timeout_ms=1000),
        case("describe_producers", topic, topics=[{"name": topic, "partition_indexes": [0]}]),
        case("add_partitions_to_txn", topic, transactional_id=transactional_id, **producer,
             topics=[{"name": name, "partitions": [0]} for name in sorted({topic, "t-Write"})]),
        case("txn_offset_commit", topic, transactional_id=transactional_id, group_id="g-Read", **producer,
             generation_id=-1, member_id="", topics=[{"name": topic, "partitions": [commit]}]),
        case("offset_commit", topic, group_id=group, topics=[{"name": topic, "partitions": [commit]}]),
        case("offset_fetch", topic, group_id=group, topics=[{"name": topic, "partition_indexes": [0]}]),
        case("offset_delete", topic, group_id=group, topics=[{"name": topic, "partitions": [partition]}]),
        case("produce", topic, acks=1, timeout_ms=1000, topic_data=data),
    ]  # fmt: skip


def group_cases(group: str) -> list[Case]:
    member = {"group_id": group, "generation_id": 1, "member_id": "m"}
    commit = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    topics = [{"name": "t-All", "partitions": [commit]}]
    return [
        case("find_coordinator", group, key=group),
        case("join_group", group, group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
               member_id="unknown", protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}]),
        case("sync_group", group, **member, assignments=[]),
        case("heartbeat", group, **member),
        case("leave_group", group, group_id=group, member_id="m"),
        case("leave_group", group, group_id=group, members=[{"member_id": "m"}]),
        case("offset_commit", group, group_id=group, topics=topics),
        case("offset_fetch", group, group_id=group, topics=[{"name": "t-All", "partition_indexes": [0]}]),
        case("describe_groups", group, groups=[group]),
        case("describe_groups", group, groups=[group], include_authorized_operations=True),
        case("offset_delete", group, group_id=group,
             topics=[{"name": "t-All", "partitions": [{"partition_index": 0}]}]),
        case("add_offsets_to_txn", group, transactional_id="x-All", producer_id=1, producer_epoch=0, group_id=group),
        case("txn_offset_commit", group, transactional_id="x-All", group_id=group, producer_id=1, producer_epoch=0,
             generation_id=-1, member_id="", topics=topics),
        case("delete_groups", group, groups_names=[group]),
    ]  # fmt: skip


def transactional_id_cases(name: str) -> list[Case]:
    producer = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0}
    commit = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    data = [{"name": "t-All", "partition_data": [{"index": 0, "records": TRANSACTIONAL}]}]
    return [
        case("find_coordinator", name, key=name, key_type=1),
        case("init_producer_id", name, transactional_id=name, transaction_timeout_ms=0),
        case("add_partitions_to_txn", name, **producer, topics=[{"name": "t-All", "partitions": [0]}]),
        case("add_offsets_to_txn", name, **producer, group_id="g-All"),
        case("end_txn", name, **producer, committed=True),
        case("txn_offset_commit", name, **producer, group_id="g-All", generation_id=-1, member_id="",
             topics=[{"name": "t-All", "partitions": [commit]}]),
        case("produce", f"{name} transactional", transactional_id=name, acks=1, timeout_ms=1000, topic_data=[
            {"name": "t-None", "partition_data": [{"index": 0, "records": TRANSACTIONAL}]}]),
        case("produce", f"{name} without the id", acks=1, timeout_ms=1000, topic_data=data),
        case("produce", f"{name} in a second batch", transactional_id=name, acks=1, timeout_ms=1000, topic_data=[
            {"name": "t-All", "partition_data": [{"index": 0, "records": BATCH + TRANSACTIONAL}]}]),
    ]  # fmt: skip


def cluster_cases(operation: str) -> list[Case]:
    label = f"with {operation}"
    anything = {
        "resource_type_filter": 2, "resource_name_filter": "no such topic", "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    stale = {"controller_id": 0, "controller_epoch": 0, "broker_epoch": -1}
    new = {"name": "created", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    fetched = [{"topic": "t-None", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}]}]
    bad_acl = {
        "resource_type": 3, "resource_name": "", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    quota = {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}
    broker = {"resource_type": 4, "resource_name": "0"}
    logger = {"resource_type": 8, "resource_name": "0"}
    keys = {"configuration_keys": ["log.cleaner.threads"]}
    return [
        case("metadata", label, topics=[], include_cluster_authorized_operations=True),
        case("metadata", f"all {label}", topics=None),
        case("metadata", f"creation {label}", topics=[{"name": f"auto-{operation}"}], allow_auto_topic_creation=True),
        case("describe_cluster", label, include_cluster_authorized_operations=True),
        case("list_groups", label),
        case("create_topics", label, topics=[new], timeout_ms=1000, validate_only=True),
        case("init_producer_id", label, transactional_id=None, transaction_timeout_ms=0),
        case("describe_log_dirs", label, topics=None),
        case("alter_replica_log_dirs", label,
             dirs=[{"path": "/nowhere", "topics": [{"name": "t-None", "partitions": [0]}]}]),
        case("describe_configs", label, resources=[broker | keys, logger | {"configuration_keys": ["no.such"]}]),
        case("alter_configs", label, resources=[broker | {"configs": []}], validate_only=True),
        case("incremental_alter_configs", label, resources=[broker | {"configs": []}, logger | {"configs": []}],
             validate_only=True),
        case("describe_client_quotas", label, components=[], strict=False),
        case("alter_client_quotas", label, entries=[quota], validate_only=True),
        case("describe_user_scram_credentials", label, users=None),
        case("alter_user_scram_credentials", label, deletions=[{"name": "u", "mechanism": 1}], upsertions=[]),
        case("elect_leaders", label, topic_partitions=[{"topic": "t-None", "partitions": [0]}], timeout_ms=1000),
        case("alter_partition_reassignments", label, topics=[], timeout_ms=1000),
        case("list_partition_reassignments", label, topics=None, timeout_ms=1000),
        case("update_features", label, feature_updates=[]),
        case("describe_acls", label, **anything),
        case("create_acls", label, creations=[bad_acl]),
        case("delete_acls", label, filters=[anything]),
        case("leader_and_isr", label, **stale, topic_states=[], live_leaders=[]),
        case("stop_replica", label, **stale, topic_states=[]),
        case("update_metadata", label, **stale, topic_states=[], live_brokers=[]),
        case("controlled_shutdown", label, broker_id=99, broker_epoch=-1),
        case("alter_partition", label, broker_id=99, broker_epoch=-1, topics=[]),
        case("write_txn_markers", label, markers=[
            {"producer_id": 1, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
             "topics": [{"name": "nowhere", "partition_indexes": [0]}]}]),
        case("fetch", f"as a follower {label}", replica_id=5, max_wait_ms=0, min_bytes=0, max_bytes=9,
             topics=fetched),
        case("offset_for_leader_epoch", label,
             topics=[{"topic": "t-None", "partitions": [{"partition": 0, "leader_epoch": 0}]}]),
    ]  # fmt: skip


def repeated_creations() -> list[Case]:
    """Of topics that exist: version 0 cannot only validate."""
    return [
        case(
            "create_topics",
            f"t-{operation} again",
            topics=[
                {
                    "name": f"t-{operation}",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            timeout_ms=1000,
        )
        for operation in TOPIC_OPERATIONS
    ]


def deletions() -> list[Case]:
    """The first version deletes a topic where that is permitted."""
    return [
        case("delete_topics", name, topic_names=[name], timeout_ms=30_000)
        for operation in TOPIC_OPERATIONS
        for name in (f"new-{operation}", f"t-{operation}")
    ]


def verdict(value: Any) -> Any:
    """The part of a response about permissions: all error codes, authorized operations, and what it lists."""
    if dataclasses.is_dataclass(value):
        kept = {}
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if "error_code" in field.name or "authorized_operations" in field.name or field.name in NAMES:
                kept[field.name] = inner
            elif isinstance(inner, list) and inner and dataclasses.is_dataclass(inner[0]):
                kept[field.name] = sorted(map(verdict, inner), key=repr)
        return kept
    return value


NAMES = {"name", "topic", "group_id", "transactional_id", "resource_name", "is_internal", "num_partitions"}


def assert_same_verdicts(both: SideBySide, cases: Sequence[Case]) -> None:
    """Sends each request in every version."""
    every = [request for case in cases for request in in_every_version(case)]
    wrong = []
    for answer in both.call(every):
        apache, ours = verdict(answer.apache), verdict(answer.ours)
        if apache != ours:
            wrong.append(f"{answer.case.name}:\n  apache {apache}\n  ours   {ours}")
    assert not wrong, f"{len(wrong)} of {len(every)}\n" + "\n".join(wrong)


def test_cluster_operations_get_the_same_verdicts(brokers: SideBySide) -> None:
    """First, because a producer that may write to any topic does not need IdempotentWrite.

    CVE-2018-1288: Fetch in the name of a replica needs ClusterAction.
    """
    for operation in CLUSTER_OPERATIONS:
        grant(brokers, ("Cluster", "kafka-cluster", operation))
        assert_same_verdicts(brokers, cluster_cases(operation))
    grant(brokers, ("Cluster", "kafka-cluster", NONE))


def test_topics_groups_and_transactional_ids(brokers: SideBySide) -> None:
    """CVE-2018-17196: a second batch of a partition was written without a check of its transactional id."""
    grant(
        brokers,
        *(("Topic", f"{prefix}-{allowed}", allowed) for prefix in ("t", "new") for allowed in TOPIC_OPERATIONS),
        *(("Group", f"g-{allowed}", allowed) for allowed in GROUP_OPERATIONS),
        *(("TransactionalId", f"x-{allowed}", allowed) for allowed in ID_OPERATIONS),
    )
    cases = [
        case("metadata", "all topics", topics=None),
        case("list_groups", "all groups"),
        case("init_producer_id", "may write to a topic", transactional_id=None, transaction_timeout_ms=0),
    ]
    for operation in TOPIC_OPERATIONS:
        cases += topic_cases(f"t-{operation}") + topic_cases(f"new-{operation}")
    for operation in GROUP_OPERATIONS:
        cases += group_cases(f"g-{operation}")
    for operation in ID_OPERATIONS:
        cases += transactional_id_cases(f"x-{operation}")
    assert_same_verdicts(brokers, cases + repeated_creations() + deletions())


def test_descriptions_and_lists_of_transactions_as_in_kafka_3_9(tmp_path: Path) -> None:
    with authorizing_brokers(tmp_path, LAST_WITH_ZOOKEEPER) as both:
        grant(both, *(("TransactionalId", f"x-{operation}", "All") for operation in ID_OPERATIONS))
        create = [
            case("init_producer_id", "to prepare", transactional_id=f"x-{operation}", transaction_timeout_ms=60_000)
            for operation in ID_OPERATIONS
        ]
        find = [case("find_coordinator", "to prepare", key="x-All", key_type=1)]
        wait_for(both, find + create, lambda response: not response.error_code)
        grant(both, *(("TransactionalId", f"x-{operation}", operation) for operation in ID_OPERATIONS))
        cases = [case("list_transactions", "all", state_filters=[], producer_id_filters=[])]
        cases += [
            case("describe_transactions", operation, transactional_ids=[f"x-{operation}"])
            for operation in ID_OPERATIONS
        ]
        assert {registry.api_of(type(case.request)).name for case in cases} == NEWER_THAN_2_8
        assert_same_verdicts(both, cases)


def test_every_version_of_every_api_is_in_the_matrix() -> None:
    cases = [*topic_cases("t"), *group_cases("g"), *transactional_id_cases("x"), *cluster_cases("c")]
    cases += repeated_creations() + deletions()
    tried = {
        (registry.api_of(type(request.request)).name, request.version)
        for case in cases
        for request in in_every_version(case)
    }
    served = {(api.name, version) for api in registry.all_apis().values() for version in compared_versions(api)}
    left_out = WITHOUT_PERMISSION | DELEGATION_TOKENS | NEWER_THAN_2_8
    assert {version for version in served - tried if version[0] not in left_out} == APACHE_FAILS
    assert not {version for version in tried if version[0] in left_out}
