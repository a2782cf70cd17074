"""kctl's broker responds to administrative requests as Apache Kafka 2.8.2 does, field by field, including invalid
requests.

Where a response is intended to differ, the case gives the reason; an outdated reason fails as well.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.protocol.apis import (
    add_offsets_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_partition_reassignments,
    offset_delete,
    offset_fetch,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    txn_offset_commit,
    update_features,
)
from tests.integration.jvm.side_by_side import APACHE, OURS, Case, SideBySide, assert_same, side_by_side

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

NEWER_THAN_2_8 = {
    65: "DescribeTransactions of Kafka 3.0: `kctl transactions` and Kafka's tool need it",
    66: "ListTransactions of Kafka 3.0: `kctl transactions` and Kafka's tool need it",
    74: "ListConfigResources of Kafka 4.1: Kafka's tools of 4.x list resources with it",
    75: "DescribeTopicPartitions of Kafka 3.8: Java clients of 4.x describe topics with it",
}
"""APIs that kctl's broker serves although a 2.8 broker does not, with the reason."""

INTERNAL_ERROR = "Apache Kafka fails with an internal error and no message; we say what is wrong"

USER, CLIENT, IP = "user", "client-id", "ip"
PRODUCE, CONSUME, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CREATION = "controller_mutation_rate", "connection_creation_rate"
EXACT, DEFAULT, ANY = range(3)
SHA_256, SHA_512 = 1, 2
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND = range(3)


SMALL_INTERNAL_TOPICS = {
    f"{topic}.{name}": "1"
    for topic in ("offsets.topic", "transaction.state.log")
    for name in ("num.partitions", "replication.factor")
} | {"transaction.state.log.min.isr": "1"}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    with side_by_side(tmp_path_factory.mktemp("side-by-side"), properties=SMALL_INTERNAL_TOPICS) as both:
        yield both


def test_all_versions_of_kafka_2_8_are_advertised(brokers: SideBySide) -> None:
    request = api_versions.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    (responses,) = brokers.call([Case("api versions", request)])
    apache, ours = (
        {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        for response in (responses.apache, responses.ours)
    )
    assert all(ours[key][0] <= first and last <= ours[key][1] for key, (first, last) in apache.items())
    assert ours.keys() - apache.keys() == NEWER_THAN_2_8.keys()
    assert responses.apache.finalized_features_epoch == 0
    for name in ("error_code", "supported_features", "finalized_features", "finalized_features_epoch"):
        assert getattr(responses.ours, name) == getattr(responses.apache, name), name


# Requests that a broker without authentication and authorizer refuses.


def acl_filter(**fields: Any) -> dict[str, Any]:
    anything: dict[str, Any] = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 3, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    return anything | fields


def acl(**fields: Any) -> create_acls.AclCreation:
    rule: dict[str, Any] = {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    return create_acls.AclCreation(**(rule | fields))


def describe_token(*owners: str) -> describe_delegation_token.DescribeDelegationTokenRequest:
    named = [
        describe_delegation_token.DescribeDelegationTokenOwner(principal_type="User", principal_name=owner)
        for owner in owners
    ]
    return describe_delegation_token.DescribeDelegationTokenRequest(owners=named)


RENEWERS = [create_delegation_token.CreatableRenewers(principal_type="Group", principal_name="x")]

REFUSED = [
    *(Case(f"handshake {v}", sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), v) for v in (0, 1)),
    Case("handshake without mechanism", sasl_handshake.SaslHandshakeRequest(mechanism="")),
    *(Case(f"auth {v}", sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), v) for v in range(3)),
    Case("auth without bytes", sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"")),
    *(Case(f"describe ACLs {v}", describe_acls.DescribeAclsRequest(**acl_filter()), v) for v in range(3)),
    Case("describe ACLs of a strange type", describe_acls.DescribeAclsRequest(**acl_filter(resource_type_filter=77))),
    Case("describe ACLs of a strange operation", describe_acls.DescribeAclsRequest(**acl_filter(operation=99))),
    *(Case(f"create ACL {v}", create_acls.CreateAclsRequest(creations=[acl()]), v) for v in range(3)),
    Case("create no ACL", create_acls.CreateAclsRequest(creations=[])),
    Case("create the same ACL twice", create_acls.CreateAclsRequest(creations=[acl(), acl()])),
    Case(
        "create an ACL for an invalid principal",
        create_acls.CreateAclsRequest(creations=[acl(principal="x", resource_name="")]),
    ),
    *(
        Case(
            f"delete ACLs {v}", delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**acl_filter())]), v
        )
        for v in range(3)
    ),
    Case("delete no ACLs", delete_acls.DeleteAclsRequest(filters=[])),
    *(
        Case(
            f"create token {v}",
            create_delegation_token.CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1),
            v,
        )
        for v, renewers in ((0, []), (1, []), (2, []), (2, RENEWERS))
    ),
    *(
        Case(f"renew token {v}", renew_delegation_token.RenewDelegationTokenRequest(hmac=b"a", renew_period_ms=-1), v)
        for v in range(3)
    ),
    *(
        Case(
            f"expire token {v}",
            expire_delegation_token.ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=-1),
            v,
        )
        for v in range(3)
    ),
    *(
        Case(f"describe tokens {v}", describe_delegation_token.DescribeDelegationTokenRequest(owners=None), v)
        for v in range(3)
    ),
    Case("describe tokens of nobody", describe_token()),
    Case("describe tokens of the same owner twice", describe_token("ANONYMOUS", "ANONYMOUS")),
]


