"""Kafka's client properties: what is checked, refused, ignored and reported, and the settings that they become.

tests/integration/jvm/test_same_client_settings.py compares names and values with Apache Kafka's clients.
"""

from __future__ import annotations

from typing import Any

import pytest

from kctl.client.application.settings import ConsumerConfig, ProducerConfig
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.producing.partitioners import AdaptivePartitioner, RoundRobinPartitioner, StickyPartitioner
from kctl.client.producing.producer import ProducerSettings
from kctl.client.properties.settings import fetch_limits, partitioner_of, writing_settings
from kctl.client.properties.table import ALL, PROPERTIES, PYTHON, Client, check_properties, not_obeyed, unknown_names
from kctl.client.properties.values import iso_duration_ms
from kctl.client.settings import client_settings
from kctl.commands.frame.root import all_commands
from kctl.errors import ConfigError, UsageError
from kctl.records.compression import Codec
from tests.rows import for_rows


@for_rows(
    "client, name, value, reason",
    [
        ("A", "request.timeout.ms", "soon", "the value is a whole number from 0 to 2147483647, not 'soon'"),
        ("A", "send.buffer.bytes", "-2", "the value is a whole number from -1 to 2147483647, not '-2'"),
        ("A", "retry.backoff.ms", "", "the value is a whole number from 0 to 9223372036854775807, not ''"),
        ("A", "metrics.recording.level", "all", "use INFO, DEBUG or TRACE"),
        ("A", "security.providers", "a.B", "kctl loads no Java classes; remove it"),
        ("A", "linger.ms", "x", None),
        ("P", "acks", "2", "use all, -1, 0 or 1"),
        ("P", "linger.ms", "1s", "the value is a whole number from 0 to 9223372036854775807, not '1s'"),
        ("P", "enable.idempotence", "yes", "use true or false"),
        ("P", "compression.zstd.level", "23", "the value is a whole number from -131072 to 22, not '23'"),
        ("P", "compression.gzip.level", "-1", None),
        ("P", "acks", " all ", None),
        ("C", "auto.offset.reset", "begin", "use latest, earliest, none or by_duration:PnDTnHnMn.nS"),
        ("C", "auto.offset.reset", "by_duration:1h", "'1h' is not a duration such as PT1H30M or P1D"),
        ("C", "isolation.level", "serializable", "use read_committed or read_uncommitted"),
        ("C", "max.poll.records", "0", "the value is a whole number from 1 to 2147483647, not '0'"),
        ("C", "interceptor.classes", "", None),
        ("C", "of.an.interceptor", "anything", None),
    ],
)
def test_values_are_checked_for_the_client_that_has_the_property(
    client: str, name: str, value: str, reason: str | None
) -> None:
    if reason is None:
        check_properties({name: value}, Client(client))
        return
    with pytest.raises(ConfigError) as caught:
        check_properties({name: value}, Client(client))
    assert str(caught.value) == f"{name}={value}: {reason}"


def test_errors_contain_no_secrets() -> None:
    for name in ("sasl.oauthbearer.assertion.private.key.passphrase", "sasl.password", "ssl.key.pem"):
        with pytest.raises(ConfigError) as caught:
            check_properties({name: "hunter2"}, Client.ADMIN)
        assert "hunter2" not in str(caught.value)


def test_unknown_names_are_told_from_those_of_other_clients_and_of_kctl() -> None:
    given = dict.fromkeys(("acks", "retires", "kctl.mask.paths", "schema.registry.url", "Group.Id", "x"), "1")
    assert unknown_names(given) == ["'retires' (is 'retries' meant?)", "'Group.Id' (is 'group.id' meant?)", "'x'"]
    assert not_obeyed(given, "consume") == ["acks"]
    in_group = {"session.timeout.ms": "1", "partitioner.class": "x", "client.id": "x"}
    assert not_obeyed(in_group, "consume") == ["session.timeout.ms", "partitioner.class"]
    assert not_obeyed(in_group, "consume", "--group") == ["partitioner.class"]
    assert not_obeyed(in_group, "copy", "--partitions hash") == ["session.timeout.ms"]


@pytest.mark.long
def test_commands_in_the_table_exist() -> None:
    exist = {noun if noun == verb else f"{noun} {verb}" for noun, verbs in all_commands().items() for verb in verbs}
    named = {name.partition(" --")[0] for declared in PROPERTIES.values() for name in declared.commands}
    assert named - exist == {ALL, PYTHON}


@for_rows(
    "text, expected",
    [
        ("PT1H", 3_600_000),
        ("P1DT2.5S", 86_402_500),
        ("pt0.0015s", 1),
        ("PT1M-30S", 30_000),
        ("P0D", 0),
        ("PT+1H", 3_600_000),
    ],
)
def test_durations_are_read_as_by_java(text: str, expected: int) -> None:
    assert iso_duration_ms(text) == expected


