"""Delete versions and subjects, softly or permanently.  Pure."""

from __future__ import annotations

from kctl.schemas.refusals import (
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_soft_deleted,
    version_soft_deleted,
)
from kctl.schemas.rules.registry import Registry
from kctl.schemas.rules.request import LATEST, Answer, Request, version_number
from kctl.schemas.subjects import normalized, subject_name
from kctl.schemas.topic_records import ConfigSet, ModeSet, SubjectDeleted, TopicRecord, VersionRemoved, record_of


def delete_version(registry: Registry, request: Request, subject: str, version: str) -> Answer:
    """DELETE /subjects/SUBJECT/versions/VERSION.  Raises Refused."""
    subject, number, is_permanent = normalized(subject), version_number(version), request.flag("permanent")
    state = registry.state
    if number == LATEST and state.versions(subject):
        number = state.versions(subject)[-1].version
    stored = registry.require_version(subject, number, includes_deleted=True)
    if not is_permanent and stored.is_deleted:
        raise version_soft_deleted(subject, stored.version)
    refuse_read_only(registry, subject)
    if state.referrers(subject, stored.version, includes_deleted=is_permanent):
        raise reference_exists(subject, stored.version)
    if not is_permanent:
        return Answer(stored.version, (record_of(stored._replace(is_deleted=True)),))
    if not stored.is_deleted:
        raise version_not_soft_deleted(subject, stored.version)
    records = [record_of(VersionRemoved(subject, stored.version))]
    if len(state.versions(subject, includes_deleted=True)) == 1:
        records += _without_settings(registry, subject)
    return Answer(stored.version, tuple(records))


def delete_subject(registry: Registry, request: Request, subject: str) -> Answer:
    """DELETE /subjects/SUBJECT.  Raises Refused."""
    subject, is_permanent = normalized(subject), request.flag("permanent")
    state = registry.state
    if not state.versions(subject, includes_deleted=True):
        raise subject_not_found(subject)
    if not is_permanent and not state.versions(subject):
        raise subject_soft_deleted(subject)
    refuse_read_only(registry, subject)
    versions = state.versions(subject, includes_deleted=is_permanent)
    for stored in versions:
        referrers = state.referrers(subject, stored.version, includes_deleted=is_permanent)
        if any(referrer.subject != subject for referrer in referrers):
            raise reference_exists(subject, stored.version)
        if is_permanent and not stored.is_deleted:
            raise subject_not_soft_deleted(subject)
    numbers = [stored.version for stored in versions]
    if not is_permanent:
        return Answer(numbers, (record_of(SubjectDeleted(subject, numbers[-1])),))
    records = [record_of(VersionRemoved(subject, number)) for number in reversed(numbers)]
    return Answer(numbers, (*records, *_without_settings(registry, subject)))


def refuse_read_only(registry: Registry, subject: str) -> None:
    """Raise Refused if the mode of a subject does not permit changes."""
    if registry.state.mode(subject) == "READONLY":
        context = subject_name(subject).context
        raise not_permitted(f"Subject {subject} in context {context} is in read-only mode")


def _without_settings(registry: Registry, subject: str) -> list[TopicRecord]:
    records = []
    if registry.state.own_mode(subject) is not None:
        records.append(record_of(ModeSet(subject, None)))
    if registry.state.own_config(subject) is not None:
        records.append(record_of(ConfigSet(subject, None)))
    return records
