"""Requests and responses of the REST API, without HTTP.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kctl.client.registry.schema import Reference
from kctl.limits import Subject, bound
from kctl.output.quantities import INT32_MAX, is_integer
from kctl.schemas.refusals import Refused, invalid_body, invalid_version
from kctl.schemas.topic_records import AVRO, TopicRecord

REFERENCES_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "schemas that a schema uses, also indirectly",
    200,
    "schemas",
    on_excess="error 42201",
)
LATEST = -1


class Request(NamedTuple):
    """A request."""

    method: str
    path: tuple[str, ...]
    """The segments of the path, decoded."""
    query: Mapping[str, str] = {}
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the query is true."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Return a parameter of the query.  Raises Refused, with status 404 as Confluent's registry."""
        text = self.query.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise Refused(404, "HTTP 404 Not Found") from None

    def page(self, items: list[Any]) -> list[Any]:
        """Return the items that `offset` and `limit` select; a limit that is not positive is none."""
        start, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        return items[start:] if limit <= 0 else items[start : start + limit]

    def document(self, *known: str) -> dict[str, Any]:
        """Return the body.  Raises Refused for one that is not an object, or with members that have no effect here."""
        try:
            document = json.loads(self.body)
            json.dumps(document, ensure_ascii=False).encode()  # Not with half of a surrogate pair.
        except (ValueError, RecursionError):
            raise invalid_body("The body is not JSON in UTF-8") from None
        if not isinstance(document, dict):
            raise invalid_body("The body is not a JSON object")
        for name, value in document.items():
            if name not in known and value is not None:
                raise Refused(
                    422, f"'{name[:100]}' is not supported by this registry; supported are {', '.join(known)}"
                )
        return document


class Answer(NamedTuple):
    """A response, and the records that must be in the topic before it is sent."""

    document: Any
    records: tuple[TopicRecord, ...] = ()
    is_text: bool = False
    """Whether the document is a string that is the body itself, not JSON."""


class SchemaRequest(NamedTuple):
    """The body of a request that registers, looks up or tests a schema."""

    text: str
    type: str
    references: tuple[Reference, ...]
    id: int | None
    version: int | None


def schema_request(request: Request) -> SchemaRequest:
    """Return the schema in the body.  Raises Refused."""
    document = request.document("schema", "schemaType", "references", "id", "version")
    text, kind = document.get("schema") or "", document.get("schemaType") or AVRO
    if not isinstance(text, str) or not isinstance(kind, str):
        raise invalid_body("schema and schemaType must be strings")
    references = document.get("references") or []
    if not isinstance(references, list) or len(references) > REFERENCES_MAX:
        raise invalid_body(f"references must be a list of at most {REFERENCES_MAX}")
    numbers = {name: document.get(name) for name in ("id", "version")}
    for name, value in numbers.items():
        if value is not None and not is_integer(value, low=LATEST, high=INT32_MAX):
            raise invalid_body(f"{name} must be a number")
    chosen = {name: value if value is not None and value > 0 else None for name, value in numbers.items()}
    return SchemaRequest(text, kind, tuple(map(_reference, references)), chosen["id"], chosen["version"])


def _reference(document: Any) -> Reference:
    match document:
        case {"name": str(name), "subject": str(subject), "version": int(version)} if is_integer(version, low=LATEST):
            return Reference(name, subject, version)
    raise invalid_body("a reference must have name, subject and version")


def version_number(text: str) -> int:
    """Return the version in a path, LATEST for `latest`.  Raises Refused."""
    if text == "latest":
        return LATEST
    number = int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 10 else 0
    if not (0 < number <= INT32_MAX or number == LATEST):
        raise invalid_version(text)
    return number
