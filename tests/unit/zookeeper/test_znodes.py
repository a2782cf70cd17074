"""Znodes are written as by Apache Kafka, and all of its versions are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import pytest

from kctl.limits import PARTITIONS_PER_TOPIC_MAX
from kctl.model import Endpoint, LeaderAndIsr, TopicPartition
from kctl.zookeeper import broker_znodes, znodes
from kctl.zookeeper.broker_znodes import BrokerRegistration, decode_broker, encode_broker
from tests.rows import for_rows

HERE = "/somewhere"
TOPIC_ID = UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479")


WRITTEN_BY_KAFKA_2_8_2 = {
    "broker": b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":'
    b'["PLAINTEXT://127.0.0.1:48053"],"jmx_port":-1,"port":48053,"host":"127.0.0.1","version":5,'
    b'"timestamp":"1795227070067"}',
    "topic": b'{"partitions":{"0":[0],"1":[0],"2":[0]},"topic_id":"0aC1QR33T4CdED894Lo4IA","adding_replicas":{},'
    b'"removing_replicas":{},"version":3}',
    "partition_state": b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}',
    "cluster_id": b'{"version":"1","id":"hlZvm3HcREaNlFbi3Oavtw"}',
    "config_change": b'{"version":2,"entity_path":"topics/orders"}',
    "config": b'{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"100000"}}',
    "controller": b'{"version":1,"brokerid":0,"timestamp":"1795227070147"}',
    "controller_epoch": b"1",
    "features": b'{"features":{},"version":1,"status":1}',
    "producer_id_block": b'{"version":1,"broker":0,"block_start":"0","block_end":"999"}',
}
"""Copied from the ZooKeeper of an Apache Kafka 2.8.2 broker with one topic."""


@for_rows("kind", WRITTEN_BY_KAFKA_2_8_2)
def test_znodes_written_by_apache_kafka_are_read_and_written_alike(kind: str) -> None:
    data = WRITTEN_BY_KAFKA_2_8_2[kind]
    module = broker_znodes if kind == "broker" else znodes
    decode, encode = getattr(module, f"decode_{kind}"), getattr(module, f"encode_{kind}")
    value = decode(HERE, data, 0) if kind == "partition_state" else decode(HERE, data)
    assert json.loads(encode(value)) == json.loads(data)


def test_cluster_id_has_its_version_as_a_string() -> None:
    data = b'{"version":"1","id":"MkU3OEVBNTcwNTJENDM2Qg"}'
    assert znodes.encode_cluster_id("MkU3OEVBNTcwNTJENDM2Qg") == data
    assert znodes.decode_cluster_id(HERE, data) == "MkU3OEVBNTcwNTJENDM2Qg"


def test_broker_registration_of_version_5() -> None:
    broker = BrokerRegistration(
        endpoints=(Endpoint("PLAINTEXT", "h", 9092), Endpoint("INTERNAL", "::1", 9093, "SSL")),
        timestamp_ms=1600000000000,
        rack="r1",
    )
    data = encode_broker(broker)
    assert data == (
        b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1600000000000",'
        b'"endpoints":["PLAINTEXT://h:9092","INTERNAL://[::1]:9093"],'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","INTERNAL":"SSL"},"rack":"r1","features":{}}'
    )
    assert decode_broker(HERE, data) == broker


def test_broker_without_a_plaintext_endpoint_has_no_host_for_old_readers() -> None:
    data = encode_broker(BrokerRegistration((Endpoint("EXTERNAL", "h", 1, "SSL"),), 5, version=4))
    assert b'"host":null,"port":-1' in data
    assert b"features" not in data
    assert b"rack" not in data


@pytest.mark.parametrize(
    ("data", "endpoint"),
    [
        (b'{"version":1,"host":"h","port":9092,"jmx_port":-1}', Endpoint("PLAINTEXT", "h", 9092)),
        (
            b'{"endpoints":["SSL://h:9093"],"jmx_port":9999,"host":null,"version":2,"port":-1,"timestamp":"1"}',
            Endpoint("SSL", "h", 9093, "SSL"),
        ),
        (
            (
                b'{"listener_security_protocol_map":{"OUT":"SASL_SSL"},"endpoints":["OUT://h:1"],"version":4,"port":-1,'
                b'"host":null,"timestamp":"1","jmx_port":-1}'
            ),
            Endpoint("OUT", "h", 1, "SASL_SSL"),
        ),
    ],
)
def test_broker_registrations_of_older_versions_are_read(data: bytes, endpoint: Endpoint) -> None:
    assert decode_broker(HERE, data).endpoints == (endpoint,)


def test_topic_is_written_in_version_3() -> None:
    topic = znodes.TopicAssignment({0: (1, 2), 1: (2, 3)}, TOPIC_ID, {0: (3,)}, {0: (1,)})
    data = znodes.encode_topic(topic)
    assert data == (
        b'{"version":3,"topic_id":"9HrBC1jMQ3KlZw4CssPUeQ","partitions":{"0":[1,2],"1":[2,3]},'
        b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
    )
    assert znodes.decode_topic(HERE, data) == topic
    assert b"topic_id" not in znodes.encode_topic(znodes.TopicAssignment({0: (1,)}))


def test_topic_of_version_1_has_neither_id_nor_reassignment() -> None:
    topic = znodes.decode_topic(HERE, b'{"partitions":{"1":[1],"0":[2,1]},"version":1}')
    assert topic == znodes.TopicAssignment({0: (2, 1), 1: (1,)})


def test_partition_epoch_is_the_version_of_the_node() -> None:
    state = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=7, partition_epoch=12)
    data = znodes.encode_partition_state(state)
    assert data == b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}'
    assert znodes.decode_partition_state(HERE, data, 12) == state
    recovering = data.replace(b'"version":1', b'"version":1,"leader_recovery_state":1')
    assert znodes.decode_partition_state(HERE, recovering, 12) == state


def test_controller_and_epoch_have_kafkas_format() -> None:
    data = b'{"version":1,"brokerid":2,"timestamp":"1600000000000"}'
    assert znodes.encode_controller(znodes.Controller(2, 1600000000000)) == data
    assert znodes.decode_controller(HERE, data) == znodes.Controller(2, 1600000000000)
    newer = b'{"version":2,"brokerid":2,"timestamp":"1","kraftControllerEpoch":-1}'
    assert znodes.decode_controller(HERE, newer) == znodes.Controller(2, 1)
    assert znodes.encode_controller_epoch(7) == b"7"
    assert znodes.decode_controller_epoch(HERE, b"7") == 7
    assert znodes.decode_controller_epoch(HERE, b"2147483646") == 2**31 - 2


def test_configs_are_strings_and_null_data_is_none_at_all() -> None:
    data = b'{"version":1,"config":{"retention.ms":"1000"}}'
    assert znodes.encode_config({"retention.ms": "1000"}) == data
    assert znodes.decode_config(HERE, data) == {"retention.ms": "1000"}
    assert znodes.decode_config(HERE, b"") == {}


def test_config_changes_name_their_entity_in_both_versions() -> None:
    assert znodes.encode_config_change("topics/orders") == b'{"version":2,"entity_path":"topics/orders"}'
    assert znodes.decode_config_change(HERE, b'{"entity_path":"users/a/clients/c","version":2}') == "users/a/clients/c"
    old = b'{"version":1,"entity_type":"topics","entity_name":"orders"}'
    assert znodes.decode_config_change(HERE, old) == "topics/orders"


def test_producer_id_blocks_have_strings_for_bounds() -> None:
    block = znodes.ProducerIdBlock(1, 1000, 1999)
    data = b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    assert znodes.encode_producer_id_block(block) == data
    assert znodes.decode_producer_id_block(HERE, data) == block
    assert znodes.decode_producer_id_block(HERE, b"") is None


def test_requests_to_the_controller_have_kafkas_format() -> None:
    tp = TopicPartition("orders", 1)
    reassignment = b'{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[1,2]}]}'
    assert znodes.encode_reassignment({tp: (1, 2)}) == reassignment
    assert znodes.decode_reassignment(HERE, reassignment) == {tp: (1, 2)}
    partitions = b'{"version":1,"partitions":[{"topic":"orders","partition":1}]}'
    assert znodes.encode_partitions([tp]) == partitions
    assert znodes.decode_partitions(HERE, partitions) == [tp]
    event = b'{"version":1,"broker":3,"event":1}'
    assert znodes.encode_log_dir_event(znodes.LogDirEvent(3)) == event
    assert znodes.decode_log_dir_event(HERE, event) == znodes.LogDirEvent(3)


def test_both_versions_of_features_are_read() -> None:
    assert znodes.encode_features(znodes.Features()) == b'{"version":1,"status":1,"features":{}}'
    first = b'{"version":1,"status":1,"features":{"f":{"min_version_level":2,"max_version_level":3}}}'
    assert znodes.decode_features(HERE, first).levels == {"f": (2, 3)}
    second = b'{"features":{"f":{"max_version_level":3}},"status":0,"version":2}'
    assert znodes.decode_features(HERE, second) == znodes.Features(znodes.FEATURES_DISABLED, {"f": (1, 3)})


@for_rows(
    "decode",
    [
        znodes.decode_cluster_id,
        decode_broker,
        znodes.decode_topic,
        lambda path, data: znodes.decode_partition_state(path, data, 0),
        znodes.decode_controller,
        znodes.decode_controller_epoch,
        znodes.decode_config,
        znodes.decode_config_change,
        znodes.decode_producer_id_block,
        znodes.decode_reassignment,
        znodes.decode_partitions,
        znodes.decode_log_dir_event,
        znodes.decode_features,
    ],
)
@for_rows("data", [b"{", b"[]", b"null", b'"x"', b"{}", b"\xff\xfe", b'{"version":"x","config":3,"id":{}}x'])
def test_broken_data_is_a_value_error_that_names_the_path(decode: Callable[[str, bytes], object], data: bytes) -> None:
    with pytest.raises(ValueError, match=HERE):
        decode(HERE, data)


def test_a_topic_has_at_most_as_many_partitions_as_can_be_created() -> None:
    replicas = dict.fromkeys(range(PARTITIONS_PER_TOPIC_MAX), (0,))
    assert len(znodes.decode_topic(HERE, znodes.encode_topic(znodes.TopicAssignment(replicas))).replicas) == len(
        replicas
    )
    replicas[PARTITIONS_PER_TOPIC_MAX] = (0,)
    with pytest.raises(ValueError, match="10001 partitions are more than the 10000 of a topic"):
        znodes.decode_topic(HERE, znodes.encode_topic(znodes.TopicAssignment(replicas)))
