"""Fetches and registers schemas over HTTP.  Responses are bounded in size and time, and cached.

Confluent's API: GET /schemas/ids/ID, /subjects/SUBJECT/versions and /subjects/SUBJECT/versions/VERSION; POST
/subjects/SUBJECT looks a schema up, and POST /subjects/SUBJECT/versions registers it.  With `format=serialized`, a
Protobuf schema is base64 of its FileDescriptorProto; other types ignore it.  DELETE removes subjects and versions; GET
and PUT /config/SUBJECT are its compatibility level, and POST /compatibility/subjects/SUBJECT/versions/VERSION compares
a schema with a version.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from kctl.client.connections.login.tokens import shut_down_after
from kctl.client.registry.schema import (
    Compatibility,
    CompatibilityLevel,
    Reference,
    RegisteredSchema,
    RegisteredVersion,
    RegistrySettings,
    RegistryUnreachable,
    Schema,
    SchemaError,
    SchemaNotFound,
    document_of,
    registered_of,
    schema_of,
)
from kctl.limits import Subject, bound
from kctl.output.quantities import INT32_MAX, is_integer
from kctl.security.tls import TlsSettings, client_context

REGISTRY_RESPONSE_BYTES_MAX = bound(
    Subject.COMMANDS,
    "response of a schema registry",
    4 << 20,
    "bytes",
    on_excess="the response is not used, and records with the schema are shown undecoded",
)
REGISTRY_TIMEOUT_MS = bound(
    Subject.COMMANDS,
    "time to get a schema and those that it uses from a registry",
    10_000,
    "ms",
    on_excess="records are shown undecoded, and the registry is not tried again for 30 s",
)
REGISTRY_VERSIONS_MAX = bound(
    Subject.COMMANDS,
    "versions of a subject of a registry that an export decodes",
    500,
    "schemas",
    on_excess="the export is refused before it starts",
)
REGISTRY_REFERENCES_MAX = bound(
    Subject.COMMANDS,
    "schemas that a schema of a registry uses, also indirectly",
    200,
    "schemas",
    on_excess="records with the schema are shown undecoded",
)
REGISTRY_SCHEMAS_MAX = bound(
    Subject.COMMANDS,
    "schemas of a registry that are kept, by id and by reference",
    1_000,
    "schemas",
    on_excess="the oldest is fetched again when it is needed",
)

_ERROR_CHARACTERS_MAX = 200
_REFUSALS = frozenset({http.client.NOT_FOUND, http.client.CONFLICT, http.client.UNPROCESSABLE_ENTITY})
"""Statuses about the schema or subject of the request, which another registry or attempt would give too."""
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryClient:
    """The schemas of one registry.  Calls block for at most REGISTRY_TIMEOUT_MS.  Owner: one thread."""

    def __init__(self, settings: RegistrySettings, timeout_ms: int = REGISTRY_TIMEOUT_MS) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._by_id: dict[int, Schema] = {}
        self._by_reference: dict[Reference, Schema] = {}

    def by_id(self, schema_id: int) -> Schema:
        """Return the schema with this id, and those that it uses.  Raises RegistryUnreachable and SchemaError."""
        if schema_id not in self._by_id:
            end_s = self._end_s()
            document = self._get(f"/schemas/ids/{schema_id}", f"schema with id {schema_id}", end_s)
            keep(self._by_id, schema_id, self._with_references(schema_of(document, schema_id), end_s))
        return self._by_id[schema_id]

    def of_subject(self, subject: str, version: str) -> Schema:
        """Return a version of a subject, or the `latest`.  Raises RegistryUnreachable and SchemaError."""
        end_s = self._end_s()
        return self._with_references(self._version(subject, version, end_s), end_s)

    def versions_of(self, subject: str) -> list[Schema]:
        """Return all versions of a subject, the first one first.  Raises RegistryUnreachable and SchemaError."""
        return [self.of_subject(subject, str(number)) for number in self.version_numbers(subject)]

    def version_numbers(self, subject: str, *, includes_deleted: bool = False) -> list[int]:
        """Return the numbers of the versions of a subject, ascending.  Raises RegistryUnreachable and SchemaError."""
        path = f"/subjects/{_segment(subject)}/versions" + ("?deleted=true" if includes_deleted else "")
        numbers = self._request_json("GET", path, f"subject {subject}", self._end_s())
        if not isinstance(numbers, list) or not all(is_integer(version, low=1, high=INT32_MAX) for version in numbers):
            raise SchemaError(f"the registry returned no versions of the subject {subject}")
        if len(numbers) > REGISTRY_VERSIONS_MAX:
            raise SchemaError(f"the subject {subject} has more than {REGISTRY_VERSIONS_MAX} versions")
        return sorted(numbers)

    def version_of(self, subject: str, version: str) -> RegisteredVersion:
        """Return a version of a subject, or the `latest`, as it was written.

        Raises RegistryUnreachable and SchemaError.
        """
        path = f"/subjects/{_segment(subject)}/versions/{_segment(version)}"
        document = self._request_json("GET", path, f"version {version} of the subject {subject}", self._end_s())
        number = document.get("version") if isinstance(document, dict) else None
        if not is_integer(number, low=1, high=INT32_MAX):
            raise SchemaError(f"the registry returned no version of the subject {subject}")
        return RegisteredVersion(int(number or 0), schema_of(document, None))

    def compatibility(self, subject: str | None) -> CompatibilityLevel:
        """Return the level of a subject, or of the registry.  Raises RegistryUnreachable and SchemaError."""
        own = None if subject is None else self.own_compatibility(subject)
        if own is not None:
            return CompatibilityLevel(own, is_own=True)
        document = self._request_json("GET", _config(None), "compatibility level", self._end_s())
        return CompatibilityLevel(_level_in(document), is_own=subject is None)

    def own_compatibility(self, subject: str) -> str | None:
        """Return the level of a subject, None if it has none.  Raises RegistryUnreachable and SchemaError."""
        try:
            document = self._request_json("GET", _config(subject), f"level of {subject}", self._end_s())
        except SchemaNotFound:
            return None
        return _level_in(document)

    def set_compatibility(self, subject: str | None, level: str) -> None:
        """Set the level of a subject, or of the registry.  Raises RegistryUnreachable and SchemaError."""
        what = "compatibility level" if subject is None else f"compatibility level of {subject}"
        self._request_json("PUT", _config(subject), what, self._end_s(), {"compatibility": level})

    def compare(self, subject: str, version: int, schema: Schema) -> Compatibility:
        """Compare a schema with a version of a subject.  Raises RegistryUnreachable and SchemaError."""
        path = f"/compatibility/subjects/{_segment(subject)}/versions/{version}?verbose=true"
        what = f"version {version} of the subject {subject}"
        document = self._request_json("POST", path, what, self._end_s(), document_of(schema))
        is_compatible = document.get("is_compatible") if isinstance(document, dict) else None
        if not isinstance(is_compatible, bool):
            raise SchemaError("the registry did not return whether the schema is compatible")
        messages = document.get("messages") or []
        texts = tuple(str(message) for message in messages) if isinstance(messages, list) else (str(messages),)
        return Compatibility(version, is_compatible, texts)

    def delete(self, subject: str, version: int | None = None, *, is_permanent: bool = False) -> list[int]:
        """Delete a version of a subject, or all; return their numbers.

        Ids of deleted schemas are still found, until they are deleted permanently, which requires that they were
        deleted before.  Raises RegistryUnreachable and SchemaError.
        """
        place = f"/subjects/{_segment(subject)}" + ("" if version is None else f"/versions/{version}")
        what = f"subject {subject}" if version is None else f"version {version} of the subject {subject}"
        path = f"{place}?permanent=true" if is_permanent else place
        numbers = self._request_json("DELETE", path, what, self._end_s())
        return [number for number in (numbers if isinstance(numbers, list) else [numbers]) if is_integer(number)]

    def subjects(self) -> list[str]:
        """Return the names of all subjects, sorted.  Raises RegistryUnreachable and SchemaError."""
        names = self._get("/subjects", "list of subjects", self._end_s())
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SchemaError("the registry returned no list of subjects")
        return sorted(names)

    def register(self, subject: str, schema: Schema) -> int:
        """Return the id of the schema, which becomes a version of the subject unless it is one.

        The id of the argument is not used.  Raises RegistryUnreachable, and SchemaError for a schema that is invalid or
        not compatible with the versions of the subject.
        """
        path, what = f"/subjects/{_segment(subject)}/versions", f"subject {subject}"
        return registered_of(self._request_json("POST", path, what, self._end_s(), document_of(schema)), subject).id

    def look_up(self, subject: str, schema: Schema) -> RegisteredSchema:
        """Id and version that the schema has in the subject.  Raises RegistryUnreachable and SchemaError."""
        path, what = f"/subjects/{_segment(subject)}", f"version of the subject {subject} with this schema"
        return registered_of(self._request_json("POST", path, what, self._end_s(), document_of(schema)), subject)

    def with_references(self, schema: Schema) -> Schema:
        """Return the schema with the texts of those that it uses.  Raises RegistryUnreachable and SchemaError."""
        return self._with_references(schema, self._end_s())

    def _end_s(self) -> float:
        return time.monotonic() + self._timeout_ms / 1000

    def _version(self, subject: str, version: str, end_s: float) -> Schema:
        path = f"/subjects/{_segment(subject)}/versions/{_segment(version)}"
        return schema_of(self._get(path, f"version {version} of the subject {subject}", end_s), None)

    def _with_references(self, schema: Schema, end_s: float) -> Schema:
        found: dict[str, Schema] = {}
        left = list(schema.references)
        while left:
            reference = left.pop()
            if reference.name in found:
                continue
            if len(found) >= REGISTRY_REFERENCES_MAX:
                raise SchemaError(f"schema {schema.id} uses more than {REGISTRY_REFERENCES_MAX} other schemas")
            if reference not in self._by_reference:
                used = self._version(reference.subject, str(reference.version), end_s)
                keep(self._by_reference, reference, used)
            found[reference.name] = self._by_reference[reference]
            left.extend(found[reference.name].references)
        return schema._replace(by_reference=found)

    def _get(self, path: str, what: str, end_s: float) -> Any:
        return self._request_json("GET", f"{path}?format=serialized", what, end_s)

    def _request_json(self, method: str, path: str, what: str, end_s: float, document: Any = None) -> Any:
        """Return the document of the first registry that responds.  `what` names what a registry may lack."""
        problem = ""
        body = None if document is None else json.dumps(document).encode()
        for url, authorization in zip(self._settings.urls, self._settings.authorizations, strict=True):
            try:
                status, reply = self._request(url, authorization, method, path, body, end_s)
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
                problem = f"the schema registry {url} cannot be used: {reason}"
                continue
            if status in _REFUSALS:
                if status == http.client.NOT_FOUND:
                    raise SchemaNotFound(f"the schema registry {url} has no {what}{_reason(reply)}")
                verb = f"refused the schema for the {what}" if method == "POST" else f"refused to change the {what}"
                raise SchemaError(f"the schema registry {url} {verb}{_reason(reply)}")
            if status == http.client.OK:
                try:
                    return json.loads(reply)
                except (ValueError, RecursionError):  # the page of a proxy, for example
                    problem = f"the schema registry {url} returned no JSON"
                    continue
            problem = f"the schema registry {url} {_outcome(status)}: status {status}{_reason(reply)}"
        raise RegistryUnreachable(problem)

    def _request(
        self, url: str, authorization: str | None, method: str, path: str, body: bytes | None, end_s: float
    ) -> tuple[int, bytes]:
        """Status and body of the response to one request, without redirects and proxy."""
        parts = urlsplit(url)
        expired = threading.Event()
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = _MEDIA_TYPE
        connection = self._connection(parts.scheme, str(parts.hostname), parts.port, end_s)
        try:
            connection.connect()
            with shut_down_after(max(0.0, end_s - time.monotonic()), connection.sock, expired):
                connection.request(method, f"{parts.path}{path}", body, headers)
                with contextlib.closing(connection.getresponse()) as response:
                    reply = response.read(REGISTRY_RESPONSE_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            if expired.is_set() or isinstance(error, TimeoutError):
                raise TimeoutError("it did not respond in time") from None
            raise
        finally:
            connection.close()
        if expired.is_set():
            raise TimeoutError("it did not respond in time")
        if len(reply) > REGISTRY_RESPONSE_BYTES_MAX:
            raise http.client.HTTPException(f"a response is longer than {REGISTRY_RESPONSE_BYTES_MAX:,} bytes")
        return response.status, reply

    def _connection(self, scheme: str, host: str, port: int | None, end_s: float) -> http.client.HTTPConnection:
        timeout_s = max(0.001, end_s - time.monotonic())
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        context = client_context(TlsSettings.of(self._settings.tls))
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


Key = TypeVar("Key")
Value = TypeVar("Value")


def keep(cache: dict[Key, Value], key: Key, value: Value) -> None:
    """Put a value into a cache of at most REGISTRY_SCHEMAS_MAX, from which the oldest is removed."""
    if key not in cache and len(cache) >= REGISTRY_SCHEMAS_MAX:
        del cache[next(iter(cache))]
    cache[key] = value


def _config(subject: str | None) -> str:
    return "/config" if subject is None else f"/config/{_segment(subject)}"


def _level_in(document: Any) -> str:
    level = document.get("compatibilityLevel") if isinstance(document, dict) else None
    if not isinstance(level, str):
        raise SchemaError("the registry returned no compatibility level")
    return level


def _segment(name: str) -> str:
    """Return a name as one segment of a path; servers and proxies would resolve `.` and `..`, which quote() keeps."""
    return name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")


def _outcome(status: int) -> str:
    """Return what a status other than OK and NOT_FOUND means."""
    if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
        return "refused the client"
    is_redirect = http.client.MULTIPLE_CHOICES <= status < http.client.BAD_REQUEST
    return "redirects to another address, which must be given instead" if is_redirect else "failed"


def _reason(body: bytes) -> str:
    """Return the message of an error response, after a colon."""
    try:
        message = json.loads(body)["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return f": {str(message)[:_ERROR_CHARACTERS_MAX]}"
