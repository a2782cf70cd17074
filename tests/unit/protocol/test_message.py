from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from kctl.protocol.apis.alter_user_scram_credentials import ScramCredentialUpsertion
from kctl.protocol.apis.produce import ProduceRequest, TopicProduceData
from kctl.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.definition import Definition, Field, definition_of, parse_versions
from kctl.protocol.registry import all_apis
from tests.rows import for_rows

APIS = all_apis()

CLASSES = [cls for api in APIS.values() for cls in (api.request, api.response)]


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3+", range(3, 32768)), ("2-4", range(2, 5)), ("1", range(1, 2)), ("none", range(0))],
)
def test_versions_are_written_as_in_kafka(text: str, versions: range) -> None:
    assert parse_versions(text) == versions


def test_definition_has_key_versions_and_fields() -> None:
    definition = definition_of(ProduceRequest)
    assert (definition.name, definition.key, definition.versions) == ("ProduceRequest", 0, range(14))
    assert [field.name for field in definition.fields] == ["transactional_id", "acks", "timeout_ms", "topic_data"]
    assert definition.is_flexible(9)
    assert not definition.is_flexible(8)


def test_messages_are_keyword_only_slotted_dataclasses() -> None:
    with pytest.raises(TypeError):
        TopicProduceData("orders", [])  # type: ignore[call-arg, arg-type]  # that it is refused is the point
    assert not hasattr(TopicProduceData(name="orders", partition_data=[]), "__dict__")
    assert dataclasses.is_dataclass(TopicProduceData)


def test_fields_without_default_have_to_be_given() -> None:
    with pytest.raises(TypeError, match="timeout_ms"):
        ProduceRequest(acks=1, topic_data=[])  # type: ignore[call-arg]  # that it is refused is the point


def test_lists_made_by_default_are_not_shared() -> None:
    response = APIS[0].response
    first, second = response(responses=[]), response(responses=[])
    assert first == second
    first.responses.append(1)
    assert second.responses == []


def test_secrets_are_not_in_the_repr() -> None:
    shown = repr(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonderland"))
    shown += repr(
        ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=b"nacl", salted_password=b"wonderland"
        )
    )
    assert "alice" in shown
    assert "wonderland" not in shown
    assert "nacl" not in shown


@for_rows("cls", CLASSES)
def test_fields_that_some_version_lacks_have_a_default(cls: type) -> None:
    definition = definition_of(cls)
    for version in definition.versions:
        check(definition, version)


def check(definition: Definition, version: int) -> None:
    for field in definition.fields:
        where = f"{definition.name}.{field.name}"
        if version not in field.versions or field.tag is not None:
            assert field.default is not dataclasses.MISSING, where
        if version in field.versions:
            check_inside(field, version)
        if field.name == "throttle_time_ms":
            assert field.default == 0, where


def check_inside(field: Field, version: int) -> None:
    struct = field.struct or (field.element and field.element.struct)
    if struct:
        check(definition_of(struct), version)


@for_rows("cls", CLASSES)
def test_defaults_are_of_their_fields_type(cls: type) -> None:
    kinds = {"string": str, "boolean": bool, "uuid": UUID, "array": list, "bytes": bytes, "float64": float}
    for field in definition_of(cls).fields:
        if field.default is not dataclasses.MISSING and field.default is not None:
            assert isinstance(field.default, kinds.get(field.kind, field.struct or int)), field
        elif field.default is None:
            assert field.nullable or field.struct, field
