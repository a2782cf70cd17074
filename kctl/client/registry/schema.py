"""Schemas as a registry returns them, and the header of records in Confluent's wire format.  Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from kctl.errors import ConfigError, KctlError
from kctl.output.quantities import INT32_MAX, is_integer

HEADER_BYTES = 5
_INDEXES_MAX = 64
"""Levels of nested messages; protoc accepts 32."""


class SchemaError(KctlError):
    """A schema or data that cannot be used; the text is the same for all records with this cause."""


class SchemaNotFound(SchemaError):
    """The registry has no such subject, version or schema."""


class RegistryUnreachable(KctlError):
    """No registry responded in time and with JSON, or all of them refused the client."""


class Reference(NamedTuple):
    """A schema that another one uses under a name."""

    name: str
    subject: str
    version: int


NO_ID = -1
"""The id of a schema that is not from a registry."""


class Schema(NamedTuple):
    """A schema; its text is base64 of a FileDescriptorProto if its type is PROTOBUF."""

    id: int
    """NO_ID for one of a program."""
    type: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[Reference, ...] = ()
    by_reference: Mapping[str, Any] = MappingProxyType({})
    """All schemas that it uses, also indirectly, by name: each is a Schema."""

    @property
    def label(self) -> str:
        """The schema in an error text."""
        return "the schema" if self.id == NO_ID else f"schema {self.id}"


def schema_of(document: Any, schema_id: int | None) -> Schema:
    """Return the schema in a response; `schema_id` is None if the response contains it.  Raises SchemaError."""
    if not isinstance(document, dict):
        raise SchemaError("the registry returned no schema")
    number = document.get("id") if schema_id is None else schema_id
    text, kind = document.get("schema"), document.get("schemaType", "AVRO")
    if not is_integer(number, high=INT32_MAX) or not isinstance(text, str) or not isinstance(kind, str):
        raise SchemaError("the registry returned no schema")
    references = document.get("references") or []
    if not isinstance(references, list):
        raise SchemaError("the registry returned references that are not a list")
    return Schema(int(number or 0), kind, text, tuple(_reference(reference) for reference in references))


class RegisteredSchema(NamedTuple):
    """Id and version of a schema in a subject."""

    id: int
    version: int | None
    """None if the registry does not return it."""


class RegisteredVersion(NamedTuple):
    """A version of a subject."""

    version: int
    schema: Schema
    """Its text is that of the registry, for Protobuf the source."""


class CompatibilityLevel(NamedTuple):
    """Which changes of a schema a subject accepts."""

    level: str
    """NONE, BACKWARD, FORWARD or FULL, or with the end _TRANSITIVE."""
    is_own: bool
    """False if it is that of the registry."""


class Compatibility(NamedTuple):
    """Whether a schema can become a version of a subject, by its comparison with one version."""

    version: int
    is_compatible: bool
    messages: tuple[str, ...]
    """Those of the registry."""


def document_of(schema: Schema) -> dict[str, Any]:
    """Return the body of a request that registers the schema or looks it up."""
    document: dict[str, Any] = {"schema": schema.text, "schemaType": schema.type}
    if schema.references:
        document["references"] = [reference._asdict() for reference in schema.references]
    return document


def registered_of(document: Any, subject: str) -> RegisteredSchema:
    """Return the id, and the version if there is one, in a response.  Raises SchemaError."""
    schema_id = document.get("id") if isinstance(document, dict) else None
    if not is_integer(schema_id, high=INT32_MAX):
        raise SchemaError(f"the registry returned no schema id for the subject {subject}")
    version = document.get("version")
    return RegisteredSchema(int(schema_id or 0), version if is_integer(version, low=1, high=INT32_MAX) else None)


def _reference(document: Any) -> Reference:
    match document:
        case {"name": str(name), "subject": str(subject), "version": int(version)} if is_integer(version):
            return Reference(name, subject, version)
    raise SchemaError("the registry returned a reference without name, subject and version")


def split_header(data: bytes) -> tuple[int, bytes]:
    """Return (schema id, payload) of a record: a zero byte, the id in 4 bytes, the payload.  Raises SchemaError."""
    if len(data) < HEADER_BYTES or data[0] != 0:
        raise SchemaError("it is not in the wire format of schema registries: a zero byte and a schema id")
    return int.from_bytes(data[1:HEADER_BYTES], "big"), data[HEADER_BYTES:]


def header_of(schema_id: int) -> bytes:
    """Return the header of a record with this schema."""
    return b"\0" + schema_id.to_bytes(4, "big")


def split_indexes(payload: bytes) -> tuple[list[int], bytes]:
    """Return (path, message) of a Protobuf payload: the indexes of nested message types that lead to that of the
    message.

    A single zero byte is [0], the first type of the file.  Raises SchemaError.
    """
    count, position = _varint(payload, 0)
    if count == 0:
        return [0], payload[position:]
    if not 0 < count <= _INDEXES_MAX:
        raise SchemaError("its message indexes are invalid")
    indexes = []
    for _ in range(count):
        index, position = _varint(payload, position)
        indexes.append(index)
    return indexes, payload[position:]


def indexes_of(path: list[int]) -> bytes:
    """Return the inverse of `split_indexes`."""
    return b"\0" if path == [0] else b"".join(_zigzag(number) for number in [len(path), *path])


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise SchemaError("its message indexes are invalid")


def _zigzag(number: int) -> bytes:
    value, written = number << 1, bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


# The client properties of a schema registry, under the names of Confluent's clients.
#
#     schema.registry.url                             http://127.0.0.1:8081, or several joined by commas
#     schema.registry.basic.auth.credentials.source   USER_INFO or URL
#     schema.registry.basic.auth.user.info            USER:PASSWORD
#     schema.registry.bearer.auth.token               a token (bearer.auth.credentials.source=STATIC_TOKEN)
#     schema.registry.ssl.truststore.location         and the other properties of TLS
#
# The prefix of the authentication properties may be omitted.


PREFIX = "schema.registry."
_URL = f"{PREFIX}url"
_URLS_MAX = 16


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where the registry is and how to authenticate; its repr contains no secret."""

    urls: tuple[str, ...]
    """Without user and password."""
    authorizations: tuple[str | None, ...] = field(repr=False)
    """The header Authorization for each of the URLs; None for none."""
    tls: Mapping[str, str] = field(repr=False)
    """The properties of TLS, without prefix."""


