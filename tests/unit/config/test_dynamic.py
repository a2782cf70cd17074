"""Changes at run time."""

from __future__ import annotations

import asyncio

import pytest

from kctl.config.dynamic import ConfigView
from kctl.errors import ApiError, ErrorCode
from tests.rows import for_rows

ONLY_PER_LISTENER = "These security configs can be dynamically updated only per-listener using the listener prefix"
OF_LISTENERS = (
    *("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password"),
    *("ssl.keystore.key", "ssl.keystore.certificate.chain"),
    *("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates"),
)


def test_precedence_is_broker_then_default_then_file() -> None:
    view = ConfigView({"message.max.bytes": "1"})
    assert view.current.message_max_bytes == 1
    view.set_dynamic_default({"message.max.bytes": "2", "log.retention.ms": "9"})
    assert view.current.message_max_bytes == 2
    view.set_dynamic_broker({"message.max.bytes": "3"})
    assert view.current.message_max_bytes == 3
    assert view.current.retention_ms == 9
    view.set_dynamic_broker({})
    view.set_dynamic_default({})
    assert view.current.message_max_bytes == 1


def test_a_change_makes_a_new_snapshot_and_leaves_the_old_one_alone() -> None:
    view = ConfigView({})
    before = view.current
    view.set_dynamic_default({"num.io.threads": "9"})
    assert before.num_io_threads == 8
    assert view.current is not before


def test_topics_follow_the_brokers_defaults_until_they_have_their_own() -> None:
    view = ConfigView({})
    view.set_topic("mine", {"retention.ms": "1"})
    assert view.topic("other").retention_ms == 604_800_000
    view.set_dynamic_default({"log.retention.ms": "2"})
    assert view.topic("other").retention_ms == 2
    assert view.topic("mine").retention_ms == 1
    view.forget_topic("mine")
    assert view.topic("mine").retention_ms == 2


def test_subscribers_are_called_on_every_change() -> None:
    view = ConfigView({})
    received: list[int] = []
    view.subscribe(lambda: received.append(view.current.num_io_threads))
    view.set_dynamic_default({"num.io.threads": "9"})
    view.set_topic("t", {})
    assert received == [9, 9]


def test_unusable_values_are_ignored_and_logged() -> None:
    view = ConfigView({})
    problems = view.set_dynamic_broker({"broker.id": "5", "message.max.bytes": "x", "log.retention.ms": "7"})
    assert [problem.name for problem in problems] == ["broker.id", "message.max.bytes"]
    assert view.current.retention_ms == 7
    assert view.current.broker_id == -1


def test_a_stored_property_that_contradicts_others_is_left_out() -> None:
    view = ConfigView({})
    before = view.current
    assert view.set_dynamic_broker({"log.cleaner.threads": "1000"})
    assert view.current == before
    overrides = {"log.cleaner.threads": "1000", "max.connections.per.ip.overrides": "x", "log.segment.bytes": "800"}
    assert len(view.set_dynamic_broker(overrides)) == 2
    assert view.dynamic_broker == {"log.segment.bytes": "800"}
    assert view.current.log_segment_bytes == 800


def test_a_stored_property_that_contradicts_a_default_of_all_brokers_is_left_out() -> None:
    view = ConfigView({})
    assert view.set_dynamic_broker({"log.cleaner.dedupe.buffer.size": "3000000", "log.cleaner.threads": "2"}) == []
    assert view.set_dynamic_default({"log.cleaner.threads": "3", "log.segment.bytes": "800"}) == []
    assert view.set_dynamic_broker({"log.cleaner.dedupe.buffer.size": "3000000"})
    assert view.dynamic_broker == {}
    assert view.current.log_cleaner_threads == 3


@for_rows(
    "overrides, per_broker",
    [
        ({"broker.id": "1"}, True),
        ({"zookeeper.connect": "x"}, True),
        ({"listeners": "PLAINTEXT://:1"}, False),
        ({"message.max.bytes": "x"}, True),
        ({"log.cleaner.threads": "1000"}, False),
        ({"process.roles": "broker"}, True),
        ({"max.connections.per.ip.overrides": "127.0.0.1:²"}, False),
        ({"max.connections.per.ip.overrides": "127.0.0.1:" + "1" * 5000}, False),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1/"}, True),
        ({"listener.name.a.sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1/"}, True),
        ({"listener.name.a.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "file:///x"}, True),
    ],
)
def test_invalid_changes_of_a_client_are_refused_with_a_message(overrides: dict[str, str], per_broker: bool) -> None:
    with pytest.raises(ApiError) as caught:
        asyncio.run(ConfigView({}).validate(overrides, per_broker=per_broker))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@for_rows(
    "overrides, per_broker, begin",
    [
        ({"broker.id": "1"}, True, "Cannot update these configs dynamically: broker.id=1: "),
        (
            {"listeners": "PLAINTEXT://:1"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: listeners=",
        ),
        ({"message.max.bytes": "x"}, True, "message.max.bytes=x: "),
        *(
            (
                {name: "PEM"},
                per_broker,
                f"{ONLY_PER_LISTENER}: {name}=",
            )
            for name in OF_LISTENERS
            for per_broker in (True, False)
        ),
    ],
)
def test_refusals_begin_with_the_words_that_clients_of_kafka_look_for(
    overrides: dict[str, str], per_broker: bool, begin: str
) -> None:
    with pytest.raises(ApiError) as caught:
        asyncio.run(ConfigView({}).validate(overrides, per_broker=per_broker))
    assert caught.value.message is not None
    assert caught.value.message.startswith(begin)


def test_key_stores_are_changed_for_one_listener_only() -> None:
    """Kafka: SslConfigs.RECONFIGURABLE_CONFIGS."""
    prefixed = {f"listener.name.secure.{name}": "PEM" for name in OF_LISTENERS}
    asyncio.run(ConfigView({}).validate(prefixed, per_broker=True))
    view = ConfigView({})
    problems = view.set_dynamic_broker({**prefixed, **dict.fromkeys(OF_LISTENERS, "PEM")})
    assert {problem.name for problem in problems} == set(OF_LISTENERS)
    assert view.dynamic_broker == prefixed


def test_names_of_plug_ins_and_replication_throttles_pass() -> None:
    overrides = {"plugin.x": "1", "leader.replication.throttled.rate": "1000"}
    asyncio.run(ConfigView({}).validate(overrides, per_broker=True))
    assert ConfigView({}).set_dynamic_broker(overrides) == []
