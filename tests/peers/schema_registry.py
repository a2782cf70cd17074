"""A schema registry in memory: the part of the HTTP API of Confluent's that serializers and kctl use."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class SchemaRegistry:
    """Schemas by id and subject.  The fields from `authorization` on change how requests are answered."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[str] = []
        """Method and path of each request."""
        self.authorization: str | None = None
        """The header that each request must have."""
        self.bodies: dict[str, bytes] = {}
        """Responses with status 200 that replace those to a path."""
        self.status: int | None = None
        """Status of all responses, which have no body then."""
        self.delay_s = 0.0
        """Time between two bytes of a response."""
        self.responds = threading.Event()
        """Requests wait while it is not set."""
        self.responds.set()
        self.incompatible: set[str] = set()
        """Subjects that take no further schemas."""
        self.levels: dict[str, str] = {"": "BACKWARD"}
        """Compatibility levels by subject, and that of the registry."""
        self._deleted: dict[str, set[int]] = {}
        """Versions of subjects that were deleted, and not permanently."""
        self._lock = threading.Lock()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id of the schema, which is the next version of the subject unless it is one already."""
        document = {"schema": schema, "schemaType": kind, "references": references or []}
        with self._lock:
            if document not in self._schemas:
                self._schemas.append(document)
            number = self._schemas.index(document) + 1
            versions = self._subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def answer(self, method: str, path: str, body: bytes, query: str = "") -> tuple[int, Any]:
        """Status and document of a request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                if not 0 < int(number) <= len(self._schemas):
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, self._shown(self._schemas[int(number) - 1])
            case "GET", ["subjects", subject, "versions"]:
                numbers = self._numbers(subject, includes_deleted="deleted=true" in query)
                return (200, numbers) if numbers else (404, {"error_code": 40401, "message": "none"})
            case "DELETE", ["subjects", subject, *rest]:
                return self._delete(subject, rest, is_permanent="permanent=true" in query)
            case (("GET" | "PUT"), ["config", *subject]):
                return self._level(method, "".join(subject), body)
            case "POST", ["compatibility", "subjects", subject, "versions", wanted]:
                if int(wanted) not in self._numbers(subject):
                    return 404, {"error_code": 40402, "message": "Version not found."}
                is_compatible = subject not in self.incompatible
                messages = [] if is_compatible else ["READER_FIELD_MISSING_DEFAULT_VALUE: field 'x'"]
                return 200, {"is_compatible": is_compatible, "messages": messages}
            case "GET", ["subjects", subject, "versions", wanted]:
                return self._version(subject, wanted)
            case "GET", ["subjects"]:
                return 200, [subject for subject in self._subjects if self._numbers(subject)]
            case "POST", ["subjects", subject, *rest]:
                given = json.loads(body)
                kind, references = given.get("schemaType", "AVRO"), given.get("references") or []
                if rest != ["versions"] and not self._has(subject, given["schema"], kind, references):
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                if subject in self.incompatible and not self._has(subject, given["schema"], kind, references):
                    return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
                schema_id = self.register(subject, given["schema"], kind, references)
                place = self._subjects[subject].index(schema_id) + 1
                return 200, {"id": schema_id, "subject": subject, "version": place, **self._shown(given)}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _numbers(self, subject: str, *, includes_deleted: bool = False) -> list[int]:
        hidden = set() if includes_deleted else self._deleted.get(subject, set())
        return [number for number in range(1, len(self._subjects.get(subject, [])) + 1) if number not in hidden]

    def _delete(self, subject: str, rest: list[str], *, is_permanent: bool) -> tuple[int, Any]:
        numbers = [int(number) for number in rest[1:]] or self._numbers(subject, includes_deleted=is_permanent)
        deleted = self._deleted.setdefault(subject, set())
        if not numbers or not set(numbers) <= set(self._numbers(subject, includes_deleted=is_permanent)):
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if is_permanent and not set(numbers) <= deleted:
            return 404, {"error_code": 40405, "message": f"Subject '{subject}' was not deleted first"}
        deleted.update(numbers)
        if is_permanent and set(self._numbers(subject, includes_deleted=True)) == deleted:
            del self._subjects[subject], self._deleted[subject]
        return 200, numbers[0] if rest else numbers

    def _level(self, method: str, subject: str, body: bytes) -> tuple[int, Any]:
        if method == "PUT":
            self.levels[subject] = json.loads(body)["compatibility"]
            return 200, {"compatibility": self.levels[subject]}
        if subject not in self.levels:
            return 404, {"error_code": 40408, "message": "Subject does not have subject-level compatibility configured"}
        return 200, {"compatibilityLevel": self.levels[subject]}

    def _has(self, subject: str, schema: str, kind: str, references: list[dict[str, Any]]) -> bool:
        document = {"schema": schema, "schemaType": kind, "references": references}
        numbers = self._subjects.get(subject, [])
        return document in self._schemas and self._schemas.index(document) + 1 in numbers

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self._subjects.get(subject, [])
        numbers = self._numbers(subject)
        index = max(numbers, default=0) if version == "latest" else int(version)
        if index not in numbers:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = versions[index - 1]
        return 200, {"subject": subject, "version": index, "id": number, **self._shown(self._schemas[number - 1])}

    @staticmethod
    def _shown(document: dict[str, Any]) -> dict[str, Any]:
        """Without the type AVRO, as Confluent's registry answers."""
        return {name: value for name, value in document.items() if value and (name, value) != ("schemaType", "AVRO")}


@contextmanager
def schema_registry(context: ssl.SSLContext | None = None) -> Iterator[SchemaRegistry]:
    """A registry on a port of its own, with TLS if there is a context."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_PUT(self) -> None:
            self._answer()

        def do_DELETE(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = urlsplit(self.path).path
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            registry.requests.append(f"{self.command} {path}")
            registry.responds.wait(60)
            if registry.authorization is not None and self.headers.get("Authorization") != registry.authorization:
                status, data = 401, b'{"error_code":401,"message":"Unauthorized"}'
            elif registry.status is not None:
                status, data = registry.status, b""
            elif path in registry.bodies:
                status, data = 200, registry.bodies[path]
            else:
                status, document = registry.answer(self.command, path, body, urlsplit(self.path).query)
                data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self._write(data)

        def _write(self, data: bytes) -> None:
            try:
                for piece in [data] if not registry.delay_s else re.findall(b".", data, re.DOTALL):
                    self.wfile.write(piece)
                    time.sleep(registry.delay_s)
            except OSError:
                self.close_connection = True  # the client has given up

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        registry.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def basic(user: str, password: str) -> str:
    """The header Authorization of a user."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