def registry_settings(properties: Mapping[str, str], url: str | None = None) -> RegistrySettings | None:
    """Return the settings; `url` replaces that of the properties.  None without any.  Raises ConfigError."""
    given = url if url is not None else properties.get(_URL, "")
    parts = [_split(address.strip()) for address in given.split(",") if address.strip()]
    if not parts:
        return None
    if len(parts) > _URLS_MAX:
        raise ConfigError(_URL, f"{len(parts)} URLs", f"has more than {_URLS_MAX} URLs")
    return RegistrySettings(
        tuple(f"{address.scheme}://{_host(address)}{address.path.rstrip('/')}" for address in parts),
        tuple(_authorization(properties, address) for address in parts),
        {
            name.removeprefix(PREFIX): value
            for name, value in properties.items()
            if name.startswith(f"{PREFIX}ssl.") or name == f"{PREFIX}security.providers"
        },
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.query and not parts.fragment
        _ = parts.port
    except ValueError:
        is_valid = False
    if not is_valid or not url.isascii() or not url.isprintable() or " " in url:
        # The value is not shown, because it may contain a password.
        raise ConfigError(_URL, "[hidden]", "must be http://HOST:PORT or https://HOST:PORT")
    return parts


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _authorization(properties: Mapping[str, str], parts: SplitResult) -> str | None:
    token = _property(properties, "bearer.auth.token")
    source = _property(properties, "bearer.auth.credentials.source")
    if source not in {None, "STATIC_TOKEN"}:
        raise ConfigError("bearer.auth.credentials.source", str(source), "must be STATIC_TOKEN")
    if token is not None or source is not None:
        return f"Bearer {_header_value(token, 'bearer.auth.token')}"
    info = _property(properties, "basic.auth.user.info")
    source = _property(properties, "basic.auth.credentials.source")
    if source not in {None, "USER_INFO", "URL"}:
        raise ConfigError("basic.auth.credentials.source", str(source), "must be USER_INFO or URL")
    if source == "USER_INFO" or (source is None and info is not None):
        return _basic(_header_value(info, "basic.auth.user.info"))
    if parts.username is None:
        return None
    return _basic(f"{unquote(parts.username)}:{unquote(parts.password or '')}")


def _basic(user_info: str) -> str:
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"


def _property(properties: Mapping[str, str], name: str) -> str | None:
    value = properties.get(f"{PREFIX}{name}", properties.get(name, "")).strip()
    return value or None


def _header_value(value: str | None, name: str) -> str:
    if value is None or not value.isprintable() or (name.endswith("token") and not value.isascii()):
        raise ConfigError(f"{PREFIX}{name}", "[hidden]", "is missing or contains characters that are not valid")
    return value