def test_requests_that_need_authentication_or_an_authorizer_are_refused_alike(brokers: SideBySide) -> None:
    assert_same(brokers.call(REFUSED))


def features(*updates: tuple[str, int, bool]) -> update_features.UpdateFeaturesRequest:
    keys = [
        update_features.FeatureUpdateKey(feature=name, max_version_level=level, allow_downgrade=allow)
        for name, level, allow in updates
    ]
    return update_features.UpdateFeaturesRequest(feature_updates=keys)


def test_updates_of_features_are_refused_alike(brokers: SideBySide) -> None:
    assert_same(
        brokers.call(
            [
                Case("none", features()),
                Case("one that no broker supports", features(("f", 1, False))),
                Case("deletions", features(("f", 0, True), ("g", 0, False), ("h", -1, True))),
                Case("twice the same", features(("f", 1, False), ("f", 1, False))),
                Case("without a name", features(("", 1, True))),
            ]
        )
    )


# Quotas.


def alter(
    *entries: tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]], validate_only: bool = False
) -> alter_client_quotas.AlterClientQuotasRequest:
    """Each entry is an entity and its quotas; None removes one."""
    return alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.RequestEntryData(
                entity=[
                    alter_client_quotas.RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                ops=[
                    alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in quotas
                ],
            )
            for entity, quotas in entries
        ],
        validate_only=validate_only,
    )


