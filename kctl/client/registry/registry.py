"""The schema registry of a program: schemas and codecs that its serializers and deserializers share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Any, Self, TypeVar

from kctl.client.registry.client import REGISTRY_TIMEOUT_MS, RegistryClient, keep
from kctl.client.registry.codecs import codec_of
from kctl.client.registry.schema import (
    NO_ID,
    Reference,
    RegisteredSchema,
    RegistryUnreachable,
    Schema,
    SchemaError,
    registry_settings,
)
from kctl.errors import UsageError
from kctl.output.quantities import INT32_MAX, is_integer
from kctl.system.reference_cycles import copy_of

T = TypeVar("T")

FAILURE_MAX_AGE_MS = 30_000
"""How long a schema that the registry lacks or refuses, or that is not valid, is not requested again."""
UNREACHABLE_MAX_AGE_MS = 1_000
"""How long an unreachable registry is not tried again."""
LATEST_MAX_AGE_MS = 300_000
_KINDS = ("AVRO", "JSON", "PROTOBUF")


class SchemaRegistry:
    """A registry with the HTTP API of Confluent's.  Several threads may use it; one request is in progress at a time.

    A schema is fetched once, and registered or looked up once for a subject, as long as it is among the
    REGISTRY_SCHEMAS_MAX that are kept.  A call blocks for at most `timeout_ms`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = REGISTRY_TIMEOUT_MS,
        latest_max_age_ms: int = LATEST_MAX_AGE_MS,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`url` is one address, or several separated by commas, which are tried in this order.

        `properties` are those of Confluent's clients for authentication and TLS (docs/schema-registry.md), and have
        schema.registry.url if `url` is None.  The latest version of a subject is looked up again after
        `latest_max_age_ms`.  Raises ConfigError and UsageError.
        """
        if timeout_ms <= 0:
            raise UsageError(f"timeout_ms must be positive, not {timeout_ms}")
        settings = registry_settings(properties or {}, url)
        if settings is None:
            raise UsageError("url is missing: give the address of the schema registry, http://HOST:PORT")
        self._client = RegistryClient(settings, timeout_ms)
        self.latest_max_age_s = latest_max_age_ms / 1000
        self._monotonic_s = monotonic_s
        self._one_request = RLock()
        self._codecs: dict[int, Any] = {}
        self._registered: dict[object, RegisteredSchema] = {}
        self._latest: dict[str, tuple[Schema, float]] = {}
        self._failures: dict[object, tuple[SchemaError, float]] = {}
        self._unreachable: tuple[RegistryUnreachable, float] | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **options: Any) -> Self:
        """Return the registry of schema.registry.url; the options are those of the constructor."""
        return cls(properties=properties, **options)

    # Schemas.

    def schema(self, schema_id: int) -> Schema:
        """Return the schema with this id, and those that it uses.  Raises RegistryUnreachable and SchemaError."""
        if not is_integer(schema_id, high=INT32_MAX):
            raise UsageError(f"schema_id must be an int from 0 to {INT32_MAX}, not {schema_id!r}")
        with self._one_request:
            return self._attempt(("id", schema_id), lambda: self._client.by_id(schema_id))

    def version(self, subject: str, version: int) -> Schema:
        """Return a version of a subject.  Raises RegistryUnreachable and SchemaError."""
        if not is_integer(version, low=1, high=INT32_MAX):
            raise UsageError(f"version must be an int from 1 to {INT32_MAX}, not {version!r}; see latest()")
        with self._one_request:
            key = ("version", _checked_subject(subject), version)
            return self._attempt(key, lambda: self._client.of_subject(subject, str(version)))

    def latest(self, subject: str) -> Schema:
        """Return the latest version of a subject, at most `latest_max_age_ms` old.

        Raises RegistryUnreachable and SchemaError.
        """
        _checked_subject(subject)
        with self._one_request:
            known = self._latest.get(subject)
            if known is not None and self._monotonic_s() < known[1]:
                return known[0]
            schema = self._attempt(("latest", subject), lambda: self._client.of_subject(subject, "latest"))
            keep(self._latest, subject, (schema, self._monotonic_s() + self.latest_max_age_s))
            return schema

    def subjects(self) -> list[str]:
        """Return the names of all subjects, sorted.  Raises RegistryUnreachable and SchemaError."""
        with self._one_request:
            return self._attempt(("subjects",), self._client.subjects)

    def register(self, subject: str, text: str, kind: str = "AVRO", references: Sequence[Reference] = ()) -> int:
        """Return the id of a schema, which becomes a version of the subject unless it is one.

        `kind` is AVRO, JSON or PROTOBUF.  Raises RegistryUnreachable, and SchemaError for a schema that is not valid or
        not compatible with the versions of the subject.
        """
        return self.registered(subject, checked_schema(text, kind, references), registers=True).id

    def look_up(
        self, subject: str, text: str, kind: str = "AVRO", references: Sequence[Reference] = ()
    ) -> RegisteredSchema:
        """Id and version that a schema has in a subject.  Raises RegistryUnreachable and SchemaError."""
        return self.registered(subject, checked_schema(text, kind, references), registers=False)

    # What serializers and deserializers use.

    def registered(self, subject: str, schema: Schema, *, registers: bool) -> RegisteredSchema:
        """Id and, without `registers`, version in the subject.  Raises RegistryUnreachable and SchemaError."""
        key = (_checked_subject(subject), schema.type, schema.text, schema.references, registers)

        def request() -> RegisteredSchema:
            if registers:
                return RegisteredSchema(self._client.register(subject, schema), None)
            return self._client.look_up(subject, schema)

        with self._one_request:
            if key not in self._registered:
                keep(self._registered, key, self._attempt(key, request))
            return self._registered[key]

    def with_references(self, schema: Schema) -> Schema:
        """Return the schema with the texts of those that it uses.  Raises RegistryUnreachable and SchemaError."""
        if not schema.references:
            return schema
        with self._one_request:
            key = ("references", schema.references)
            return self._attempt(key, lambda: self._client.with_references(schema))

    def codec(self, schema_id: int) -> Any:
        """Return the codec of a schema.

        Raises RegistryUnreachable, SchemaError, and UsageError without its library.
        """
        known = self._codecs.get(schema_id)
        if known is None:
            with self._one_request:
                known = self._codecs.get(schema_id)
                if known is None:
                    known = self._attempt(("codec", schema_id), lambda: codec_of(self._client.by_id(schema_id)))
                    keep(self._codecs, schema_id, known)
        return known

    def known_codec(self, schema_id: int) -> Any | None:
        """Return the codec of a schema, None if it is not known yet; sends no request.

        Raises a failure that is kept.
        """
        known = self._codecs.get(schema_id)
        if known is None:
            self._raise_failure(("codec", schema_id))
        return known

    def _attempt(self, key: object, request: Callable[[], T]) -> T:
        self._raise_failure(key)
        try:
            result = request()
        except SchemaError as error:
            keep(self._failures, key, (copy_of(error), self._monotonic_s() + FAILURE_MAX_AGE_MS / 1000))
            raise
        except RegistryUnreachable as error:
            self._unreachable = copy_of(error), self._monotonic_s() + UNREACHABLE_MAX_AGE_MS / 1000
            raise
        self._failures.pop(key, None)
        return result

    def _raise_failure(self, key: object) -> None:
        for failure in (self._failures.get(key), self._unreachable):
            if failure is not None and self._monotonic_s() < failure[1]:
                raise copy_of(failure[0])


def checked_schema(text: str, kind: str, references: Sequence[Reference]) -> Schema:
    """Return the schema of a program, without the texts of its references.

    Raises UsageError, which names the argument.
    """
    if not isinstance(text, str):
        raise UsageError(f"the schema must be a str, not {type(text).__name__}")
    if kind not in _KINDS:
        raise UsageError(f"kind is {kind!r}; it must be one of {', '.join(_KINDS)}")
    for reference in references:
        if not isinstance(reference, Reference):
            raise UsageError(f"references must be Reference(name, subject, version), not {type(reference).__name__}")
    return Schema(NO_ID, kind, text, tuple(references))


def _checked_subject(subject: str) -> str:
    if not isinstance(subject, str) or not subject:
        raise UsageError(f"subject must be the name of a subject, not {subject!r}")
    return subject
