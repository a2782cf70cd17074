"""The state of a registry with the parser of its schemas: what all rules use."""

from __future__ import annotations

from typing import Any

from kctl.client.registry.schema import Reference
from kctl.schemas.formats.parsed import InvalidSchema, ParsedSchema
from kctl.schemas.formats.protobuf_schema import descriptor_text
from kctl.schemas.formats.schema_parser import SchemaParser, incompatibilities, shown
from kctl.schemas.refusals import Refused, invalid_schema, subject_not_found, version_not_found
from kctl.schemas.rules.request import LATEST, REFERENCES_MAX
from kctl.schemas.state import RegistryState
from kctl.schemas.subjects import within
from kctl.schemas.topic_records import AVRO, SchemaText, StoredVersion

TRANSITIVE = "_TRANSITIVE"


class Registry:
    """What requests are answered from."""

    def __init__(self, parser: SchemaParser) -> None:
        self.state = RegistryState()
        self._parser = parser

    def parsed(
        self, subject: str, kind: str, text: str, references: tuple[Reference, ...], *, normalizes: bool = False
    ) -> tuple[ParsedSchema, SchemaText]:
        """Return a schema, and as it is stored.  Raises Refused with code 42201."""
        try:
            resolved = tuple(self._resolved(subject, reference) for reference in references)
            used = self._used(subject, resolved)
            parsed = self._parser.parse(kind, text, used, normalizes=normalizes)
        except InvalidSchema as error:
            raise invalid_schema(f"type {kind[:100]}, details: {error}") from None
        return parsed, SchemaText(kind, parsed.text, resolved)

    def parsed_version(self, stored: StoredVersion) -> ParsedSchema:
        """Return the schema of a version.  Raises Refused with code 42201 for one that cannot be parsed."""
        schema = stored.schema
        return self.parsed(stored.subject, schema.type, schema.text, schema.references)[0]

    def normalizes(self, subject: str, *, asked: bool) -> bool:
        """Return whether schemas of a subject are normalized."""
        return asked or self.state.config(subject).get("normalize") is True

    def _resolved(self, subject: str, reference: Reference) -> Reference:
        """Return a reference to a version by its number.  Raises InvalidSchema."""
        target = within(subject, reference.subject)
        versions = self.state.versions(target, includes_deleted=reference.version != LATEST)
        if reference.version == LATEST and versions:
            return reference._replace(version=versions[-1].version)
        if not any(stored.version == reference.version for stored in versions):
            raise InvalidSchema(f'No schema reference found for subject "{target}" and version {reference.version}')
        return reference

    def _used(self, subject: str, references: tuple[Reference, ...]) -> dict[str, str]:
        """Return the texts of all schemas that are used, by name, each after those that it uses.

        Raises InvalidSchema.
        """
        texts: dict[str, str] = {}

        def add(parent: str, wanted: tuple[Reference, ...]) -> None:
            for reference in wanted:
                if reference.name in texts:
                    continue
                place = self.state.place_of(reference, parent)
                stored = self.state.version(*place, includes_deleted=True)
                if stored is None:
                    raise InvalidSchema(f'No schema reference found for subject "{place[0]}" and version {place[1]}')
                if len(texts) >= REFERENCES_MAX:
                    raise InvalidSchema(f"it uses more than {REFERENCES_MAX} schemas")
                add(stored.subject, stored.schema.references)
                texts[reference.name] = stored.schema.text

        add(subject, references)
        return texts

    def messages(self, subject: str, new: ParsedSchema, versions: list[StoredVersion]) -> list[str]:
        """Return why the level of a subject does not permit a schema after these versions.  Raises Refused."""
        level = str(self.state.config(subject)["compatibilityLevel"])
        compared = versions[::-1] if level.endswith(TRANSITIVE) else versions[-1:]
        for stored in compared if level != "NONE" else ():
            old = self.parsed_version(stored)
            try:
                messages = incompatibilities(level, new, old)
            except InvalidSchema as error:
                raise invalid_schema(str(error)) from None
            if messages:
                details = shown(stored.version, old) if new.type == old.type else []
                return [*messages, *details, f"{{validateFields: 'false', compatibility: '{level}'}}"]
        return []

    def require_version(self, subject: str, number: int, *, includes_deleted: bool = False) -> StoredVersion:
        """Return a version, or the latest one.  Raises Refused."""
        versions = self.state.versions(subject, includes_deleted=includes_deleted)
        if not versions:
            raise subject_not_found(subject)
        found = [stored for stored in versions if number in {LATEST, stored.version}]
        if not found:
            raise version_not_found(number)
        return found[-1]

    def shown_text(self, stored: StoredVersion, form: str) -> str:
        """Return the text of a schema in a format of the API.  Raises Refused."""
        if form == "serialized" and stored.schema.type == "PROTOBUF":
            return descriptor_text(self.parsed_version(stored))
        if form not in {"", "default", "serialized"}:
            raise Refused(422, f"the format '{form[:100]}' is not supported by this registry; supported is serialized")
        return stored.schema.text

    def shown_schema(self, stored: StoredVersion, form: str) -> dict[str, Any]:
        """Return type, references and text as responses have them.  Raises Refused."""
        schema = stored.schema
        document: dict[str, Any] = {} if schema.type == AVRO else {"schemaType": schema.type}
        if schema.references:
            document["references"] = [reference._asdict() for reference in schema.references]
        return {**document, "schema": self.shown_text(stored, form)}

    def shown_version(self, stored: StoredVersion, form: str = "") -> dict[str, Any]:
        """Return a version as responses have it.  Raises Refused."""
        place = {"subject": stored.subject, "version": stored.version, "id": stored.id}
        return {**place, **self.shown_schema(stored, form)}
