"""Internal topics of Kafka Streams."""

from __future__ import annotations

import pytest

from kctl.admin.groups.streams import is_internal_topic
from tests.rows import for_rows


@for_rows(
    "name",
    [
        "app-counts-changelog",
        "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition",
        "app-join-subscription-registration-topic",
        "app-join-subscription-response-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000010-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000018-topic",
    ],
)
def test_internal_topics_have_the_id_and_an_ending(name: str) -> None:
    assert is_internal_topic(name, "app")
    assert not is_internal_topic(name, "ap")
    assert not is_internal_topic(name, "app-x")
    assert not is_internal_topic(f"{name}-x", "app")
    assert not is_internal_topic(f"x{name}", "app")


@pytest.mark.parametrize("name", ["app", "app-", "app-output", "app-changelog-x", "app-KTABLE-FK-JOIN-topic"])
def test_other_topics_stay(name: str) -> None:
    assert not is_internal_topic(name, "app")


def test_a_dot_in_the_id_is_no_pattern() -> None:
    assert is_internal_topic("a.p-changelog", "a.p")
    assert not is_internal_topic("axp-changelog", "a.p")
