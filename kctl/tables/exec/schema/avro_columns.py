"""Avro schemas as types of columns.  Pure.

int, long, float, double, boolean, string, bytes, arrays, maps, records, date, timestamp-millis, timestamp-micros and
decimal are the columns of these kinds; enum and uuid are strings, a duration is a text as P1M2DT3.004S, and fixed is
binary.  Other logical types are the type under them, unless they are marked (kctl.tables.exec.schema.logical_types).  A
union with null is the other type, which may be null, as every column may.  Another union is a struct with a field for
each of its types, one of which is set.  What is always null has no column.  A record within itself, as in a tree, is a
string with its JSON.

Types have to be prepared before values are read: logical types without a column are removed, and in a union of several
types each becomes a record with one field, which has the same bytes and is read as the struct.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from kctl.client.registry.schema import Schema
from kctl.errors import UsageError
from kctl.output.quantities import is_integer
from kctl.tables.exec.schema.column_types import DECIMAL_PRECISION_MAX, ListOf, MapOf, Struct, Type, TypeCount
from kctl.tables.exec.schema.logical_types import MARK, MARKED
from kctl.tables.exec.schema.schema_texts import rewritten

_TYPES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
}
ZONED_TIMESTAMP = "kctl-zoned-timestamp"
"""A text of ISO 8601 with its offset; kctl.tables.exec.decoding.avro_values reads it."""
_LOGICAL = {
    "date": "int",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    ZONED_TIMESTAMP: "string",
    **{f"{MARK}{logical}": under for logical, (under, _) in MARKED.items()},
}
UUID_BYTES, DURATION = f"{MARK}uuid", f"{MARK}duration"
"""Logical types of fixed, which become texts: a uuid of 16 bytes, and months, days and milliseconds in 12."""
_TEXTS = {("uuid", 16): UUID_BYTES, ("duration", 12): DURATION}
_TIMES = {"timestamp-millis", "timestamp-micros", ZONED_TIMESTAMP}
_CONNECT = {
    "io.debezium.time.Date": ("int", "date"),
    "org.apache.kafka.connect.data.Date": ("int", "date"),
    "io.debezium.time.Timestamp": ("long", "timestamp-millis"),
    "org.apache.kafka.connect.data.Timestamp": ("long", "timestamp-millis"),
    "io.debezium.time.MicroTimestamp": ("long", "timestamp-micros"),
    "io.debezium.time.ZonedTimestamp": ("string", ZONED_TIMESTAMP),
}
"""Avro's type and the logical type of Debezium's types, which Avro schemas name in `connect.name`."""


def with_logical_types(schema: Schema) -> Schema:
    """Return the schema, and those it uses, with logical types for Debezium's dates and times.  Raises SchemaError."""
    return rewritten(schema, _marked)


def _marked(schema: Any) -> Any:
    match schema:
        case list():
            return [_marked(branch) for branch in schema]
        case dict():
            marked = {name: _marked(member) for name, member in schema.items()}
            avro_type, logical = _CONNECT.get(str(schema.get("connect.name")), ("", ""))
            if logical and schema.get("type") == avro_type:
                marked["logicalType"] = logical
            # A default is not used for reading, and may not fit the logical type.
            return marked
    return schema


def prepared(schema: Schema) -> Schema:
    """Return the schema, and those it uses, as they have to be for reading values.  Raises SchemaError."""
    names = count()
    return rewritten(schema, lambda document: _prepared(document, names))


def _prepared(schema: Any, names: count[int]) -> Any:
    if isinstance(schema, list):
        branches = [_prepared(branch, names) for branch in schema]
        if len([branch for branch in branches if branch != "null"]) < 2:
            return branches
        return [branch if branch == "null" else _wrapped(branch, names) for branch in branches]
    if not isinstance(schema, dict):
        return schema
    prepared = dict(schema)
    if not _is_column(schema):
        logical = prepared.pop("logicalType", None)
        if schema.get("type") == "fixed" and (logical, schema.get("size")) in _TEXTS:
            prepared["logicalType"] = _TEXTS[logical, schema["size"]]
    for name in ("type", "items", "values"):
        if isinstance(prepared.get(name), dict | list):
            prepared[name] = _prepared(prepared[name], names)
    if isinstance(schema.get("fields"), list):
        # Defaults are not used for reading, and may not fit a union that has become records.
        prepared["fields"] = [
            {"name": field["name"], "type": _prepared(field["type"], names)} for field in schema["fields"]
        ]
    return prepared