def describe(
    *components: tuple[str, int, str | None], strict: bool = False
) -> describe_client_quotas.DescribeClientQuotasRequest:
    return describe_client_quotas.DescribeClientQuotasRequest(
        components=[
            describe_client_quotas.ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )


def alteration(
    name: str,
    entity: Sequence[tuple[str, str | None]],
    *quotas: tuple[str, float | None],
    difference: str | None = None,
) -> Case:
    return Case(name, alter((entity, quotas)), difference=difference)


ODD_NAME = "app 1/ü~*+:%="
QUOTAS_SET = [
    Case("describe when there are none", describe()),
    Case("alter nothing", alter()),
    Case("validate only", alter(([(USER, "validated")], [(PRODUCE, 1.0)]), validate_only=True)),
    Case("validate only, wrong", alter(([(USER, "validated")], [("nope", 1.0)]), validate_only=True)),
    alteration("user", [(USER, "alice")], (PRODUCE, 1024.0), (CONSUME, 2048.0)),
    alteration("user again", [(USER, "alice")], (PRODUCE, None), (REQUEST, 50.25)),
    alteration("default user", [(USER, None)], (PRODUCE, 5e9), (MUTATION, 100_000.5)),
    alteration("client", [(CLIENT, ODD_NAME)], (PRODUCE, 10.0)),
    alteration("default client", [(CLIENT, None)], (CONSUME, 11e9)),
    alteration("user and client", [(USER, "alice"), (CLIENT, "app")], (PRODUCE, 12.0)),
    alteration("client and user", [(CLIENT, "app2"), (USER, "bob")], (PRODUCE, 13.0)),
    alteration("user and default client", [(USER, "alice"), (CLIENT, None)], (PRODUCE, 14.0)),
    alteration("both default", [(USER, None), (CLIENT, None)], (PRODUCE, 15e9)),
    alteration("default user and client", [(USER, None), (CLIENT, "app")], (PRODUCE, 16.0)),
    alteration("address", [(IP, "10.0.0.1")], (CREATION, 17.0)),
    alteration("default address", [(IP, None)], (CREATION, 18_000.0)),
    alteration("host name", [(IP, "localhost")], (CREATION, 19_000.0)),
    alteration("IPv6 address", [(IP, "::1")], (CREATION, 17.0)),
    alteration("unknown host", [(IP, "no such host!")], (CREATION, 17.0)),
    alteration("empty address", [(IP, "")], (CREATION, 17.0)),
    alteration("address with a quota of users", [(IP, "10.0.0.2")], (PRODUCE, 17.0)),
    alteration("address and user", [(IP, "10.0.0.2"), (USER, "x")], (CREATION, 17.0)),
    alteration("user with a quota of addresses", [(USER, "x")], (CREATION, 17.0)),
    alteration("unknown key", [(USER, "x")], ("nope", 17.0)),
    alteration("credential as quota", [(USER, "x")], ("SCRAM-SHA-256", 17.0), difference=INTERNAL_ERROR),
    alteration("one wrong of two keys", [(USER, "half")], (PRODUCE, 1.0), ("nope", 1.0)),
    alteration("remove an unknown key", [(USER, "unknown-key")], ("nope", None)),
    alteration("remove what is not set", [(USER, "nobody")], (PRODUCE, None)),
    alteration("no quotas", [(USER, "no-quotas")]),
    alteration("the same type twice", [(USER, "a"), (USER, "b")], (PRODUCE, 1.0)),
    alteration("the same key twice", [(USER, "twice")], (PRODUCE, 1.0), (PRODUCE, 2.0)),
    alteration("set and remove", [(USER, "set-and-remove")], (PRODUCE, 1.0), (PRODUCE, None)),
    Case("the same entity twice", alter(([(USER, "two")], [(PRODUCE, 1.0)]), ([(USER, "two")], [(CONSUME, 2.0)]))),
    Case("one wrong of two entities", alter(([(USER, "good")], [(PRODUCE, 1.0)]), ([("group", "g")], []))),
    alteration("no entity", [], (PRODUCE, 1.0)),
    alteration("empty user", [(USER, "")], (PRODUCE, 1.0)),
    alteration("empty client", [(CLIENT, "")], (PRODUCE, 1.0)),
    alteration("empty type", [("", "g")], (PRODUCE, 1.0)),
    alteration("a user called <default>", [(USER, "<default>")], (PRODUCE, 99.0)),
    alteration("a client called <default>", [(CLIENT, "<default>")], (PRODUCE, 98.0)),
]
VALUES = [
    *(
        alteration(f"{key} {value}", [(USER, f"{key} {value}")], (key, value))
        for key in (PRODUCE, REQUEST, MUTATION)
        for value in (
            0.0, -1.0, 1.5, 1.0000001, 1.001, 0.1, 0.001, 1e-5, 1e7, 123456789.125, 1e15, 2.0**63, 1e22, -1e30, 1e30,
            1.7976931348623157e308, math.nan, math.inf, -math.inf,
        )
    ),
    *(
        alteration(f"{CREATION} {value}", [(IP, f"10.0.1.{number}")], (CREATION, value))
        for number, value in enumerate((0.0, -1.0, 1.5, 1.0000001, 2.0**31 - 1, 2.0**31, 3e9, -3e9, math.nan, math.inf))
    ),
]  # fmt: skip
QUOTAS_DESCRIBED = [
    *(Case(f"everything {v}", describe(), v) for v in (0, 1)),
    Case("nothing", describe(strict=True)),
    *(
        Case(f"{components} strict={strict}", describe(*components, strict=strict))
        for strict in (False, True)
        for components in (
            [(USER, ANY, None)], [(USER, DEFAULT, None)], [(USER, EXACT, "alice")], [(USER, EXACT, "who")],
            [(USER, EXACT, "<default>")], [(USER, DEFAULT, "alice")], [(USER, ANY, "alice")],
            [(CLIENT, ANY, None)], [(CLIENT, DEFAULT, None)], [(CLIENT, EXACT, "app")], [(CLIENT, EXACT, ODD_NAME)],
            [(USER, ANY, None), (CLIENT, ANY, None)], [(USER, EXACT, "alice"), (CLIENT, EXACT, "app")],
            [(USER, EXACT, "alice"), (CLIENT, DEFAULT, None)], [(USER, DEFAULT, None), (CLIENT, DEFAULT, None)],
            [(CLIENT, DEFAULT, None), (USER, ANY, None)], [(USER, DEFAULT, None), (CLIENT, ANY, None)],
            [(IP, ANY, None)], [(IP, DEFAULT, None)], [(IP, EXACT, "10.0.0.1")], [(IP, EXACT, "no such host!")],
        )
    ),
    Case("a user without a name", describe((USER, EXACT, ""))),
    Case("strictly a user without a name", describe((USER, EXACT, ""), strict=True), difference=INTERNAL_ERROR),
    Case("address and user", describe((IP, ANY, None), (USER, ANY, None))),
    Case("the same type twice", describe((USER, EXACT, "a"), (USER, DEFAULT, None))),
    Case("unknown type", describe((USER, ANY, None), ("group", ANY, None))),
    Case("empty type", describe(("", ANY, None))),
    Case("unknown match type", describe((USER, 9, None)), difference=INTERNAL_ERROR),
    Case("exactly nobody", describe((USER, EXACT, None)), difference=INTERNAL_ERROR),
]  # fmt: skip


def test_quotas_are_altered_described_and_stored_as_by_apache_kafka(brokers: SideBySide) -> None:
    assert_same(brokers.call([*QUOTAS_SET, *VALUES]))
    assert_same(brokers.call(QUOTAS_DESCRIBED))
    assert_stored_alike(brokers, "/config/clients", "/config/ips")


# SCRAM.


def scram(
    deletions: Sequence[tuple[str, int]] = (), upsertions: Sequence[tuple[str, int, int, bytes, bytes]] = ()
) -> alter_user_scram_credentials.AlterUserScramCredentialsRequest:
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[
            alter_user_scram_credentials.ScramCredentialDeletion(name=name, mechanism=mechanism)
            for name, mechanism in deletions
        ],
        upsertions=[
            alter_user_scram_credentials.ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=password
            )
            for name, mechanism, iterations, salt, password in upsertions
        ],
    )


