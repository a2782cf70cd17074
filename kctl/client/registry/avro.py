"""Avro values as the JSON encoding of Avro: unions have the name of the type, bytes are characters of Latin-1.

Logical types are texts (kctl.client.registry.avro_texts).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import fastavro
from fastavro import _read_py, _write_py  # reader and writer in Python, for recursive types
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from kctl.client.registry.avro_texts import from_texts, has_logical_types, to_texts, without_logical_types
from kctl.client.registry.schema import Schema, SchemaError

_NOTHING = ("null",)


class AvroCodec:
    """Values of one Avro schema."""

    kind = "AVRO"

    def __init__(self, schema: Schema) -> None:
        """Compile the schema, or raise SchemaError."""
        try:
            written = [json.loads(used.text) for used in (*_in_order(schema), schema)]
            self._schema, self._named = _parse(written)
            self._has_texts = any(map(has_logical_types, written))
            self._plain = _parse(map(without_logical_types, written))[0] if self._has_texts else self._schema
            """The schema without logical types, whose values have no bounds that those of Python have."""
            names = _Names(self._named)
            if names.has_empty_items(self._schema):
                raise SchemaError(
                    f"{schema.label} has an array whose items take no bytes, so that its length has no bound"
                )
            self._read = _read_py.schemaless_reader if names.is_recursive else fastavro.schemaless_reader
            self._write = _write_py.schemaless_writer if names.is_recursive else fastavro.schemaless_writer
        except (
            SchemaParseException,
            UnknownType,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:
            raise SchemaError(f"{schema.label} is not a valid Avro schema: {_text(error)}") from None

    @property
    def parsed(self) -> tuple[Any, dict[str, Any]]:
        """The schema as fastavro parses it, with full names, and the named types by their names."""
        return self._schema, self._named

    @property
    def record_name(self) -> str | None:
        """The full name of a record, enum or fixed; None for other types."""
        return self._schema.get("name") if isinstance(self._schema, dict) else None

    def datum(self, payload: bytes, reader: AvroCodec | None = None) -> Any:
        """Return the value as fastavro reads it, resolved to the schema of `reader`.  Raises SchemaError."""
        return self._read_whole(payload, self._schema, None if reader is None else reader.parsed[0])

    def _read_whole(self, payload: bytes, schema: Any, of_reader: Any = None) -> Any:
        source = io.BytesIO(payload)
        try:
            datum = self._read(source, schema, of_reader)
        except SchemaResolutionError as error:
            raise SchemaError(f"it cannot be read with the schema of the reader: {_text(error)}") from None
        except Exception as error:  # fastavro raises many types for malformed data
            raise SchemaError(f"it is not a value of its schema: {type(error).__name__}") from None
        if source.tell() != len(payload):
            raise SchemaError("its value is followed by further bytes")
        return datum

    def decode(self, payload: bytes) -> str:
        """JSON.  Raises SchemaError."""
        datum = self._read_whole(payload, self._plain)
        out = io.StringIO()
        try:
            fastavro.json_writer(out, self._plain, [datum])
            text = _strict_json(out.getvalue())
            if not self._has_texts:
                return text
            return json.dumps(to_texts(self._schema, self._named, json.loads(text)))
        except SchemaError:
            raise
        except Exception as error:  # as above
            raise SchemaError(f"it is not a value of its schema: {type(error).__name__}") from None

    def encode(self, text: str) -> bytes:
        """Return the inverse of `decode`.  Raises SchemaError."""
        out = io.BytesIO()
        try:
            if self._has_texts:
                value = from_texts(self._schema, self._named, json.loads(text, parse_float=Decimal))
            else:
                value = json.loads(text)
            (datum,) = fastavro.json_reader(io.StringIO(json.dumps(value, default=float)), self._plain)
            fastavro.schemaless_writer(out, self._plain, datum)
        except SchemaError:
            raise
        except Exception as error:  # as above
            raise SchemaError(
                f"it is not a value of the schema, in the JSON encoding of Avro: {_text(error)}"
            ) from None
        return out.getvalue()

    def encode_datum(self, datum: Any) -> bytes:
        """Return the payload of a value as fastavro writes it.

        Raises SchemaError, also for a field that the schema does not have, and for one without value and default.
        """
        out = io.BytesIO()
        try:
            self._write(out, self._schema, datum, strict_allow_default=True)
        except Exception as error:  # as above
            raise SchemaError(f"it does not match the schema: {self._problem(datum, error)}") from None
        return out.getvalue()

    def _problem(self, datum: Any, error: Exception) -> str:
        """Return what does not match, with the name of the field if the validation finds it."""
        try:
            validate(datum, self._schema, strict=False)
        except ValidationError as invalid:
            return "; ".join(map(str, invalid.errors))[:200]
        except Exception as other:
            return _text(other)
        return _text(error)


def _parse(written: Iterable[Any]) -> tuple[Any, dict[str, Any]]:
    """Return the last schema as fastavro parses it, and the named types of all.  Raises what fastavro raises."""
    named: dict[str, Any] = {}
    parsed: Any = None
    for schema in written:
        parsed = fastavro.parse_schema(schema, named_schemas=named)
    return parsed, named


def _in_order(schema: Schema) -> list[Schema]:
    """Return the schemas that it uses, each after those that it uses itself."""
    found: dict[str, Schema] = {}

    def add(used: Schema, depth: int) -> None:
        if depth > len(schema.by_reference):
            raise SchemaError(f"{schema.label} has circular references")
        for reference in used.references:
            if reference.name not in found:
                add(schema.by_reference[reference.name], depth + 1)
                found[reference.name] = schema.by_reference[reference.name]

    add(schema, 0)
    return list(found.values())


class _Names:
    """Walks through a parsed schema, in which a named type is its name after its first occurrence."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._within: set[str] = set()
        self._seen: dict[str, bool] = {}
        self._empty: dict[str, bool] = {}
        self.is_recursive = False
        """Whether a value may contain values of its own type.

        The reader in C has no bound on the depth of such values: a million bytes overflow its stack, which ends the
        process.  The reader in Python raises RecursionError.
        """

    def has_empty_items(self, schema: Any) -> bool:
        """Return whether the items of any array or map take no bytes; a few bytes could describe one of any length."""
        if isinstance(schema, list):
            return any(self.has_empty_items(branch) for branch in schema)
        if isinstance(schema, str):
            return self._named_has(schema)
        match schema.get("type"):
            case "array":
                return self._is_empty(schema["items"], frozenset()) or self.has_empty_items(schema["items"])
            case "map":
                return self.has_empty_items(schema["values"])
            case "record" | "error":
                return self._named_has(schema["name"], schema)
            case dict() | list() as inner:
                return self.has_empty_items(inner)
        return False

    def _named_has(self, name: str, schema: Any = None) -> bool:
        if name in self._within:
            self.is_recursive = True
            return False
        if name in self._seen:
            return self._seen[name]
        definition = schema if schema is not None else self._named.get(name)
        if not isinstance(definition, dict) or "fields" not in definition:
            return False
        self._within.add(name)
        self._seen[name] = any(self.has_empty_items(field["type"]) for field in definition["fields"])
        self._within.discard(name)
        return self._seen[name]

    def _is_empty(self, schema: Any, within: frozenset[str]) -> bool:
        """Return whether the values of a type have no bytes."""
        if isinstance(schema, str):
            if schema in _NOTHING:
                return True
            definition = self._named.get(schema)
            return schema not in within and definition is not None and self._is_empty(definition, within | {schema})
        if isinstance(schema, list):
            return False
        match schema.get("type"):
            case "null":
                return True
            case "fixed":
                return bool(schema["size"] == 0)
            case "record" | "error":
                name = schema["name"]
                if name not in self._empty:  # a record that uses others twice would take exponential time
                    inner = within | {name}
                    self._empty[name] = all(self._is_empty(field["type"], inner) for field in schema["fields"])
                return self._empty[name]
            case dict() as nested:
                return self._is_empty(nested, within)
        return False


def _strict_json(text: str) -> str:
    """JSON; NaN and Infinity become strings, as in the JSON of Protobuf."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    return json.dumps(json.loads(text, parse_constant=str))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
