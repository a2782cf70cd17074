"""Constructors make the same messages as the classes themselves."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from kctl.protocol.apis.produce import PartitionProduceResponse, TopicProduceResponse
from kctl.protocol.definition import definition_of
from kctl.protocol.source import constructor
from tests.property.protocol_messages import CLASSES
from tests.rows import for_rows


@for_rows("cls", CLASSES)
def test_a_message_with_and_without_defaults_is_that_of_its_class(cls: Any) -> None:
    make = constructor(cls)
    every = {field.name: object() for field in definition_of(cls).fields}
    required = {
        field.name: every[field.name] for field in definition_of(cls).fields if field.default is dataclasses.MISSING
    }
    for values in (every, required):
        made = make(**values)
        assert type(made) is cls
        assert made == cls(**values)


def test_lists_made_by_default_are_not_shared() -> None:
    make = constructor(PartitionProduceResponse)
    first, second = (make(index=0, error_code=0, base_offset=0) for _ in range(2))
    assert first.record_errors == []
    assert first.record_errors is not second.record_errors


def test_wrong_keywords_are_refused_as_by_the_class() -> None:
    make = cast("Any", constructor(TopicProduceResponse))
    for refused in ({"name": "orders"}, {"name": "orders", "partition_responses": [], "topic": "orders"}):
        with pytest.raises(TypeError):
            make(**refused)
    with pytest.raises(TypeError):
        make("orders", [])