def describe_users(*names: str) -> describe_user_scram_credentials.DescribeUserScramCredentialsRequest:
    users = [describe_user_scram_credentials.UserName(name=name) for name in names]
    return describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=users)


def credential(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> tuple[str, int, int, bytes, bytes]:
    return user, mechanism, iterations, b"salt", b"password"


ALL_USERS = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
ENCODED = "Apache Kafka 2.8 answers names as they are encoded in ZooKeeper; we answer the names"
CREDENTIALS = [
    Case("nothing", scram()),
    Case("describe all when there are none", ALL_USERS),
    Case("describe unknown and empty users", describe_users("who", "", "alice")),
    Case("describe a user twice", describe_users("who", "who", "x")),
    Case("add", scram(upsertions=[credential("sam")])),
    Case("add another mechanism", scram(upsertions=[credential("sam", SHA_512, 8192)])),
    Case("replace", scram(upsertions=[credential("sam", SHA_256, 16_384)])),
    Case("describe", describe_users("sam", "who")),
    *(Case(f"mechanism {n}", scram(upsertions=[credential(f"m{n}", n)])) for n in (-1, 0, 3)),
    Case("delete an unknown mechanism", scram([("sam", 3)])),
    *(Case(f"{n} iterations", scram(upsertions=[credential(f"i{n}", 2, n)])) for n in (-1, 4095, 4096, 16_384, 16_385)),
    Case("empty user", scram([("", SHA_256)], [credential("", SHA_512, 1)])),
    Case("empty salt", scram(upsertions=[("no-salt", SHA_256, 4096, b"", b"password")])),
    Case(
        "empty password",
        scram(upsertions=[("no-password", SHA_256, 4096, b"salt", b"")]),
        difference="Apache Kafka fails with an internal error; we answer UNACCEPTABLE_CREDENTIAL",
    ),
    Case("describe without salt or password", describe_users("no-salt", "no-password")),
    Case("delete what is not there", scram([("who", SHA_256)])),
    Case("the same twice", scram(upsertions=[credential("twice"), credential("twice")])),
    Case("add and delete the same", scram([("sam", SHA_256)], [credential("sam")])),
    Case("delete the same twice", scram([("sam", SHA_256), ("sam", SHA_256)])),
    Case("two mechanisms", scram(upsertions=[credential("both"), credential("both", SHA_512)])),
    Case("delete one and replace the other", scram([("both", SHA_256)], [credential("both", SHA_512, 9000)])),
    Case("describe what is left", describe_users("both", "twice")),
    Case("good and bad", scram(upsertions=[credential("g"), credential("h", 1, 1), credential("k", 9)])),
    Case("good and bad of one user", scram(upsertions=[credential("mixed"), credential("mixed", SHA_512, 1)])),
    Case("delete what is not there and add", scram([("mixed", SHA_256)], [credential("mixed", SHA_512)])),
    Case("twice and bad", scram([("bad", 9)], [credential("bad", 9)])),
    Case("bad twice", scram([("bad", 9)], [credential("bad", SHA_256, 1)])),
    Case("delete", scram([("g", SHA_256)])),
    Case("describe a user whose credentials are deleted", describe_users("g")),
    Case("describe all", ALL_USERS),
    Case("odd names", scram(upsertions=[credential(ODD_NAME), credential("<default>")])),
    Case("describe odd names", describe_users(ODD_NAME, "<default>")),
    Case("describe all with odd names", ALL_USERS, difference=ENCODED),
    alteration("a quota beside credentials", [(USER, "sam")], (PRODUCE, 7.0)),
    Case("credentials beside a quota", describe_users("sam")),
]


def test_credentials_are_altered_described_and_stored_as_by_apache_kafka(brokers: SideBySide) -> None:
    assert_same(brokers.call(CREDENTIALS))
    assert_stored_alike(brokers, "/config/users")


def assert_stored_alike(brokers: SideBySide, *folders: str) -> None:
    """Both have the same znodes with the same configuration, and notifications about the same entities."""
    for folder in folders:
        apache, ours = (configs(brokers, who, folder) for who in (APACHE, OURS))
        assert ours == apache
    announced = [
        {json.loads(data)["entity_path"] for data in brokers.stored(who, "/config/changes").values() if data}
        for who in (OURS, APACHE)
    ]
    assert announced[0] == announced[1]


def configs(brokers: SideBySide, who: str, folder: str) -> dict[str, object]:
    stored = brokers.stored(who, folder)
    return {path: json.loads(data) if data else None for path, data in stored.items()}


# Topics, configurations and reassignments: error messages and codes of success and of failure.


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def null_topic(name: str, count: int = 1, **configs: str) -> create_topics.CreatableTopic:
    """A topic with a property without a value."""
    requested = topic(name, count, 1, **configs)
    requested.configs.append(create_topics.CreatableTopicConfig(name="flush.ms", value=None))
    return requested


def create(*topics: create_topics.CreatableTopic) -> create_topics.CreateTopicsRequest:
    return create_topics.CreateTopicsRequest(topics=list(topics), timeout_ms=10_000)


def describe_config(resource_type: int, name: str, *keys: str) -> describe_configs.DescribeConfigsRequest:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys)
    )
    return describe_configs.DescribeConfigsRequest(resources=[resource])


