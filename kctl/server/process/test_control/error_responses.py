"""Responses with an error, derived from the definitions of request and response: for all or one topic of a request.

An error is in the response as a whole, or in the elements of its arrays.  These are made from the elements of the
request that they respond to: topics and partitions by their role, others by the names of their fields.

Pure: messages in, messages out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.definition import FIXED_FORMATS, Field, Role, definition_of
from kctl.protocol.registry import Api
from kctl.server.process.test_control.possible_errors import OF_FETCH_SESSIONS, possible_errors

_ERROR_CODE = "error_code"
_ERROR_MESSAGE = "error_message"
ERROR_MESSAGE = "the test has set this fault"
"""The text beside an error, in responses that have one."""
_FETCH = "fetch"
_TOPIC_ID = "topic_id"


def check_failure(api: Api, code: ErrorCode, topic: str | None) -> None:
    """Raise ValueError, with what is possible, if no response of this API has the error, or its requests no topic."""
    possible = possible_errors(api.name)
    if not possible:
        raise ValueError(f"requests {api.kafka_name} cannot be failed: clients do not send them, or log in with them")
    if code not in possible:
        names = ", ".join(sorted(error.name for error in possible))
        raise ValueError(f"{api.kafka_name} never has the error {code.name}; it has {names}")
    if topic is None:
        return
    if not any(_has_topics(field) for field in definition_of(api.request).fields):
        raise ValueError(f"{api.kafka_name} requests name no topic: leave out topic=")
    if not _has_errors_of_topics(definition_of(api.response).fields):
        raise ValueError(f"{api.kafka_name} responses have one error for all topics: leave out topic=")
    if api.name == _FETCH and code in OF_FETCH_SESSIONS:
        raise ValueError(f"{code.name} is an error of the session: leave out topic=")


def topics_of(request: object) -> Iterator[str]:
    """Yield the names of the topics in a request."""
    for field in definition_of(type(request)).fields:
        if not _has_topics(field):
            continue
        for element in getattr(request, field.name) or ():
            if (name := _topic_of(element)) is not None:
                yield name


def name_topics(request: object, names: Mapping[bytes, str]) -> None:
    """Set the names of topics that the request gives by their ids; `names` has those by the bytes of the ids."""
    for field in definition_of(type(request)).fields:
        if _has_topics(field) and _struct_of(field) is not None:
            for element in getattr(request, field.name) or ():
                topic_id = getattr(element, _TOPIC_ID, None)
                if isinstance(topic_id, UUID) and topic_id != ZERO_UUID and not _topic_of(element):
                    _set_topic(element, names.get(topic_id.bytes, ""))


def _set_topic(element: object, name: str) -> None:
    for field in definition_of(type(element)).fields:
        if field.role is Role.TOPIC:
            setattr(element, field.name, name)


def without_topic(request: Any, topic: str) -> Any | None:
    """Return the request without a topic; None if nothing is left of it."""
    changes = {}
    is_empty = True
    for field in definition_of(type(request)).fields:
        elements = getattr(request, field.name)
        if _has_topics(field) and elements:
            kept = [element for element in elements if _topic_of(element) != topic]
            changes[field.name] = kept
            is_empty = is_empty and not kept
    return None if is_empty else dataclasses.replace(request, **changes)


def error_response(api: Api, request: object, version: int, code: ErrorCode, topic: str | None = None) -> Any | None:
    """Return the response in which all that was requested, or one topic, has the error.

    None if the response of this version has no place for it, or the request nothing that could fail.
    """
    response = blank(api.response)
    is_of_all = topic is None and (api.name != _FETCH or code in OF_FETCH_SESSIONS)
    fields = [field for field in definition_of(api.response).fields if version in field.versions]
    if is_of_all and any(field.name == _ERROR_CODE for field in fields):
        _set_error(response, version, code)
        return response
    if api.name == _FETCH and code in OF_FETCH_SESSIONS:
        return None
    has_failed = False
    for field in fields:
        struct = _struct_of(field)
        if struct is None or not _has_error(struct):
            continue
        elements = _failed_elements(request, struct, version, code, topic)
        has_failed = has_failed or bool(elements)
        setattr(response, field.name, elements)
    return response if has_failed else None


def merge(response: Any, failed: Any) -> None:
    """Add the elements of a response with errors to the response of the rest of the request."""
    for field in definition_of(type(response)).fields:
        if (struct := _struct_of(field)) is not None and _has_error(struct):
            getattr(response, field.name).extend(getattr(failed, field.name))


def blank(message: type) -> Any:
    """Return a message without contents: the defaults, and otherwise -1 as the base offset, 0, empty or null."""
    values = {}
    for field in definition_of(message).fields:
        if field.default is not dataclasses.MISSING:
            continue
        values[field.name] = _blank_value(field)
    return message(**values)


_NONE_YET = frozenset({"base_offset", "high_watermark", "offset", "end_offset", "generation_id", "committed_offset"})
"""Fields that are -1 in responses with errors."""


def _blank_value(field: Field) -> Any:
    if field.name in _NONE_YET:
        return -1
    if field.kind == "array":
        return []
    if field.kind == "struct":
        assert field.struct is not None
        return blank(field.struct)
    if field.kind == "records" or (field.nullable and field.kind not in FIXED_FORMATS and field.nullable[0] == 0):
        return None
    return {"string": "", "bytes": b"", "boolean": False, "uuid": ZERO_UUID, "float64": 0.0}.get(field.kind, 0)


def _set_error(target: Any, version: int, code: ErrorCode) -> None:
    target.error_code = int(code)
    for field in definition_of(type(target)).fields:
        if field.name == _ERROR_MESSAGE and version in field.versions:
            target.error_message = ERROR_MESSAGE


def _failed_elements(request: object, struct: type, version: int, code: ErrorCode, topic: str | None) -> list[Any]:
    """Return the elements of an array of the response, made from the array of the request that they respond to."""
    for field in definition_of(type(request)).fields:
        if field.element is None or version not in field.versions or not _corresponds(field.element, struct):
            continue
        elements = getattr(request, field.name) or ()
        return [
            _failed_element(element, struct, version, code)
            for element in elements
            if topic is None or _topic_of(element) == topic
        ]
    if _key_of(struct) is None and topic is None:
        return _failed_in_order(request, struct, version, code)
    return []


def _failed_in_order(request: object, struct: type, version: int, code: ErrorCode) -> list[Any]:
    """As `_failed_elements`, for results that say what they are about by their order only, such as those of ACLs."""
    arrays = [field for field in definition_of(type(request)).fields if field.element is not None]
    assert len(arrays) == 1, "results in the order of one array"
    return [_failed_element(element, struct, version, code) for element in getattr(request, arrays[0].name)]


def _failed_element(element: object, struct: type, version: int, code: ErrorCode) -> Any:
    failed = blank(struct)
    for field in definition_of(struct).fields:
        if version not in field.versions:
            continue
        if field.name == _ERROR_CODE:
            _set_error(failed, version, code)
        elif (inner := _struct_of(field)) is not None and _has_error(inner):
            source = element if dataclasses.is_dataclass(element) else None
            if source is not None:
                setattr(failed, field.name, _failed_elements(source, inner, version, code, None))
        elif not dataclasses.is_dataclass(element):
            if field.name == _key_of(struct):
                setattr(failed, field.name, element)
        elif (
            field.name != _ERROR_MESSAGE
            and (field.default is dataclasses.MISSING or field.role is Role.TOPIC or field.name == _TOPIC_ID)
            and (source_field := _field_like(type(element), field)) is not None
        ):
            setattr(failed, field.name, getattr(element, source_field.name))
    return failed


def _corresponds(element: Field, struct: type) -> bool:
    """Return whether elements of a request, structs or plain values, are what structs of a response are about."""
    if element.struct is None:
        key = _key_of(struct)
        return any(field.name == key and field.kind == element.kind for field in definition_of(struct).fields)
    key = _key_of(struct)
    key_field = next((field for field in definition_of(struct).fields if field.name == key), None)
    return key_field is not None and _field_like(element.struct, key_field) is not None


def _key_of(struct: type) -> str | None:
    """Return the field that says what an element is about: a topic or partition, else the first that is no error."""
    fields = definition_of(struct).fields
    for field in fields:
        if field.role is not None:
            return field.name
    return next(
        (field.name for field in fields if field.element is None and field.name not in {_ERROR_CODE, _ERROR_MESSAGE}),
        None,
    )


def _field_like(struct: type, wanted: Field) -> Field | None:
    """Return the field with the role or the name of another one."""
    for field in definition_of(struct).fields:
        is_same = field.role is wanted.role if wanted.role is not None else field.name == wanted.name
        if is_same and field.kind == wanted.kind and field.name != _ERROR_MESSAGE:
            return field
    return None


def _struct_of(field: Field) -> type | None:
    """Return the class of the elements of an array."""
    return None if field.element is None else field.element.struct


def _has_error(struct: type) -> bool:
    return any(
        field.name == _ERROR_CODE or ((inner := _struct_of(field)) is not None and _has_error(inner))
        for field in definition_of(struct).fields
    )


def _has_topics(field: Field) -> bool:
    element = field.element
    if element is None:
        return False
    return element.role is Role.TOPIC or (
        element.struct is not None and any(inner.role is Role.TOPIC for inner in definition_of(element.struct).fields)
    )


def _has_errors_of_topics(fields: tuple[Field, ...]) -> bool:
    return any(
        _has_topics(field) and (struct := _struct_of(field)) is not None and _has_error(struct) for field in fields
    )


def _topic_of(element: object) -> str | None:
    if not dataclasses.is_dataclass(element):
        return element if isinstance(element, str) else None
    for field in definition_of(type(element)).fields:
        if field.role is Role.TOPIC:
            name = getattr(element, field.name)
            return name if isinstance(name, str) else None
    return None
