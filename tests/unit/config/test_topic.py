"""Topic configuration: accepted values, and the effective ones."""

from __future__ import annotations

import pytest

from kctl.config.broker import BrokerConfig
from kctl.config.config_loading import load_broker_config
from kctl.config.topic import TopicConfig, topic_config, topic_config_ignoring_errors, validate_topic_overrides
from kctl.errors import ApiError, ErrorCode
from tests.rows import for_rows


def test_an_untouched_topic_of_an_untouched_broker_has_kafkas_defaults() -> None:
    assert topic_config(BrokerConfig()) == TopicConfig()


def test_the_brokers_value_is_the_topics_default() -> None:
    broker, _ = load_broker_config({"log.retention.hours": "1", "log.segment.bytes": "1000", "message.max.bytes": "7"})
    config = topic_config(broker)
    assert (config.retention_ms, config.segment_bytes, config.max_message_bytes) == (3_600_000, 1000, 7)


def test_topic_override_replaces_the_default() -> None:
    config = topic_config(BrokerConfig(), {"retention.ms": "5", "cleanup.policy": "compact,delete"})
    assert config.retention_ms == 5
    assert config.compacts
    assert config.deletes


@for_rows(
    "overrides, reported",
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"log.segment.bytes": "100"}, "Unknown topic config name: log.segment.bytes"),
        ({"retention.ms": None}, "No value given for topic configs: retention.ms"),
        ({"retention.ms": "-2"}, "Invalid value -2 for retention.ms: it must be at least -1"),
        ({"segment.bytes": "13"}, "at least 14"),
        ({"cleanup.policy": "shred"}, "a list of compact, delete"),
        ({"compression.type": "rar"}, "one of uncompressed"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "between 0 and 1"),
        ({"message.format.version": "x"}, "a Kafka version"),
        ({"leader.replication.throttled.replicas": "1-2"}, "partition:broker"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "is greater than max.compaction.lag.ms"),
    ],
)
def test_what_cannot_be_is_an_invalid_config(overrides: dict[str, str | None], reported: str) -> None:
    with pytest.raises(ApiError, match=reported) as caught:
        validate_topic_overrides(overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_no_cleanup_policy_keeps_everything() -> None:
    validate_topic_overrides({"cleanup.policy": ""})
    config = topic_config(BrokerConfig(), {"cleanup.policy": ""})
    assert not config.compacts
    assert not config.deletes


@pytest.mark.parametrize("text", ["*", "", "0:1", "0:1,1:2"])
def test_valid_throttled_replicas_are_accepted(text: str) -> None:
    config = topic_config(BrokerConfig(), {"leader.replication.throttled.replicas": text})
    assert ",".join(config.leader_replication_throttled_replicas) == text


def test_invalid_stored_overrides_are_skipped_and_the_others_apply() -> None:
    config, ignored = topic_config_ignoring_errors(
        BrokerConfig(), {"retention.ms": "5", "segment.bytes": "x", "remote.storage.enable": "true"}
    )
    assert config.retention_ms == 5
    assert config.segment_bytes == 1 << 30
    assert len(ignored) == 2


@pytest.mark.parametrize(("version", "is_reported"), [("0.10.0", True), ("0.11.0", False), ("2.8", False)])
def test_topic_with_an_older_message_format_is_a_warning_about_the_stored_format(
    version: str, is_reported: bool
) -> None:
    _, reported = topic_config_ignoring_errors(load_broker_config({})[0], {"message.format.version": version})
    assert reported == (
        [f"message.format.version={version} has no effect: batches are stored in the format of 0.11.0"] * is_reported
    )