def replace(resource_type: int, name: str, **configs: str) -> alter_configs.AlterConfigsRequest:
    return alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    alter_configs.AlterableConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        validate_only=False,
    )


def replace_with_null(resource_type: int, name: str, key: str) -> alter_configs.AlterConfigsRequest:
    request = replace(resource_type, name)
    request.resources[0].configs.append(alter_configs.AlterableConfig(name=key, value=None))
    return request


def change(
    resource_type: int, name: str, *operations: tuple[int, str, str | None]
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                    for operation, key, value in operations
                ],
            )
        ],
        validate_only=False,
    )


def grow(name: str, count: int) -> create_partitions.CreatePartitionsRequest:
    grown = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return create_partitions.CreatePartitionsRequest(topics=[grown], timeout_ms=10_000, validate_only=False)


def reassign(name: str) -> alter_partition_reassignments.AlterPartitionReassignmentsRequest:
    """A reassignment to cancel, one to a broker that does not exist, and one of a partition that does not exist."""
    partitions = [
        alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
        for index, replicas in ((0, None), (1, [9]), (9, [0]))
    ]
    moved = alter_partition_reassignments.ReassignableTopic(name=name, partitions=partitions)
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=5000)


IS_DEFAULT = "Apache Kafka 2.8 returns is_default=false for every value in version 0; kctl returns the actual value"
TOPICS = [
    *(Case(f"create {v}", create(topic(f"t{v}"), topic("bad name"), topic("")), v) for v in range(8)),
    Case("create twice", create(topic("twice"), topic("twice"))),
    Case("create what exists", create(topic("t0"))),
    Case("create without partitions", create(topic("z", 0))),
    Case("create without replicas", create(topic("z", 1, 0))),
    Case("create with too many replicas", create(topic("z", 1, 9))),
    Case("create with an unknown property", create(topic("z", nope="1"))),
    Case("create with a wrong value", create(topic("z", retention_ms="x"))),
    Case("create with a null value", create(null_topic("z"), topic("bad name"))),
    Case("create with a null value what exists", create(null_topic("t0"))),
    Case("create with a null value and an unknown property", create(null_topic("z", nope="1"))),
    Case("create with a null value and without partitions", create(null_topic("z", count=0))),
    Case("create nothing", create()),
    *(
        Case(
            f"describe configuration {kind} {name!r} {v}",
            describe_config(kind, name, *keys),
            v,
            IS_DEFAULT if v == 0 and (kind, name) in {(TOPIC, "t0"), (BROKER, "0")} else None,
        )
        for v in range(5)
        for kind, name, keys in (
            (TOPIC, "t0", ("flush.ms", "nope")),
            (BROKER, "0", ("background.threads",)),
            (BROKER, "", ("background.threads",)),
            (LOGGER, "0", ("kafka.server.KafkaApis", "kafka.request.logger", "nope")),
            (TOPIC, "", ()),
            (TOPIC, "bad name", ()),
            (TOPIC, "nowhere", ()),
            (BROKER, "7", ()),
            (BROKER, "x", ()),
            (LOGGER, "", ()),
            (LOGGER, "7", ()),
            (3, "a", ()),
        )
    ),
    *(Case(f"replace {v}", replace(TOPIC, "t0", flush_ms="5"), v) for v in range(3)),
    Case("replace of nowhere", replace(TOPIC, "nowhere")),
    Case("replace of no topic", replace(TOPIC, "")),
    Case("replace of another broker", replace(BROKER, "7")),
    Case("replace of a strange broker", replace(BROKER, "x")),
    Case("replace with null", replace_with_null(TOPIC, "t0", "flush.ms"), difference=INTERNAL_ERROR),
    Case("replace with null of nowhere", replace_with_null(TOPIC, "nowhere", "flush.ms"), difference=INTERNAL_ERROR),
    Case("replace with null of an unknown property", replace_with_null(TOPIC, "t0", "nope"), difference=INTERNAL_ERROR),
    Case(
        "replace with null of a broker", replace_with_null(BROKER, "0", "background.threads"), difference=INTERNAL_ERROR
    ),
    Case(
        "replace with null of another broker",
        replace_with_null(BROKER, "7", "background.threads"),
        difference=INTERNAL_ERROR,
    ),
    Case("replace with null of levels", replace_with_null(LOGGER, "0", "root"), difference=INTERNAL_ERROR),
    Case("replace levels", replace(LOGGER, "0", root="INFO")),
    Case("replace unknown property", replace(TOPIC, "t0", nope="1")),
    Case("replace wrong value", replace(TOPIC, "t0", flush_ms="x")),
    Case("replace what a broker cannot change", replace(BROKER, "0", broker_rack="x")),
    *(Case(f"set {v}", change(TOPIC, "t0", (SET, "flush.ms", "6")), v) for v in (0, 1)),
    Case("set of nowhere", change(TOPIC, "nowhere", (SET, "flush.ms", "6"))),
    Case("set of no topic", change(TOPIC, "", (SET, "flush.ms", "6"))),
    Case("set unknown property", change(TOPIC, "t0", (SET, "nope", "6"))),
    Case("set wrong value", change(TOPIC, "t0", (SET, "flush.ms", "x"))),
    Case("set null", change(TOPIC, "t0", (SET, "flush.ms", None))),
    Case("set null of nowhere", change(TOPIC, "nowhere", (SET, "flush.ms", None))),
    Case("set null of an unknown property", change(TOPIC, "t0", (SET, "nope", None))),
    Case("append null", change(TOPIC, "t0", (APPEND, "cleanup.policy", None))),
    Case("set null of a broker", change(BROKER, "0", (SET, "background.threads", None))),
    Case("set null of another broker", change(BROKER, "7", (SET, "background.threads", None))),
    Case("delete with a value", change(TOPIC, "t0", (DELETE, "flush.ms", "7"))),
    Case("set twice", change(TOPIC, "t0", (SET, "flush.ms", "6"), (DELETE, "flush.ms", None))),
    Case("append to no list", change(TOPIC, "t0", (APPEND, "flush.ms", "6"))),
    Case("append to the unknown", change(TOPIC, "t0", (APPEND, "nope", "6")), difference=INTERNAL_ERROR),
    Case("unknown operation", change(TOPIC, "t0", (9, "flush.ms", "6")), difference=INTERNAL_ERROR),
    Case("delete", change(TOPIC, "t0", (DELETE, "flush.ms", None))),
    Case("set for another broker", change(BROKER, "7", (SET, "background.threads", "6"))),
    *(
        Case(f"set {name} without a listener for broker '{broker}'", change(BROKER, broker, (SET, name, "PEM")))
        for name in ("ssl.keystore.location", "ssl.truststore.type", "ssl.keystore.certificate.chain")
        for broker in ("0", "")
    ),
    Case("set a key store of a listener", change(BROKER, "0", (SET, "listener.name.other.ssl.keystore.type", "PEM"))),
    *(
        Case(f"level {operation}", change(LOGGER, "0", operation))
        for operation in (
            (SET, "kafka.server.KafkaApis", "WARN"),
            (SET, "root", "LOUD"),
            (SET, "root", "info"),
            (SET, "root", None),
            (SET, "no.such.logger", "INFO"),
            (DELETE, "root", None),
            (APPEND, "root", "INFO"),
        )
    ),
    Case("level that is set", describe_config(LOGGER, "0", "kafka.server.KafkaApis")),
    Case("level of another broker", change(LOGGER, "7", (SET, "root", "INFO"))),
    *(Case(f"grow of nowhere {v}", grow("nowhere", 3), v) for v in range(4)),
    Case("grow", grow("t0", 2)),
    Case("shrink", grow("t0", 1)),
    Case("grow to nothing", grow("t0", -1)),
    Case(
        "reassign nothing",
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[], timeout_ms=5000),
    ),
    Case("reassign", reassign("t0")),
    Case("reassign nowhere", reassign("nowhere")),
    Case(
        "list reassignments",
        list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000),
    ),
    *(
        Case(
            f"elect {v}",
            elect_leaders.ElectLeadersRequest(
                topic_partitions=[
                    elect_leaders.TopicPartitions(topic=name, partitions=[0, 99]) for name in ("t0", "nowhere")
                ],
                timeout_ms=5000,
            ),
            v,
        )
        for v in range(3)
    ),
    Case(
        "producers",
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=name, partition_indexes=[0, 99]) for name in ("t0", "nowhere")]
        ),
    ),
    Case("cluster", describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)),
    *(
        Case(f"delete {v}", delete_topics.DeleteTopicsRequest(topic_names=[f"t{v}"], timeout_ms=10_000), v)
        for v in (1, 5)
    ),
    Case("delete nowhere", delete_topics.DeleteTopicsRequest(topic_names=["nowhere"], timeout_ms=10_000), 5),
]


