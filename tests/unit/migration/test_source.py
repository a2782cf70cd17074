"""The znodes of a cluster become one value; what is wrong in them is named, and does not hide the rest."""

from __future__ import annotations

from uuid import UUID

import pytest

from kctl.errors import UsageError
from kctl.migration.source import reading
from kctl.migration.source.cluster import Entity, GroupOffset, ScramUser, Znode, digest_of, parse_cluster
from kctl.migration.source.reading import read_znodes
from kctl.model import Endpoint, LeaderAndIsr, TopicPartition
from kctl.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kctl.security.scram import Mechanism, ScramCredential, credential_text
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper
from kctl.zookeeper import paths, security_znodes, znodes
from kctl.zookeeper.broker_znodes import BrokerRegistration, encode_broker

TOPIC_ID = UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")
CREDENTIAL = ScramCredential(b"salt", b"k" * 32, b"s" * 32, 4096)
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
TOKEN = security_znodes.TokenZnode("token-1", "User:alice", ("User:bob",), 1, 2, 3)
STATE = LeaderAndIsr(1, 4, (1,), 2, 0)

WRITTEN: dict[str, bytes] = {
    paths.CLUSTER_ID: znodes.encode_cluster_id("hlZvm3HcREaNlFbi3Oavtw"),
    paths.CONTROLLER_EPOCH: znodes.encode_controller_epoch(7),
    paths.broker(1): encode_broker(BrokerRegistration((Endpoint("PLAINTEXT", "kafka", 9092),), 1)),
    paths.topic("orders"): znodes.encode_topic(znodes.TopicAssignment({0: (1, 2), 1: (2, 1)}, TOPIC_ID, {0: (2,)}, {})),
    paths.partition_state("orders", 0): znodes.encode_partition_state(STATE),
    paths.topic_config("orders"): znodes.encode_config({"retention.ms": "1000"}),
    paths.topic_config("gone"): znodes.encode_config({"retention.ms": "1"}),
    paths.broker_config(None): znodes.encode_config({"log.cleaner.threads": "2"}),
    paths.broker_config(1): znodes.encode_config({"num.io.threads": "3"}),
    "/config/users/a%20b": znodes.encode_config(
        {"SCRAM-SHA-256": credential_text(CREDENTIAL), "producer_byte_rate": "5"}
    ),
    "/config/users/<default>/clients/c": znodes.encode_config({"request_percentage": "50"}),
    "/config/clients/<default>": znodes.encode_config({"consumer_byte_rate": "6"}),
    "/config/ips/10.0.0.1": znodes.encode_config({"connection_creation_rate": "7"}),
    "/kafka-acl/Topic/orders": security_znodes.encode_entries([READ]),
    "/kafka-acl-extended/prefixed/Group/team-": security_znodes.encode_entries([READ]),
    paths.delegation_token("token-1"): security_znodes.encode_token(TOKEN),
    paths.LATEST_PRODUCER_ID_BLOCK: znodes.encode_producer_id_block(znodes.ProducerIdBlock(1, 1000, 1999)),
    paths.delete_topic("old"): b"",
    paths.REASSIGN_PARTITIONS: znodes.encode_reassignment({TopicPartition("orders", 1): (1,)}),
    paths.consumer_offset("old-group", "orders", 0): b"12",
    "/hbase/secret": b"not Kafka's",
}


def _read(written: dict[str, bytes]) -> dict[str, Znode]:
    """What the session reads after the znodes were written, with their parents."""

    async def main(_: SimLoop) -> dict[str, Znode]:
        session = SimZooKeeper().session()
        await session.start(1000)
        for path, data in written.items():
            await session.create(path, data, make_parents=True)
        return await read_znodes(session)

    return simulate(main, seed=1)


