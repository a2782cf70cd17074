"""Subjects, versions and schemas by id."""

from __future__ import annotations

from kctl.output.quantities import INT32_MAX
from kctl.schemas.formats.schema_parser import TYPES
from kctl.schemas.refusals import Refused, path_not_found, schema_not_found, subject_not_found
from kctl.schemas.rules.registry import Registry
from kctl.schemas.rules.request import Answer, Request, version_number
from kctl.schemas.subjects import ALL_CONTEXTS, normalized, subject_name
from kctl.schemas.topic_records import StoredVersion


def list_subjects(registry: Registry, request: Request) -> Answer:
    """GET /subjects."""
    state, prefix = registry.state, request.query.get("subjectPrefix", ALL_CONTEXTS)
    everything = state.subjects(prefix, includes_deleted=True)
    present = state.subjects(prefix)
    if request.flag("deletedOnly"):
        # Subjects with a version that is deleted.
        return Answer(request.page([name for name in everything if _deleted(registry, name)]))
    return Answer(request.page(everything if request.flag("deleted") else present))


def _deleted(registry: Registry, subject: str) -> list[StoredVersion]:
    return [stored for stored in registry.state.versions(subject, includes_deleted=True) if stored.is_deleted]


def list_versions(registry: Registry, request: Request, subject: str) -> Answer:
    """GET /subjects/SUBJECT/versions.  Raises Refused."""
    subject = normalized(subject)
    is_deleted_only = request.flag("deletedOnly")
    includes_deleted = request.flag("deleted") or is_deleted_only
    if not registry.state.versions(subject, includes_deleted=includes_deleted):
        raise subject_not_found(subject)
    if request.flag("deletedAsNegative"):
        versions = registry.state.versions(subject, includes_deleted=True)
        return Answer(request.page([-stored.version if stored.is_deleted else stored.version for stored in versions]))
    versions = registry.state.versions(subject, includes_deleted=includes_deleted)
    return Answer(request.page([v.version for v in versions if v.is_deleted or not is_deleted_only]))


def get_version(registry: Registry, request: Request, subject: str, version: str) -> Answer:
    """GET /subjects/SUBJECT/versions/VERSION.  Raises Refused."""
    return Answer(
        registry.shown_version(_version(registry, request, subject, version), request.query.get("format", ""))
    )


def get_version_text(registry: Registry, request: Request, subject: str, version: str) -> Answer:
    """GET /subjects/SUBJECT/versions/VERSION/schema.  Raises Refused."""
    stored = _version(registry, request, subject, version)
    return Answer(registry.shown_text(stored, request.query.get("format", "")), is_text=True)


def _version(registry: Registry, request: Request, subject: str, version: str) -> StoredVersion:
    number = version_number(version)
    return registry.require_version(normalized(subject), number, includes_deleted=request.flag("deleted"))


def list_referrers(registry: Registry, request: Request, subject: str, version: str) -> Answer:
    """GET /subjects/SUBJECT/versions/VERSION/referencedby: ids.  Raises Refused."""
    stored = registry.require_version(normalized(subject), version_number(version), includes_deleted=True)
    includes_deleted = request.flag("deleted")
    found = registry.state.referrers(stored.subject, stored.version, includes_deleted=includes_deleted)
    return Answer(request.page(sorted({referrer.id for referrer in found})))


def list_schemas(registry: Registry, request: Request) -> Answer:
    """GET /schemas.  Raises Refused."""
    for name in ("ruleType", "aliases", "resourceType"):
        if request.query.get(name, "false") not in {"", "false"}:
            raise Refused(422, f"{name} is not supported by this registry")
    prefix, includes_deleted = request.query.get("subjectPrefix", ""), request.flag("deleted")
    subjects = registry.state.subjects(prefix or ALL_CONTEXTS, includes_deleted=includes_deleted)
    found = [v for subject in subjects for v in registry.state.versions(subject, includes_deleted=includes_deleted)]
    if request.flag("latestOnly"):
        found = list({stored.subject: stored for stored in found}.values())
    return Answer([registry.shown_version(stored) for stored in request.page(found)])


def list_types(registry: Registry, request: Request) -> Answer:
    """GET /schemas/types."""
    del registry, request
    return Answer(list(TYPES))


def list_contexts(registry: Registry, request: Request) -> Answer:
    """GET /contexts."""
    return Answer(request.page(registry.state.contexts()))


def get_root(registry: Registry, request: Request) -> Answer:
    """GET /: clients ask whether there is a server."""
    del registry, request
    return Answer({})


def get_schema(registry: Registry, request: Request, schema_id: str) -> Answer:
    """GET /schemas/ids/ID.  Raises Refused."""
    versions = _by_id(registry, request, schema_id)
    document = registry.shown_schema(versions[0], request.query.get("format", ""))
    if request.flag("fetchMaxId"):
        document["maxId"] = registry.state.max_id(subject_name(versions[0].subject).context)
    return Answer(document)


def get_schema_text(registry: Registry, request: Request, schema_id: str) -> Answer:
    """GET /schemas/ids/ID/schema.  Raises Refused."""
    versions = _by_id(registry, request, schema_id)
    return Answer(registry.shown_text(versions[0], request.query.get("format", "")), is_text=True)


def list_schema_subjects(registry: Registry, request: Request, schema_id: str) -> Answer:
    """GET /schemas/ids/ID/subjects.  Raises Refused."""
    return Answer(request.page(sorted({stored.subject for stored in _of_id(registry, request, schema_id)})))


def list_schema_versions(registry: Registry, request: Request, schema_id: str) -> Answer:
    """GET /schemas/ids/ID/versions.  Raises Refused."""
    found = _of_id(registry, request, schema_id)
    return Answer(request.page([{"subject": stored.subject, "version": stored.version} for stored in found]))


def _by_id(registry: Registry, request: Request, text: str) -> list[StoredVersion]:
    """Return the versions with an id, in the context of the parameter `subject`.  Raises Refused."""
    if not text.isdecimal() or not text.isascii() or len(text) > 10 or int(text) > INT32_MAX:
        raise path_not_found()
    context = subject_name(request.query.get("subject", "")).context
    versions = registry.state.by_id(context, int(text))
    if not versions:
        raise schema_not_found(int(text))
    return versions


def _of_id(registry: Registry, request: Request, text: str) -> list[StoredVersion]:
    try:
        versions = _by_id(registry, request, text)
    except Refused as refused:
        raise schema_not_found() if refused.code == 40403 else refused from None
    return [stored for stored in versions if request.flag("deleted") or not stored.is_deleted]