NO_TOPICS = describe_log_dirs.DescribeLogDirsRequest(topics=[])
ALL_TOPICS = describe_log_dirs.DescribeLogDirsRequest(topics=None)
NO_PARTITIONS = describe_log_dirs.DescribeLogDirsRequest(
    topics=[describe_log_dirs.DescribableLogDirTopic(topic="logged", partitions=[])]
)


def test_the_same_logs_are_described_for_no_topics_all_topics_and_no_partitions(brokers: SideBySide) -> None:
    described = [
        Case(f"describe {name} {v}", request, v)
        for name, request in (("no topics", NO_TOPICS), ("all", ALL_TOPICS), ("no partitions", NO_PARTITIONS))
        for v in range(3)
    ]
    for answer in brokers.call([Case("create", create(topic("logged"))), *described])[1:]:
        apache, ours = (
            {
                (described_topic.name, partition.partition_index)
                for result in response.results
                for described_topic in result.topics
                for partition in described_topic.partitions
            }
            for response in (answer.apache, answer.ours)
        )
        # Apache Kafka 2.8 also names all other topics, without partitions; ours, as later versions, does not.
        assert ours == apache, answer.case.name
        assert (("logged", 0) in ours) == ("all" in answer.case.name)
        assert all(described_topic.partitions for result in answer.ours.results for described_topic in result.topics)


