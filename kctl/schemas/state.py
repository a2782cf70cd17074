"""The state of a registry: what the records of its topic say, in their order.  Pure.

Ids are per context, as Confluent's are: the same text has one id in all subjects of a context.
"""

from __future__ import annotations

from typing import Any

from kctl.client.registry.schema import Reference
from kctl.schemas.subjects import DEFAULT_CONTEXT, GLOBAL_SETTINGS, matches_prefix, subject_name, within
from kctl.schemas.topic_records import (
    Change,
    ConfigSet,
    ModeSet,
    SchemaText,
    StoredVersion,
    SubjectCleared,
    SubjectDeleted,
    VersionRemoved,
)

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"

Place = tuple[str, int]
"""A subject and the number of a version."""


class RegistryState:
    """Versions, ids and settings.  Owner: the thread that serves."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[int, StoredVersion]] = {}
        self._places: dict[tuple[str, int], set[Place]] = {}
        """Versions by context and id."""
        self._ids: dict[tuple[str, SchemaText], int] = {}
        self._max_ids: dict[str, int] = {}
        self._referrers: dict[Place, set[Place]] = {}
        """Versions that refer to a version."""
        self._configs: dict[str, dict[str, Any]] = {}
        self._modes: dict[str, str] = {}
        self.version_count = 0
        """All versions, also deleted ones."""

    def apply(self, change: Change) -> None:
        """Take note of a record."""
        match change:
            case StoredVersion():
                self._remove((change.subject, change.version))
                self._add(change)
            case VersionRemoved(subject, version):
                self._remove((subject, version))
            case SubjectDeleted(subject, version):
                for stored in self.versions(subject):
                    if stored.version <= version:
                        self._versions[subject][stored.version] = stored._replace(is_deleted=True)
            case SubjectCleared(subject):
                for name in self.subjects_of(subject, includes_deleted=True):
                    for stored in self.versions(name, includes_deleted=True):
                        if stored.is_deleted:
                            self._remove((name, stored.version))
            case ConfigSet(subject, config):
                _set_or_remove(self._configs, subject, config)
            case ModeSet(subject, mode):
                _set_or_remove(self._modes, subject, mode)

    def _add(self, stored: StoredVersion) -> None:
        context = subject_name(stored.subject).context
        place = (stored.subject, stored.version)
        self._versions.setdefault(stored.subject, {})[stored.version] = stored
        self._places.setdefault((context, stored.id), set()).add(place)
        self._ids[context, stored.schema] = stored.id
        self._max_ids[context] = max(self._max_ids.get(context, 0), stored.id)
        for reference in stored.schema.references:
            self._referrers.setdefault(self.place_of(reference, stored.subject), set()).add(place)
        self.version_count += 1

    def _remove(self, place: Place) -> None:
        subject, version = place
        stored = self._versions.get(subject, {}).pop(version, None)
        if stored is None:
            return
        if not self._versions[subject]:
            del self._versions[subject]
        context = subject_name(subject).context
        places = self._places[context, stored.id]
        places.discard(place)
        if not places:
            del self._places[context, stored.id]
            self._ids.pop((context, stored.schema), None)
        for reference in stored.schema.references:
            self._referrers.get(self.place_of(reference, subject), set()).discard(place)
        self.version_count -= 1

    @staticmethod
    def place_of(reference: Reference, subject: str) -> Place:
        """Return the version that a schema of `subject` refers to."""
        return within(subject, reference.subject), reference.version

    def subjects(self, prefix: str, *, includes_deleted: bool = False) -> list[str]:
        """Return the subjects with this prefix (see `matches_prefix`) that have versions, sorted."""
        return sorted(
            name
            for name, versions in self._versions.items()
            if matches_prefix(name, prefix) and (includes_deleted or not all(v.is_deleted for v in versions.values()))
        )

    def subjects_of(self, scope: str, *, includes_deleted: bool = False) -> list[str]:
        """Return a subject, or those of a context, if they have versions; an empty scope is the default context."""
        if subject_name(scope).subject:
            return [scope] if self.versions(scope, includes_deleted=includes_deleted) else []
        return self.subjects(scope, includes_deleted=includes_deleted)

    def contexts(self) -> list[str]:
        """Return the contexts of all subjects, sorted, and the default context."""
        return sorted({DEFAULT_CONTEXT, *(subject_name(subject).context for subject in self._versions)})

    def versions(self, subject: str, *, includes_deleted: bool = False) -> list[StoredVersion]:
        """Return the versions of a subject, the first one first."""
        found = self._versions.get(subject, {})
        return [found[number] for number in sorted(found) if includes_deleted or not found[number].is_deleted]

    def version(self, subject: str, number: int, *, includes_deleted: bool = False) -> StoredVersion | None:
        """Return a version of a subject."""
        found = self._versions.get(subject, {}).get(number)
        return found if found is not None and (includes_deleted or not found.is_deleted) else None

    def next_version(self, subject: str) -> int:
        """Return the number of the next version, after those that were deleted too."""
        return max(self._versions.get(subject, {}), default=0) + 1

    def id_of(self, context: str, schema: SchemaText) -> int | None:
        """Return the id that the schema has in a context."""
        return self._ids.get((context, schema))

    def next_id(self, context: str) -> int:
        """Return an id that the context has not used."""
        return self._max_ids.get(context, 0) + 1

    def by_id(self, context: str, schema_id: int) -> list[StoredVersion]:
        """Return the versions with an id, also deleted ones, by subject and number."""
        places = sorted(self._places.get((context, schema_id), ()))
        return [self._versions[subject][version] for subject, version in places]

    def max_id(self, context: str) -> int:
        """Return the largest id that the context has used; 0 for none."""
        return self._max_ids.get(context, 0)

    def referrers(self, subject: str, version: int, *, includes_deleted: bool = False) -> list[StoredVersion]:
        """Return the versions that refer to a version, by subject and number."""
        places = sorted(self._referrers.get((subject, version), ()))
        found = [self._versions[name][number] for name, number in places]
        return [stored for stored in found if includes_deleted or not stored.is_deleted]

    def own_config(self, subject: str) -> dict[str, Any] | None:
        """Return the settings of a subject or context; None if it has none."""
        return self._configs.get(subject)

    def own_mode(self, subject: str) -> str | None:
        """Return the mode of a subject or context; None if it has none."""
        return self._modes.get(subject)

    def config(self, subject: str) -> dict[str, Any]:
        """Return the settings that apply to a subject."""
        for name in _scopes(subject):
            found = self._configs.get(name)
            if found is not None:
                return {"compatibilityLevel": DEFAULT_LEVEL, **found}
        return {"compatibilityLevel": DEFAULT_LEVEL}

    def mode(self, subject: str) -> str:
        """Return the mode that applies to a subject."""
        return next((self._modes[name] for name in _scopes(subject) if name in self._modes), DEFAULT_MODE)


def _scopes(subject: str) -> tuple[str, ...]:
    """Return where settings are looked for: the subject, its context, all contexts."""
    return subject, subject_name(subject).context_text, GLOBAL_SETTINGS


def _set_or_remove(values: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
