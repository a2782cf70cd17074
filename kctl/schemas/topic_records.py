"""The records of the topic `_schemas`, in Confluent's format: JSON keys and values.  Pure.

{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}    the version; null removes it
{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}        all versions up to `version` are deleted (softly)
{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}         deleted versions of the subject are forgotten
{"keytype":"CONFIG","subject":"s","magic":0}                compatibility level; without subject the global one
{"keytype":"MODE","subject":"s","magic":0}                  the mode, likewise
{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}
{"keytype":"NOOP","magic":0}                                nothing
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from kctl.client.registry.schema import Reference
from kctl.output.quantities import INT32_MAX, is_integer

AVRO = "AVRO"
_TENANT = "default"


class SchemaText(NamedTuple):
    """What has an id: equal ones have the same in a context."""

    type: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[Reference, ...] = ()


class StoredVersion(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: SchemaText
    is_deleted: bool = False


class TopicRecord(NamedTuple):
    """A record to write, or one that was read."""

    key: bytes
    value: bytes | None


class VersionRemoved(NamedTuple):
    """A version no longer exists."""

    subject: str
    version: int


class SubjectDeleted(NamedTuple):
    """All versions up to this one are deleted."""

    subject: str
    version: int


class SubjectCleared(NamedTuple):
    """The deleted versions of a subject no longer exist."""

    subject: str


class ConfigSet(NamedTuple):
    """The settings of a subject, a context or, if it is empty, the registry; None for those of the parent."""

    subject: str
    config: dict[str, Any] | None


class ModeSet(NamedTuple):
    """The mode of a subject, a context or, if it is empty, the registry; None for that of the parent."""

    subject: str
    mode: str | None


Change = StoredVersion | VersionRemoved | SubjectDeleted | SubjectCleared | ConfigSet | ModeSet


class UnreadableRecord(ValueError):
    """A record that is not in the format."""


def record_of(change: Change) -> TopicRecord:
    """Return the record of a change."""
    match change:
        case StoredVersion():
            return TopicRecord(_version_key(change.subject, change.version), _json(_value_of(change)))
        case VersionRemoved(subject, version):
            return TopicRecord(_version_key(subject, version), None)
        case SubjectDeleted(subject, version):
            return TopicRecord(_key("DELETE_SUBJECT", subject), _json({"subject": subject, "version": version}))
        case SubjectCleared(subject):
            return TopicRecord(_key("CLEAR_SUBJECT", subject), _json({"subject": subject}))
        case ConfigSet(subject, config):
            return TopicRecord(_key("CONFIG", subject), _settings(subject, config))
        case ModeSet(subject, mode):
            return TopicRecord(_key("MODE", subject), _settings(subject, None if mode is None else {"mode": mode}))


def context_record(context: str) -> TopicRecord:
    """Return the record that other registries list a context by."""
    value = {"tenant": _TENANT, "context": context}
    return TopicRecord(_json({"keytype": "CONTEXT", **value, "magic": 0}), _json(value))


def change_of(record: TopicRecord) -> Change | None:
    """Return the change of a record; None for one without an effect.  Raises UnreadableRecord."""
    try:
        key = json.loads(record.key)
        value = None if record.value is None else json.loads(record.value)
    except (ValueError, RecursionError):
        raise UnreadableRecord("its key or value is not JSON") from None
    if not isinstance(key, dict) or not isinstance(value, dict | None):
        raise UnreadableRecord("its key or value is not a JSON object")
    subject = key.get("subject") or ""
    if not isinstance(subject, str):
        raise UnreadableRecord("its subject is not a string")
    match key.get("keytype"):
        case "SCHEMA":
            version = _integer(key, "version")
            return VersionRemoved(subject, version) if value is None else _version_of(subject, version, value)
        case "DELETE_SUBJECT" if value is not None:
            return SubjectDeleted(subject, _integer(value, "version"))
        case "CLEAR_SUBJECT" if value is not None:
            return SubjectCleared(subject)
        case "CONFIG":
            config = None if value is None else {name: value[name] for name in value if name != "subject"}
            return ConfigSet(subject, config or None)
        case "MODE":
            mode = None if value is None else value.get("mode")
            if not isinstance(mode, str | None):
                raise UnreadableRecord("its mode is not a string")
            return ModeSet(subject, mode)
    return None


def _version_of(subject: str, version: int, value: dict[str, Any]) -> StoredVersion:
    text, kind = value.get("schema"), value.get("schemaType") or AVRO
    references = value.get("references") or []
    if not isinstance(text, str) or not isinstance(kind, str) or not isinstance(references, list):
        raise UnreadableRecord("its value has no schema")
    schema = SchemaText(kind, text, tuple(map(_reference, references)))
    return StoredVersion(subject, version, _integer(value, "id"), schema, value.get("deleted") is True)


def _reference(document: Any) -> Reference:
    match document:
        case {"name": str(name), "subject": str(subject), "version": int(version)}:
            return Reference(name, subject, version)
    raise UnreadableRecord("a reference has no name, subject or version")


def _value_of(stored: StoredVersion) -> dict[str, Any]:
    schema = stored.schema
    value: dict[str, Any] = {"subject": stored.subject, "version": stored.version, "id": stored.id}
    if schema.type != AVRO:
        value["schemaType"] = schema.type
    if schema.references:
        value["references"] = [reference._asdict() for reference in schema.references]
    return {**value, "schema": schema.text, "deleted": stored.is_deleted}


def _settings(subject: str, values: dict[str, Any] | None) -> bytes | None:
    return None if values is None else _json({**({"subject": subject} if subject else {}), **values})


def _version_key(subject: str, version: int) -> bytes:
    return _json({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _key(kind: str, subject: str) -> bytes:
    return _json({"keytype": kind, **({"subject": subject} if subject else {}), "magic": 0})


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _integer(document: dict[str, Any], name: str) -> int:
    number = document.get(name)
    if not is_integer(number, low=0, high=INT32_MAX):
        raise UnreadableRecord(f"its {name} is not a number")
    return int(number or 0)