# Groups with commits in an open transaction.

GROUP, TRANSACTIONAL_ID = "in-transaction", "transaction"


def new_producer(brokers: SideBySide) -> dict[str, Any]:
    """Waits for the coordinators of both brokers; returns the producer, which is the same on both."""
    unknown = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=TRANSACTIONAL_ID, group_id=GROUP, producer_id=9, producer_epoch=0
    )
    waiting = [
        Case("find group", find_coordinator.FindCoordinatorRequest(key=GROUP, key_type=0)),
        Case("find transaction", find_coordinator.FindCoordinatorRequest(key=TRANSACTIONAL_ID, key_type=1)),
        Case("fetch", offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=None)),
        Case("add", unknown),
    ]
    ready = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    deadline_s = time.monotonic() + 60
    while True:
        found = brokers.call(waiting)
        if all([getattr(answer, who).error_code for answer in found] == ready for who in (APACHE, OURS)):
            break
        assert time.monotonic() < deadline_s, found
    init = init_producer_id.InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
    responses = brokers.call([Case("init", init)])
    assert_same(responses)
    ours = responses[0].ours
    assert ours.error_code == ErrorCode.NONE
    return {
        "transactional_id": TRANSACTIONAL_ID,
        "producer_id": ours.producer_id,
        "producer_epoch": ours.producer_epoch,
    }


