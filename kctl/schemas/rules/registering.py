"""Register, look up and test schemas."""

from __future__ import annotations

from typing import Any

from kctl.limits import Subject, bound
from kctl.schemas.refusals import (
    Refused,
    incompatible,
    invalid_schema,
    invalid_subject,
    not_permitted,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from kctl.schemas.rules.registry import Registry
from kctl.schemas.rules.request import LATEST, Answer, Request, SchemaRequest, schema_request, version_number
from kctl.schemas.subjects import is_valid, normalized, subject_name
from kctl.schemas.topic_records import SchemaText, StoredVersion, TopicRecord, VersionRemoved, context_record, record_of

VERSIONS_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "versions of all subjects, also deleted ones",
    100_000,
    "versions",
    on_excess="registering fails with error 42209",
)


def register(registry: Registry, request: Request, subject: str) -> Answer:
    """POST /subjects/SUBJECT/versions.  Raises Refused."""
    wanted = schema_request(request)
    if not is_valid(subject):
        raise invalid_subject(subject[:200])
    subject = normalized(subject)
    state, context = registry.state, subject_name(subject).context
    _check_mode(registry, subject, wanted)
    is_import = state.mode(subject) == "IMPORT"
    normalizes = registry.normalizes(subject, asked=request.flag("normalize"))
    parsed, schema = registry.parsed(subject, wanted.type, wanted.text, wanted.references, normalizes=normalizes)
    known_id = state.id_of(context, schema)
    versions = state.versions(subject)
    is_known = wanted.id in {None, known_id} and wanted.version is None
    if is_known and any(stored.id == known_id for stored in versions):
        return Answer({"id": known_id})
    if not is_import and not request.flag("force"):
        messages = registry.messages(subject, parsed, versions)
        if messages:
            raise incompatible(subject, messages)
    if state.version_count >= VERSIONS_MAX:
        raise Refused(42209, f"Register operation failed because there are {VERSIONS_MAX:,} versions")
    next_version = state.next_version(subject)
    if not is_import and wanted.version not in {None, next_version}:
        raise invalid_schema("Version is not one more than previous version")
    if wanted.id is not None:
        _check_id(registry, context, wanted.id, schema)
    schema_id = wanted.id or known_id or state.next_id(context)
    stored = StoredVersion(subject, wanted.version or next_version, schema_id, schema)
    return Answer({"id": schema_id}, tuple(_records(registry, stored)))


def _check_mode(registry: Registry, subject: str, wanted: SchemaRequest) -> None:
    mode, context = registry.state.mode(subject), subject_name(subject).context
    where = f"Subject {subject} in context {context}"
    if mode == "READONLY":
        raise not_permitted(f"{where} is in read-only mode")
    if wanted.id is not None and mode != "IMPORT":
        raise not_permitted(f"{where} is not in import mode")
    if wanted.id is None and mode != "READWRITE":
        raise not_permitted(f"{where} is not in read-write mode")


def _check_id(registry: Registry, context: str, schema_id: int, schema: SchemaText) -> None:
    if any(stored.schema != schema for stored in registry.state.by_id(context, schema_id)):
        raise not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")


def _records(registry: Registry, stored: StoredVersion) -> list[TopicRecord]:
    """Return the version, and without those of the same schema that were deleted before and nothing refers to."""
    state, context = registry.state, subject_name(stored.subject).context
    records = [] if context in state.contexts() else [context_record(context)]
    for old in state.versions(stored.subject, includes_deleted=True):
        is_same = old.is_deleted and old.id == stored.id and old.version < stored.version
        if is_same and not state.referrers(old.subject, old.version, includes_deleted=True):
            records.append(record_of(VersionRemoved(old.subject, old.version)))
    return [*records, record_of(stored)]


def look_up(registry: Registry, request: Request, subject: str) -> Answer:
    """POST /subjects/SUBJECT.  Raises Refused."""
    wanted, subject = schema_request(request), normalized(subject)
    normalizes = registry.normalizes(subject, asked=request.flag("normalize"))
    _, schema = registry.parsed(subject, wanted.type, wanted.text, wanted.references, normalizes=normalizes)
    versions = registry.state.versions(subject, includes_deleted=request.flag("deleted"))
    found = [stored for stored in versions if stored.schema == schema]
    if not found:
        raise schema_not_found() if versions else subject_not_found(subject)
    return Answer(registry.shown_version(found[-1], request.query.get("format", "")))


def test_version(registry: Registry, request: Request, subject: str, version: str) -> Answer:
    """POST /compatibility/subjects/SUBJECT/versions/VERSION.  Raises Refused."""
    subject, number = normalized(subject), version_number(version)
    versions = registry.state.versions(subject)
    compared = versions[-1:] if number == LATEST else [stored for stored in versions if stored.version == number]
    if not compared and number != LATEST:
        raise version_not_found(number)
    return _test(registry, request, subject, compared)


def test_subject(registry: Registry, request: Request, subject: str) -> Answer:
    """POST /compatibility/subjects/SUBJECT/versions.  Raises Refused."""
    subject = normalized(subject)
    return _test(registry, request, subject, registry.state.versions(subject))


def _test(registry: Registry, request: Request, subject: str, versions: list[StoredVersion]) -> Answer:
    wanted, is_verbose = schema_request(request), request.flag("verbose")
    normalizes = registry.normalizes(subject, asked=request.flag("normalize"))
    try:
        parsed, _ = registry.parsed(subject, wanted.type, wanted.text, wanted.references, normalizes=normalizes)
        messages = registry.messages(subject, parsed, versions)
    except Refused as refused:
        if not is_verbose:
            raise
        messages = [str(refused)]
    document: dict[str, Any] = {"is_compatible": not messages}
    return Answer({**document, "messages": messages} if is_verbose else document)
