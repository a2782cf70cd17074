"""DescribeConfigs results, with sources and synonyms in Kafka 2.8's order."""

from __future__ import annotations

from kctl.config.described import (
    ConfigSource,
    DescribedConfig,
    Synonym,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from kctl.config.dynamic import ConfigView
from kctl.config.kinds import ConfigType


def topic_entry(view: ConfigView, name: str) -> DescribedConfig:
    overrides = view.topic_overrides.get("t", {})
    return next(entry for entry in describe_topic(view, overrides) if entry.name == name)


def broker_entry(view: ConfigView, name: str) -> DescribedConfig:
    return next(entry for entry in describe_broker(view) if entry.name == name)


def test_every_place_that_gives_a_value_is_a_synonym_and_the_first_is_the_source() -> None:
    view = ConfigView({"log.segment.bytes": "100"})
    view.set_dynamic_default({"log.segment.bytes": "200"})
    view.set_dynamic_broker({"log.segment.bytes": "300"})
    view.set_topic("t", {"segment.bytes": "400"})
    entry = topic_entry(view, "segment.bytes")
    assert (entry.value, entry.source, entry.type) == ("400", ConfigSource.TOPIC_CONFIG, ConfigType.INT)
    assert entry.synonyms == (
        Synonym("segment.bytes", "400", ConfigSource.TOPIC_CONFIG),
        Synonym("log.segment.bytes", "300", ConfigSource.DYNAMIC_BROKER_CONFIG),
        Synonym("log.segment.bytes", "200", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("log.segment.bytes", "100", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    )


def test_a_default_has_the_brokers_default_as_synonym() -> None:
    entry = topic_entry(ConfigView({}), "cleanup.policy")
    assert (entry.value, entry.source) == ("delete", ConfigSource.DEFAULT_CONFIG)
    assert entry.synonyms == (Synonym("log.cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG),)


def test_retention_has_no_synonyms_while_only_coarser_units_are_set() -> None:
    entry = topic_entry(ConfigView({"log.retention.hours": "1"}), "retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("3600000", ConfigSource.DEFAULT_CONFIG, ())


def test_retention_in_milliseconds_has_the_coarser_units_as_synonyms() -> None:
    view = ConfigView({"log.retention.ms": "5", "log.retention.hours": "1"})
    assert broker_entry(view, "log.retention.ms").synonyms == (
        Synonym("log.retention.ms", "5", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.retention.hours", "1", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )


def test_a_password_is_hidden_in_every_source() -> None:
    view = ConfigView({"ssl.key.password": "s3cret", "plugin.password": "s3cret"})
    view.set_dynamic_broker({"plugin.token": "s3cret"})
    assert "s3cret" not in repr(describe_broker(view))
    entry = broker_entry(view, "ssl.key.password")
    assert (entry.value, entry.sensitive, entry.source) == (None, True, ConfigSource.STATIC_BROKER_CONFIG)
    assert broker_entry(view, "plugin.token").sensitive


def test_what_cannot_change_at_run_time_is_read_only() -> None:
    view = ConfigView({})
    assert broker_entry(view, "broker.id").read_only
    assert not broker_entry(view, "log.retention.ms").read_only
    assert not any(entry.read_only for entry in describe_topic(view, {}))


def test_the_cluster_default_shows_only_what_is_set_there() -> None:
    view = ConfigView({"message.max.bytes": "1"})
    view.set_dynamic_broker({"message.max.bytes": "3"})
    view.set_dynamic_default({"message.max.bytes": "2", "leader.replication.throttled.rate": "4"})
    described = describe_broker_defaults(view)
    assert [(entry.name, entry.value, entry.source) for entry in described] == [
        ("message.max.bytes", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("leader.replication.throttled.rate", "4", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ]
