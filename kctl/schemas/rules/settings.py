"""Compatibility levels and modes, of the registry, of contexts and of subjects.  Pure."""

from __future__ import annotations

from kctl.schemas.refusals import (
    LEVELS_TEXT,
    MODES_TEXT,
    Refused,
    invalid_subject,
    level_not_configured,
    mode_not_configured,
    not_permitted,
    reference_exists,
    subject_not_found,
)
from kctl.schemas.rules.deleting import refuse_read_only
from kctl.schemas.rules.registry import Registry
from kctl.schemas.rules.request import Answer, Request
from kctl.schemas.state import DEFAULT_LEVEL, DEFAULT_MODE
from kctl.schemas.subjects import is_valid, normalized
from kctl.schemas.topic_records import ConfigSet, ModeSet, SubjectCleared, TopicRecord, VersionRemoved, record_of

LEVELS = (*("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"),)
MODES = ("READWRITE", "READONLY", "IMPORT")


def _scope(subject: str, *, checks: bool = True) -> str:
    """Return the key of settings; empty for those of the registry.  Raises Refused."""
    if checks and subject and not is_valid(subject, for_settings=True):
        raise invalid_subject(subject[:200])
    return normalized(subject)


def get_config(registry: Registry, request: Request, subject: str = "") -> Answer:
    """GET /config and /config/SUBJECT.  Raises Refused."""
    scope = _scope(subject, checks=False)
    if not scope or request.flag("defaultToGlobal"):
        return Answer(registry.state.config(scope))
    config = registry.state.own_config(scope)
    if config is None:
        raise level_not_configured(scope)
    return Answer(config)


def set_config(registry: Registry, request: Request, subject: str = "") -> Answer:
    """PUT /config and /config/SUBJECT.  Raises Refused."""
    document = {
        name: value for name, value in request.document("compatibility", "normalize").items() if value is not None
    }
    level, normalize = document.get("compatibility"), document.get("normalize")
    is_level = isinstance(level, str) and level.upper() in LEVELS
    if not (is_level or (level is None and normalize is not None)) or not isinstance(normalize, bool | None):
        raise Refused(42203, LEVELS_TEXT)
    scope = _scope(subject)
    refuse_read_only(registry, scope)
    changes: dict[str, str | bool] = {} if level is None else {"compatibilityLevel": str(level).upper()}
    if normalize is not None:
        changes["normalize"] = normalize
    merged = {**(registry.state.own_config(scope) or {}), **changes}
    return Answer(document, (record_of(ConfigSet(scope, merged)),))


def delete_config(registry: Registry, request: Request, subject: str = "") -> Answer:
    """DELETE /config and /config/SUBJECT.  Raises Refused."""
    del request
    scope = _scope(subject, checks=False)
    config = registry.state.own_config(scope)
    if config is None and scope:
        raise subject_not_found(scope)
    refuse_read_only(registry, scope)
    records = () if config is None else (record_of(ConfigSet(scope, None)),)
    return Answer(config or {"compatibilityLevel": DEFAULT_LEVEL}, records)


def get_mode(registry: Registry, request: Request, subject: str = "") -> Answer:
    """GET /mode and /mode/SUBJECT.  Raises Refused."""
    scope = _scope(subject, checks=False)
    if not scope or request.flag("defaultToGlobal"):
        return Answer({"mode": registry.state.mode(scope)})
    mode = registry.state.own_mode(scope)
    if mode is None:
        raise mode_not_configured(scope)
    return Answer({"mode": mode})


def set_mode(registry: Registry, request: Request, subject: str = "") -> Answer:
    """PUT /mode and /mode/SUBJECT.  Raises Refused."""
    wanted = request.document("mode").get("mode")
    scope, mode = _scope(subject), str(wanted).upper()
    if not isinstance(wanted, str) or mode not in MODES:
        is_forward = mode == "FORWARD"
        raise Refused(42204, "The mode FORWARD is not supported by this registry" if is_forward else MODES_TEXT)
    records: list[TopicRecord] = []
    if mode == "IMPORT" and registry.state.mode(scope) != "IMPORT" and not request.flag("force"):
        records = _cleared(registry, scope)
    return Answer({"mode": wanted}, (*records, record_of(ModeSet(scope, mode))))


def _cleared(registry: Registry, scope: str) -> list[TopicRecord]:
    """Return the records that remove deleted versions before an import.  Raises Refused if there are others."""
    state = registry.state
    if state.subjects_of(scope):
        raise not_permitted("Cannot import since found existing subjects")
    subjects = state.subjects_of(scope, includes_deleted=True)
    deleted = [stored for subject in subjects for stored in state.versions(subject, includes_deleted=True)]
    for stored in deleted:
        if state.referrers(stored.subject, stored.version, includes_deleted=True):
            raise reference_exists(stored.subject, stored.version)
    removed = [record_of(VersionRemoved(stored.subject, stored.version)) for stored in deleted]
    return [*removed, record_of(SubjectCleared(scope))]


def delete_mode(registry: Registry, request: Request, subject: str = "") -> Answer:
    """DELETE /mode and /mode/SUBJECT.  Raises Refused."""
    if request.flag("recursive"):
        raise Refused(422, "recursive=true is not supported by this registry")
    scope = _scope(subject, checks=False)
    mode = registry.state.own_mode(scope)
    if mode is None and scope:
        raise subject_not_found(scope)
    records = () if mode is None else (record_of(ModeSet(scope, None)),)
    return Answer({"mode": mode or DEFAULT_MODE}, records)