def _wrapped(branch: Any, names: count[int]) -> dict[str, Any]:
    kind = branch if isinstance(branch, str) else branch.get("name") or branch["type"]
    field = {"name": str(kind).rpartition(".")[2], "type": branch}
    return {"type": "record", "name": f"kctl_union_{next(names)}", "fields": [field]}


def _is_column(schema: dict[str, Any]) -> bool:
    """Return whether the logical type has a column."""
    logical = schema.get("logicalType")
    if logical == "decimal":
        precision: Any = schema.get("precision")
        scale: Any = schema.get("scale", 0)
        if not is_integer(precision, low=1, high=DECIMAL_PRECISION_MAX):
            return False
        return schema["type"] in {"bytes", "fixed"} and is_integer(scale, high=precision)
    return isinstance(logical, str) and _LOGICAL.get(logical) == schema.get("type")


def column_of(parsed: Any, named: dict[str, Any], path: str) -> Type:
    """Return the type of a schema as fastavro parses it, after preparation.  Raises UsageError if it has none."""
    found = _Columns(named, path).column_of(parsed, path, frozenset())
    if found is None:
        raise UsageError(f"the Avro schema of {path} has no values other than null")
    return found


def is_recursive(parsed: Any, named: dict[str, Any]) -> bool:
    """Return whether a record is within itself in a schema as fastavro parses it.  Raises UsageError."""
    columns = _Columns(named, "the value")
    columns.column_of(parsed, "", frozenset())
    return columns.is_recursive


class _Columns:
    """The columns of one schema."""

    def __init__(self, named: dict[str, Any], name: str) -> None:
        self.is_recursive = False
        """Whether a record is within itself, as text of JSON."""
        self._named = named
        self._count = TypeCount(name)

    def column_of(self, schema: Any, path: str, within: frozenset[str]) -> Type | None:
        """Return the type of a schema at some place; None for what is always null.  Raises UsageError."""
        self._count.add()
        if isinstance(schema, list):
            return self._union(schema, path, within)
        if isinstance(schema, str):
            if schema not in self._named:
                return _TYPES.get(schema)
            schema = self._named[schema]
        kind = schema["type"]
        match schema.get("logicalType"):
            case "date":
                return "date"
            case str() as logical if logical in _TIMES:
                return "timestamp"
            case "decimal":
                return f"decimal({schema['precision']},{schema.get('scale', 0)})"
            case str() as logical if logical in {UUID_BYTES, DURATION}:
                return "string"
            case str() as logical if logical.removeprefix(MARK) in MARKED and logical.startswith(MARK):
                return MARKED[logical.removeprefix(MARK)][1]
        match kind:
            case "enum":
                return "string"
            case "fixed":
                return "binary"
            case "array":
                item = self.column_of(schema["items"], f"{path}[]", within)
                return None if item is None else ListOf(item)
            case "map":
                value = self.column_of(schema["values"], f"{path}[]", within)
                return None if value is None else MapOf(value)
            case "record" | "error":
                if schema["name"] in within:
                    self.is_recursive = True
                    return "string"
                inner = within | {schema["name"]}
                fields = [
                    (field["name"], self.column_of(field["type"], f"{path}.{field['name']}", inner))
                    for field in schema["fields"]
                ]
                kept = tuple((name, type_) for name, type_ in fields if type_ is not None)
                return Struct(kept) if kept else None
        return self.column_of(kind, path, within)

    def _union(self, branches: list[Any], path: str, within: frozenset[str]) -> Type | None:
        found = [self.column_of(branch, path, within) for branch in branches]
        types = [type_ for type_ in found if type_ is not None]
        if len(types) < 2:
            return types[0] if types else None
        return Struct(tuple(field for type_ in types if isinstance(type_, Struct) for field in type_.fields))