def test_everything_that_a_cluster_stores_is_in_the_value() -> None:
    cluster = parse_cluster(_read(WRITTEN))
    assert cluster.problems == ()
    assert (cluster.cluster_id, cluster.controller_epoch) == ("hlZvm3HcREaNlFbi3Oavtw", 7)
    assert cluster.brokers[1].endpoints[0].host == "kafka"
    topic = cluster.topics["orders"]
    assert (topic.assignment.topic_id, topic.assignment.adding_replicas) == (TOPIC_ID, {0: (2,)})
    assert (topic.states, topic.config) == ({0: STATE}, {"retention.ms": "1000"})
    assert cluster.topic_configs_without_topic == {"gone": {"retention.ms": "1"}}
    assert cluster.broker_configs == {None: {"log.cleaner.threads": "2"}, 1: {"num.io.threads": "3"}}
    assert cluster.scram == {ScramUser("a b", Mechanism.SCRAM_SHA_256): CREDENTIAL}
    assert cluster.quotas == {
        Entity((("user", "a b"),)): {"producer_byte_rate": "5"},
        Entity((("user", None), ("client-id", "c"))): {"request_percentage": "50"},
        Entity((("client-id", None),)): {"consumer_byte_rate": "6"},
        Entity((("ip", "10.0.0.1"),)): {"connection_creation_rate": "7"},
    }
    assert cluster.acls == (
        AclBinding(ResourcePattern(ResourceType.TOPIC, "orders"), READ),
        AclBinding(ResourcePattern(ResourceType.GROUP, "team-", PatternType.PREFIXED), READ),
    )
    assert cluster.tokens == (TOKEN,)
    assert cluster.producer_id_block == znodes.ProducerIdBlock(1, 1000, 1999)
    assert (cluster.pending_deletions, cluster.pending_reassignment) == (
        frozenset({"old"}),
        {TopicPartition("orders", 1): (1,)},
    )
    assert cluster.group_offsets == {GroupOffset("old-group", "orders", 0): 12}
    assert cluster.unknown == ("/hbase",)


def test_znodes_of_other_programs_are_not_descended_into() -> None:
    assert "/hbase" in _read(WRITTEN)
    assert "/hbase/secret" not in _read(WRITTEN)


def test_each_znode_that_cannot_be_parsed_is_named_and_the_others_are_read() -> None:
    damaged = {
        paths.topic("broken"): b"{}",
        paths.partition_state("orders", 1): b"{}",
        paths.topic_config("orders"): b"password=hunter2",
        "/config/users/carol": znodes.encode_config({"SCRAM-SHA-512": "salt=hunter2"}),
        "/kafka-acl/Topic/orders": b"[]",
        "/kafka-acl/Planet/earth": security_znodes.encode_entries([READ]),
        "/brokers/ids/one": b"",
        "/consumers/g/offsets/orders/0": b"many",
    }
    cluster = parse_cluster({path: Znode(data) for path, data in _with_parents(WRITTEN | damaged).items()})
    named = {problem.path for problem in cluster.problems}
    assert named == {
        *(path for path in damaged if path != "/kafka-acl/Planet/earth"),
        "/kafka-acl/Planet",
    }
    assert "orders" in cluster.topics
    assert not [problem for problem in cluster.problems if "hunter2" in problem.message]


def test_the_digest_follows_what_is_carried_and_nothing_else() -> None:
    whole = _read(WRITTEN)
    digest = digest_of(whole)
    other = {
        "/brokers/seqid": Znode(b"5"),
        "/hbase": Znode(b"x"),
        "/consumers/g": Znode(b"x"),
        "/brokers/ids/9": Znode(b"{}", is_ephemeral=True),
    }
    assert digest_of(whole | other) == digest
    state = paths.partition_state("orders", 0)
    assert digest_of(whole | {state: Znode(whole[state].data, whole[state].version + 1)}) != digest
    assert digest_of(whole | {"/config/topics/new": Znode(b"{}")}) != digest


def test_a_repr_has_no_secret() -> None:
    whole = _read(WRITTEN)
    assert "stored_key" not in repr(whole)
    assert "stored_key" not in repr(parse_cluster(whole))


def test_more_znodes_than_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ZNODES_MAX", 20)
    with pytest.raises(UsageError, match="more than 20 znodes"):
        _read(WRITTEN)


def _with_parents(written: dict[str, bytes]) -> dict[str, bytes]:
    whole = {"/": b""}
    for path in written:
        steps = path.split("/")[1:-1]
        for end in range(1, len(steps) + 1):
            whole.setdefault("/" + "/".join(steps[:end]), b"")
    return whole | written