@for_rows("text", ["", "P", "PT", "1h", "P1H", "PT1D", "P1DT", "PT-1H", "-PT1H", "P99999999999999D", "PT1H "])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        iso_duration_ms(text)


def writing(properties: dict[str, str], **options: Any) -> ProducerSettings:
    return writing_settings(properties, ProducerSettings(), request_timeout_ms=30_000, **options).settings


def test_properties_become_settings_of_a_producer_and_options_take_precedence() -> None:
    given = {"acks": "1", "compression.type": "zstd", "batch.size": "9", "retries": "2", "max.request.size": "7"}
    found = writing(given)
    assert (found.acks, found.idempotent, found.codec, found.batch_bytes) == (1, False, Codec.ZSTD, 7)
    assert (found.retries, found.record_bytes_max, found.linger_ms) == (2, 7, ProducerSettings().linger_ms)
    chosen = writing(given, acks="all", compression_type="none")
    assert (chosen.acks, chosen.idempotent, chosen.codec) == (-1, True, Codec.NONE)
    for wrong in (
        {"acks": "0", "enable.idempotence": "true"},
        {"delivery.timeout.ms": "30004"},
        {"transactional.id": "t"},
    ):
        with pytest.raises(ConfigError):
            writing(wrong)
    assert isinstance(
        partitioner_of(check_properties({"partitioner.ignore.keys": "true"}, Client.PRODUCER)), StickyPartitioner
    )
    by_class = {
        "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        "partitioner.ignore.keys": "true",
    }
    assert isinstance(partitioner_of(check_properties(by_class, Client.PRODUCER)), RoundRobinPartitioner)


def test_properties_become_limits_of_fetches() -> None:
    assert fetch_limits({"fetch.min.bytes": "3"}, FetchLimits(1, 2, 3, 4)) == FetchLimits(1, 3, 3, 4)


def test_times_of_properties_become_those_of_the_connections() -> None:
    given = {
        "request.timeout.ms": "10",
        "default.api.timeout.ms": "20000",
        "retry.backoff.ms": "5000",
        "socket.connection.setup.timeout.ms": "12000",
        "metadata.max.age.ms": "4",
    }
    made = client_settings(
        bootstrap_servers=None, properties=given, timeout_ms=None, default_servers="a:1", default_timeout_ms=30_000
    )
    assert (made.timeout_ms, made.response_timeout_ms, made.connect_timeout_ms) == (20_000, 10, 12_000)
    assert (made.retry_backoff_ms, made.retry_backoff_ms_max, made.metadata_max_age_ms) == (5_000, 5_000, 4)


def test_python_client_takes_the_same_table_and_refuses_names_that_no_client_has() -> None:
    consumer = ConsumerConfig.from_properties(
        {
            "bootstrap.servers": "PLAINTEXT://a:1",
            "acks": "1",
            "check.crcs": "false",
            "auto.offset.reset": "by_duration:PT1H",
            "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "default.api.timeout.ms": "9",
            "request.timeout.ms": "7",
        },
        client_rack="r",
    )
    assert (consumer.auto_offset_reset, consumer.value_deserializer(b"\xc3\xa4")) == ("by_duration:PT1H", "ä")
    settings = consumer.client_settings()
    assert (settings.bootstrap, settings.timeout_ms, settings.response_timeout_ms) == ((("a", 1),), 9, 7)
    several = ProducerConfig(bootstrap_servers=["a:1", "PLAINTEXT://b:2"])
    assert several.client_settings().bootstrap == (("a", 1), ("b", 2))
    producer = ProducerConfig.from_properties(
        {"bootstrap.servers": "a:1", "batch.size": "0", "retries": "3", "max.poll.records": "1"}
    )
    assert (producer.batch_size, producer.producer_settings().retries) == (0, 3)
    for config in (ConsumerConfig, ProducerConfig):
        for name, value in (
            ("enable.autocommit", "false"),
            ("bootstrap_server", "a:1"),
            ("sasl.username", "me"),
            ("interceptor.classes", "a.B"),
        ):
            with pytest.raises((ConfigError, UsageError), match=name):
                config.from_properties({"bootstrap.servers": "a:1", name: value})


def test_partitioner_of_records_without_a_key_is_that_of_the_properties() -> None:
    """KIP-794."""
    assert partitioner_of({}) is None, "AdaptivePartitioner, which knows the batches of its producer"
    ignoring = partitioner_of({"partitioner.ignore.keys": True})
    assert ignoring is not None
    assert {ignoring("orders", b"%d" % number, 1_000) for number in range(100)} == {ignoring("orders", None, 1_000)}
    even = partitioner_of({"partitioner.adaptive.partitioning.enable": False})
    assert isinstance(even, AdaptivePartitioner)
    even.waiting = lambda *_: [0, 10**9]
    selected = set()
    for _ in range(200):
        selected.add(even("orders", None, 2))
        even.on_batch_closed("orders", even("orders", None, 2), 1 << 20)
    assert selected == {0, 1}
