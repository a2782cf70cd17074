"""A broker's configuration from names and values."""

from __future__ import annotations

import pytest

from kctl.config.broker import BROKER_PROPERTIES, SINGLE_BROKER_PROPERTIES, BrokerConfig
from kctl.config.config_loading import PROPERTY_HINTS_MAX, load_broker_config
from kctl.config.definition import BrokerConfigError
from kctl.errors import ConfigError
from tests.rows import for_rows

KAFKAS_SAMPLE = {
    "broker.id": "0",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/var/lib/kafka",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Names and values of the server.properties that Apache Kafka 2.8 ships."""


UNKNOWN = "unknown property, ignored"


def load(**properties: str) -> BrokerConfig:
    return load_broker_config({name.replace("__", "."): text for name, text in properties.items()})[0]


def problems(properties: dict[str, str]) -> list[str]:
    with pytest.raises(BrokerConfigError) as caught:
        load_broker_config(properties)
    return str(caught.value).splitlines()


def test_nothing_given_gives_kafkas_defaults() -> None:
    config, warnings = load_broker_config({})
    assert config == BrokerConfig()
    assert warnings == []


def test_kafkas_own_sample_loads_without_a_warning_of_substance() -> None:
    config, warnings = load_broker_config(KAFKAS_SAMPLE)
    assert config.zookeeper_connect == "localhost:2181"
    assert config.log_directories == ("/var/lib/kafka",)
    assert [warning for warning in warnings if not warning.startswith("transaction.")] == []


def test_a_lone_brokers_settings_load() -> None:
    assert load_broker_config(SINGLE_BROKER_PROPERTIES)[0].offsets_topic_replication_factor == 1


def test_the_command_line_wins() -> None:
    config, _ = load_broker_config({"num.partitions": "3"}, {"num.partitions": "5"})
    assert config.num_partitions == 5


def test_an_unknown_name_is_a_warning_with_a_guess() -> None:
    _, warnings = load_broker_config({"log.retention.hour": "4", "plugin.secret": "x"})
    assert warnings == [
        f"log.retention.hour: {UNKNOWN}; did you mean log.retention.hours?",
        f"plugin.secret: {UNKNOWN}",
    ]


def test_similar_names_are_searched_for_a_bounded_number_of_unknown_ones() -> None:
    _, warnings = load_broker_config({f"log.retention.hour{number}": "4" for number in range(PROPERTY_HINTS_MAX + 20)})
    assert [warning.endswith("did you mean log.retention.hours?") for warning in warnings] == [
        *[True] * PROPERTY_HINTS_MAX,
        *[False] * 20,
    ]


@for_rows(
    "name",
    [
        *("principal.builder.class", "sasl.server.callback.handler.class", "ssl.engine.factory.class"),
        "listener.name.plaintext.principal.builder.class",
        "listener.name.plaintext.scram-sha-256.sasl.server.callback.handler.class",
        "listener.name.plaintext.max.connections",
    ],
)
def test_a_class_on_which_access_depends_is_refused_also_for_one_listener(name: str) -> None:
    with pytest.raises(BrokerConfigError, match=name):
        load_broker_config({name: "org.example.Mine"})


def test_a_value_for_one_listener_that_all_have_in_common_is_a_warning() -> None:
    given = {"listener.name.plaintext.num.partitions": "3", "listener.name.plaintext.ssl.provider": "x"}
    assert load_broker_config(given)[1] == [
        "listener.name.plaintext.num.partitions: has no effect; all listeners have num.partitions in common",
        "listener.name.plaintext.ssl.provider: has no effect; TLS is that of OpenSSL",
    ]


def test_a_property_that_nothing_acts_on_is_a_warning_unless_it_is_the_default() -> None:
    assert load_broker_config({"num.io.threads": "8"})[1] == []
    assert load_broker_config({"num.io.threads": "9"})[1] == [
        f"num.io.threads: has no effect; {BROKER_PROPERTIES['num.io.threads'].unused}"
    ]


def test_every_problem_is_reported_at_once_with_name_value_and_remedy() -> None:
    assert problems({"broker.id": "x", "log.segment.bytes": "13", "ssl.key.password": "s3cret", "port": "70000"}) == [
        "broker.id=x: is not a whole number; correct it or remove it, which means -1",
        "log.segment.bytes=13: must be at least 14; correct it or remove it, which means 1073741824",
        "port=70000: must be between 0 and 65535; correct it or remove it, which means 9092",
    ]


def test_the_error_is_a_config_error_that_names_the_first_property() -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config({"num.partitions": "0"})
    assert caught.value.name == "num.partitions"


@pytest.mark.parametrize("name", ["process.roles", "node.id"])
def test_a_kraft_configuration_is_refused_plainly(name: str) -> None:
    assert problems({name: "1"})[0].startswith(f"{name}=1: ")


@for_rows(
    "properties, named",
    [
        ({"broker.id": "-2"}, "broker.id=-2"),
        ({"broker.id": "1001"}, "broker.id=1001: is above reserved.broker.max.id (1000)"),
        ({"broker.id.generation.enable": "false"}, "broker.id=-1"),
        ({"log.dirs": " , "}, "log.dirs"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0"),
        ({"log.retention.hours": "-2"}, "log.retention.hours=-2"),
        ({"log.cleaner.threads": "128"}, "log.cleaner.dedupe.buffer.size"),
        ({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"}, "log.cleaner.min"),
        ({"replica.fetch.wait.max.ms": "30001"}, "replica.fetch.wait.max.ms=30001"),
        ({"group.min.session.timeout.ms": "1800001"}, "group.min.session.timeout.ms=1800001"),
        ({"offsets.commit.required.acks": "4"}, "offsets.commit.required.acks=4"),
        ({"queued.max.request.bytes": "1"}, "queued.max.request.bytes=1"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0"),
        ({"max.connections.per.ip.overrides": "host"}, "max.connections.per.ip.overrides=host"),
        ({"inter.broker.protocol.version": "0.10.2"}, "log.message.format.version=2.8-IV1"),
        (
            {"inter.broker.protocol.version": "2.0", "compression.type": "zstd", "log.message.format.version": "2.0"},
            "compression.type=zstd",
        ),
        ({"log.message.format.version": "0.10.2"}, "log.message.format.version=0.10.2: batches are stored in message"),
        ({"inter.broker.protocol.version": "9.9"}, "inter.broker.protocol.version=9.9"),
        ({"unclean.leader.election.enable": "maybe"}, "unclean.leader.election.enable=maybe: must be true or false"),
    ],
)
def test_a_contradiction_is_refused(properties: dict[str, str], named: str) -> None:
    reported = problems(properties)
    assert len(reported) in {1, 2}, reported
    assert reported[0].startswith(named)


def test_a_password_is_never_in_an_error() -> None:
    assert "s3cret" not in "".join(load_broker_config({"ssl.key.password": "s3cret"})[1])


@for_rows(
    "properties, retention_ms",
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_counts(properties: dict[str, str], retention_ms: int) -> None:
    assert load_broker_config(properties)[0].retention_ms == retention_ms


def test_older_properties_are_fallbacks_of_newer_ones() -> None:
    config = load(log__roll__hours="1", log__roll__jitter__hours="2", log__flush__scheduler__interval__ms="3")
    assert (config.roll_ms, config.roll_jitter_ms, config.flush_interval_ms) == (3_600_000, 7_200_000, 3)
    config = load(log__roll__ms="4", log__roll__jitter__ms="5", log__flush__interval__ms="6", log__dir="/a")
    assert (config.roll_ms, config.roll_jitter_ms, config.flush_interval_ms) == (4, 5, 6)
    assert config.log_directories == ("/a",)
    assert load(log__dirs="/b, /c", log__dir="/a").log_directories == ("/b", "/c")
    assert config.zookeeper_connection_timeout == 18000


def test_a_property_without_default_may_be_left_empty() -> None:
    assert load(broker__rack="").broker_rack is None


def test_older_message_format_required_by_the_protocol_version_is_a_warning() -> None:
    requested = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}
    _, warnings = load_broker_config(requested)
    assert any(warning.startswith("log.message.format.version=0.10.2: batches are stored") for warning in warnings)
