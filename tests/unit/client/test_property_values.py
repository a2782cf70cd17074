"""Values of Kafka's client properties that have no effect here are checked as Kafka's own clients check them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kctl.client.property_values import ANY_CLIENT, CONSUMER, PRODUCER, Check, check_properties
from kctl.errors import ConfigError


@pytest.mark.parametrize(
    ("checks", "name", "value", "reason"),
    [
        (ANY_CLIENT, "request.timeout.ms", "soon", "the value is a whole number from 0 to 2147483647, not 'soon'"),
        (ANY_CLIENT, "send.buffer.bytes", "-2", "the value is a whole number from -1 to 2147483647, not '-2'"),
        (ANY_CLIENT, "retry.backoff.ms", "", "the value is a whole number from 0 to 9223372036854775807, not ''"),
        (ANY_CLIENT, "metrics.recording.level", "all", "use INFO, DEBUG or TRACE"),
        (PRODUCER, "acks", "2", "use all, -1, 0 or 1"),
        (PRODUCER, "linger.ms", "1s", "the value is a whole number from 0 to 9223372036854775807, not '1s'"),
        (PRODUCER, "enable.idempotence", "yes", "use true or false"),
        (CONSUMER, "auto.offset.reset", "begin", "use latest, earliest, none or by_duration:DURATION"),
        (CONSUMER, "isolation.level", "serializable", "use read_committed or read_uncommitted"),
        (CONSUMER, "max.poll.records", "0", "the value is a whole number from 1 to 2147483647, not '0'"),
    ],
)
def test_invalid_values_are_refused(checks: Mapping[str, Check], name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_properties({name: value}, checks)
    assert str(caught.value) == f"{name}={value}: {reason}"


def test_valid_and_unknown_values_pass() -> None:
    given = {
        "acks": " all ",
        "isolation.level": "READ_COMMITTED",
        "auto.offset.reset": "by_duration:PT1H",
        "check.crcs": "False",
        "retries": "2147483647",
        "receive.buffer.bytes": "-1",
        "of.an.interceptor": "anything",
    }
    for checks in (ANY_CLIENT, PRODUCER, CONSUMER):
        check_properties(given, checks)