def delete_offsets(*partitions: int) -> offset_delete.OffsetDeleteRequest:
    indexes = [offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    topics = [offset_delete.OffsetDeleteRequestTopic(name="committed", partitions=indexes)]
    return offset_delete.OffsetDeleteRequest(group_id=GROUP, topics=topics)


def test_groups_with_commits_in_an_open_transaction_are_known_alike(brokers: SideBySide) -> None:
    producer = new_producer(brokers)
    commits = txn_offset_commit.TxnOffsetCommitRequest(
        group_id=GROUP,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name="committed",
                partitions=[
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=""
                    )
                ],
            )
        ],
        **producer,
    )
    described = Case("describe", describe_groups.DescribeGroupsRequest(groups=[GROUP]), 5)
    fetched = Case("fetch", offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=None))
    deleted = Case("delete offsets", delete_offsets(0, 9))
    added = Case("add", add_offsets_to_txn.AddOffsetsToTxnRequest(group_id=GROUP, **producer))
    group_deleted = Case("delete group", delete_groups.DeleteGroupsRequest(groups_names=[GROUP]))
    before = [Case("create", create(topic("committed"))), described, deleted, added, Case("commit", commits)]
    ended = Case("end", end_txn.EndTxnRequest(committed=True, **producer))
    without_offsets = [deleted, described, deleted, Case("commit again", commits), fetched]
    responses = brokers.call(
        [*before, described, *without_offsets, group_deleted, described, deleted, group_deleted, ended]
    )
    assert_same(responses)
    assert [response.ours.error_code for response in responses if response.case is deleted] == [69, 0, 0, 69]


LOGGERS_WITHOUT_COUNTERPART = frozenset(
    {
        "com.yammer.metrics.reporting.JmxReporter",
        "kafka.log.LogConfig",
        "kafka.utils.CoreUtils$",
        "kafka.utils.FileLock",
        "kafka.utils.Log4jControllerRegistration$",
        "org.apache.zookeeper.ClientCnxnSocket",
        "org.apache.zookeeper.CreateMode",
        "org.apache.zookeeper.SaslServerPrincipal",
    }
)
"""Loggers of an Apache Kafka broker about what does not exist here."""
PACKAGES_WITHOUT_COUNTERPART = (
    "kafka.server.FinalizedFeature",
    "org.apache.kafka.clients.",
    "org.apache.kafka.common.",
    "org.apache.zookeeper.client.",
    "org.apache.zookeeper.common.",
    "org.apache.zookeeper.server.",
)


def test_the_loggers_of_apache_kafka_are_known_by_their_names(brokers: SideBySide) -> None:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=LOGGER, resource_name="0", configuration_keys=None
    )
    [described] = brokers.call([Case("all loggers", describe_configs.DescribeConfigsRequest(resources=[resource]))])
    theirs, ours = (
        {entry.name for entry in response.results[0].configs} for response in (described.apache, described.ours)
    )
    assert "kafka.server.KafkaApis" in theirs
    unknown = theirs - ours - LOGGERS_WITHOUT_COUNTERPART
    assert {name for name in unknown if not name.startswith(PACKAGES_WITHOUT_COUNTERPART)} == set()


def test_error_codes_and_messages_equal_those_of_apache_kafka(brokers: SideBySide) -> None:
    assert_same(brokers.call(TOPICS))
