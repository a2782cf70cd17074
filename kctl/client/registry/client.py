"""Fetches schemas over HTTP.  Responses are bounded in size and time, and cached.

Confluent's API: GET /schemas/ids/ID, /subjects/SUBJECT/versions and /subjects/SUBJECT/versions/VERSION.  With
`format=serialized`, a Protobuf schema is base64 of its FileDescriptorProto; other types ignore it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from typing import Any
from urllib.parse import quote, urlsplit

from kctl.client.connections.tokens import shut_down_after
from kctl.client.registry.schema import Reference, RegistrySettings, RegistryUnreachable, Schema, SchemaError, schema_of
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


_ERROR_CHARACTERS_MAX = 200
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
            self._by_id[schema_id] = self._with_references(schema_of(document, schema_id), end_s)
        return self._by_id[schema_id]

    def of_subject(self, subject: str, version: str) -> Schema:
        """Return a version of a subject, or the `latest`.  Raises RegistryUnreachable and SchemaError."""
        end_s = self._end_s()
        return self._with_references(self._version(subject, version, end_s), end_s)

    def versions_of(self, subject: str) -> list[Schema]:
        """Return all versions of a subject, the first one first.  Raises RegistryUnreachable and SchemaError."""
        end_s = self._end_s()
        numbers = self._get(f"/subjects/{_segment(subject)}/versions", f"subject {subject}", end_s)
        if not isinstance(numbers, list) or not all(is_integer(version, low=1, high=INT32_MAX) for version in numbers):
            raise SchemaError(f"the registry returned no versions of the subject {subject}")
        if len(numbers) > REGISTRY_VERSIONS_MAX:
            raise SchemaError(f"the subject {subject} has more than {REGISTRY_VERSIONS_MAX} versions")
        return [self.of_subject(subject, str(number)) for number in sorted(numbers)]

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
                self._by_reference[reference] = self._version(reference.subject, str(reference.version), end_s)
            found[reference.name] = self._by_reference[reference]
            left.extend(found[reference.name].references)
        return schema._replace(by_reference=found)

    def _get(self, path: str, what: str, end_s: float) -> Any:
        problem = ""
        for url, authorization in zip(self._settings.urls, self._settings.authorizations, strict=True):
            try:
                status, body = self._request(url, authorization, path, end_s)
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
                problem = f"the schema registry {url} cannot be used: {reason}"
                continue
            if status == http.client.NOT_FOUND:
                raise SchemaError(f"the schema registry {url} has no {what}{_reason(body)}")
            if status == http.client.OK:
                try:
                    return json.loads(body)
                except (ValueError, RecursionError):  # the page of a proxy, for example
                    problem = f"the schema registry {url} returned no JSON"
                    continue
            problem = f"the schema registry {url} {_outcome(status)}: status {status}{_reason(body)}"
        raise RegistryUnreachable(problem)

    def _request(self, url: str, authorization: str | None, path: str, end_s: float) -> tuple[int, bytes]:
        """Send one request, without redirects and without a proxy."""
        parts = urlsplit(url)
        expired = threading.Event()
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        connection = self._connection(parts.scheme, str(parts.hostname), parts.port, end_s)
        try:
            connection.connect()
            with shut_down_after(max(0.0, end_s - time.monotonic()), connection.sock, expired):
                connection.request("GET", f"{parts.path}{path}?format=serialized", headers=headers)
                with contextlib.closing(connection.getresponse()) as response:
                    body = response.read(REGISTRY_RESPONSE_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            if expired.is_set() or isinstance(error, TimeoutError):
                raise TimeoutError("it did not respond in time") from None
            raise
        finally:
            connection.close()
        if expired.is_set():
            raise TimeoutError("it did not respond in time")
        if len(body) > REGISTRY_RESPONSE_BYTES_MAX:
            raise http.client.HTTPException(f"a response is longer than {REGISTRY_RESPONSE_BYTES_MAX:,} bytes")
        return response.status, body

    def _connection(self, scheme: str, host: str, port: int | None, end_s: float) -> http.client.HTTPConnection:
        timeout_s = max(0.001, end_s - time.monotonic())
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        context = client_context(TlsSettings.of(self._settings.tls))
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


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
