"""Rules for every entry of the property tables."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kctl.config.broker import BROKER_PROPERTIES, SINGLE_BROKER_PROPERTIES, BrokerConfig
from kctl.config.definition import Property
from kctl.config.topic import TOPIC_PROPERTIES, TopicConfig
from tests.rows import for_rows

EVERY_PROPERTY = [*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values()]


@pytest.mark.parametrize("table", [BrokerConfig, TopicConfig])
def test_the_attribute_is_the_property_with_underscores(table: type) -> None:
    declared = {field.name: field.metadata["property"].name for field in fields(table)}
    assert {attribute: name.replace(".", "_") for attribute, name in declared.items()} == {
        attribute: attribute for attribute in declared
    }


def test_a_snapshot_has_no_room_for_anything_else() -> None:
    assert not hasattr(BrokerConfig(), "__dict__")


@for_rows("entry", EVERY_PROPERTY)
def test_the_default_passes_its_own_rules(entry: Property) -> None:
    if entry.default is not None:
        text = entry.format(entry.default)
        assert text is not None
        assert entry.parse(text) == entry.default


@for_rows("entry", EVERY_PROPERTY)
def test_the_documentation_is_one_or_more_sentences(entry: Property) -> None:
    assert entry.doc[0].isupper() or entry.doc[0].islower()
    assert entry.doc.endswith(".")


@for_rows("entry", EVERY_PROPERTY)
def test_a_property_refers_to_others_that_exist(entry: Property) -> None:
    referred = [*entry.falls_back_to, *([entry.server] if entry.server else [])]
    assert set(referred) <= set(BROKER_PROPERTIES)


def test_a_topics_default_is_the_default_of_the_brokers_property() -> None:
    for entry in TOPIC_PROPERTIES.values():
        if entry.server is not None and BROKER_PROPERTIES[entry.server].default is not None:
            assert BROKER_PROPERTIES[entry.server].default == entry.default, entry.name


def test_a_lone_brokers_settings_are_known() -> None:
    assert set(SINGLE_BROKER_PROPERTIES) <= set(BROKER_PROPERTIES)
