"""The effective value of a property after a change."""

from __future__ import annotations

import pytest

from kctl.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSynonym,
    ResourceType,
    own_value,
    value_after,
)

ORDERS = ConfigResource(ResourceType.TOPIC, "orders")
OWN, INHERITED = "DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"


def entry(value: str, *, source: str = OWN) -> ConfigEntry:
    synonyms = (
        ConfigSynonym("cleanup.policy", value, source),
        ConfigSynonym("log.cleanup.policy", "delete", INHERITED),
    )
    return ConfigEntry("cleanup.policy", value, source, False, False, synonyms)


@pytest.mark.parametrize(
    ("operation", "value", "before", "after"),
    [
        (ConfigOperation.SET, "a=b", entry("delete"), "a=b"),
        (ConfigOperation.SET, "x", None, "x"),
        (ConfigOperation.DELETE, None, entry("compact"), "delete"),
        (ConfigOperation.DELETE, None, None, None),
        (ConfigOperation.APPEND, "compact", entry("delete"), "delete,compact"),
        (ConfigOperation.APPEND, "delete", entry("delete"), "delete"),
        (ConfigOperation.APPEND, "compact", None, "compact"),
        (ConfigOperation.SUBTRACT, "delete", entry("delete,compact"), "compact"),
        (ConfigOperation.SUBTRACT, "compact", entry("compact"), ""),
    ],
)
def test_value_is_computed_after_a_change(
    operation: ConfigOperation, value: str | None, before: ConfigEntry | None, after: str | None
) -> None:
    assert value_after(ConfigChange("cleanup.policy", operation, value), ORDERS, before) == after


def test_own_value_is_one_set_for_exactly_this_resource() -> None:
    assert own_value([entry("compact")], ORDERS, "cleanup.policy") == "compact"
    assert own_value([entry("delete", source=INHERITED)], ORDERS, "cleanup.policy") is None
    assert own_value([], ORDERS, "cleanup.policy") is None


@pytest.mark.parametrize(
    ("resource", "broker_id", "source"),
    [
        (ORDERS, None, "DYNAMIC_TOPIC_CONFIG"),
        (ConfigResource(ResourceType.BROKER, "7"), 7, "DYNAMIC_BROKER_CONFIG"),
        (ConfigResource(ResourceType.BROKER, ""), None, "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    ],
)
def test_resources_are_described_by_the_right_broker_and_source(
    resource: ConfigResource, broker_id: int | None, source: str
) -> None:
    assert (resource.broker_id, resource.own_source) == (broker_id, source)
