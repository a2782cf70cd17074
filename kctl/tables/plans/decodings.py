"""Decides how the keys and values of an export are decoded, before anything is written.

The schema is that of a file, of all versions of a subject of a schema registry, or inferred from a sample of the new
records (JSON).  The columns that the topic has in the export stay, and new ones are added.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Protocol

from kctl.client.registry.schema import Schema, SchemaError
from kctl.errors import UsageError
from kctl.tables.exec.schema import avro_columns, connect_types, logical_types
from kctl.tables.exec.schema.changes import DELETED, NotAChange, change_of, payload_of, row_schema, row_type
from kctl.tables.exec.schema.column_types import (
    NO_ID,
    STRING,
    VARIANT,
    ChangeFormat,
    Columns,
    Decoding,
    Format,
    ListOf,
    Struct,
    Type,
    TypeCount,
    bounded,
    cut,
    extended,
    is_column_name,
    kind_of,
)
from kctl.tables.exec.schema.json_fields import inferred
from kctl.tables.exec.schema.json_text import NotJson, parse
from kctl.tables.exec.schema.json_text import text_of as text_of_json
from kctl.tables.exec.schema.schema_texts import text_of
from kctl.tables.exec.targets.target import PackageMissing, require_variants
from kctl.tables.plans.plan import HeldColumns

# JSON Schemas as types of columns. Pure.
#
# boolean, integer, number, string, arrays and objects with properties have columns, also with null as an alternative,
# and through references within the document. What has no column is in the rest.


_TYPES = {"boolean": "boolean", "integer": "int64", "number": "double", "string": "string"}


def columns_of(text: str, source: str) -> Struct:
    """Return the columns of objects with this schema.  Raises UsageError if it is not of objects."""
    try:
        document = json.loads(text)
        type_ = _type_of(document, document, frozenset(), TypeCount(source))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{source} is not a JSON Schema: {str(error)[:200]}") from None
    if not isinstance(type_, Struct):
        raise UsageError(f"{source} is not a JSON Schema of objects with properties")
    return type_


def _type_of(schema: Any, document: Any, within: frozenset[str], count: TypeCount) -> Type | None:
    count.add()
    if not isinstance(schema, dict):
        return None
    if isinstance(reference := schema.get("$ref"), str):
        if reference in within:
            return None  # recursive
        return _type_of(_resolved(reference, document), document, within | {reference}, count)
    for combination in ("anyOf", "oneOf"):
        if combination in schema:
            others = [alternative for alternative in schema[combination] if alternative != {"type": "null"}]
            return _type_of(others[0], document, within, count) if len(others) == 1 else None
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kinds = [name for name in kind if name != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind == "array":
        item = _type_of(schema.get("items"), document, within, count)
        return None if item is None else ListOf(item)
    if kind == "object":
        properties = schema.get("properties", {})
        columns = [
            (name, _type_of(property_, document, within, count))
            for name, property_ in properties.items()
            if is_column_name(name)
        ]
        kept = tuple((name, type_) for name, type_ in columns if type_ is not None)
        return Struct(kept) if kept else None
    return _TYPES.get(kind) if isinstance(kind, str) else None


def _resolved(reference: str, document: Any) -> Any:
    """Return the target of a reference such as #/$defs/Address; None if it is in another document or does not exist."""
    if not reference.startswith("#"):
        return None
    target = document
    for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target


REGISTRY = "registry"
_REGISTRY_SUBJECT = f"{REGISTRY}:"
_PACKAGES = {Format.AVRO: "fastavro", Format.PROTOBUF: "google.protobuf"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOptions:
    """How the keys or values are written, from the command.  Raises UsageError for options that do not fit."""

    name: str
    """key or value."""
    format: Format = Format.BINARY
    schema: str = ""
    """The name of a file, `registry` or `registry:SUBJECT`; empty: inference for JSON, else the registry."""
    text: str = ""
    """The contents of the file."""
    changes: ChangeFormat = ChangeFormat.NONE
    """How values describe changes; then Debezium's types have columns of their own."""

    def __post_init__(self) -> None:
        if self.schema and self.format in {Format.BINARY, Format.STRING, Format.VARIANT}:
            raise UsageError(f"--{self.name}-schema is an option of --{self.name} json, avro and protobuf")
        if self.format is Format.PROTOBUF and not self.needs_registry:
            raise UsageError(f"--{self.name} protobuf requires a schema registry, not a file")

    @property
    def needs_registry(self) -> bool:
        """Whether schemas come from a registry."""
        return self.is_in_registry(self.schema) or (self.format in _PACKAGES and not self.schema)

    @property
    def is_inferred(self) -> bool:
        """Whether the columns are those that a sample of the records has."""
        return self.format is Format.JSON and not self.schema

    @staticmethod
    def is_in_registry(schema: str) -> bool:
        """Return whether this names a registry and not a file."""
        return schema == REGISTRY or schema.startswith(_REGISTRY_SUBJECT)

    def subject(self, topic: str) -> str:
        """Return the subject of a topic."""
        return self.schema.removeprefix(_REGISTRY_SUBJECT) if ":" in self.schema else f"{topic}-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """How an export decodes records."""

    key: FieldOptions = field(default_factory=lambda: FieldOptions(name="key"))
    value: FieldOptions = field(default_factory=lambda: FieldOptions(name="value"))
    keeps_bad: bool = False
    """--on-bad-record dead-letter."""
    levels: int | None = None
    """--max-depth."""
    logical_columns: frozenset[str] = logical_types.PORTABLE
    """The columns that logical types of Avro have in the table."""

    @property
    def fields(self) -> tuple[FieldOptions, FieldOptions]:
        """The options of keys and of values."""
        return self.key, self.value

    @property
    def are_typed(self) -> bool:
        """Whether keys or values are decoded."""
        return any(field_options.format is not Format.BINARY for field_options in self.fields)

    def __post_init__(self) -> None:
        """Raise UsageError for --max-depth without a format that it changes."""
        formats = {field_options.format for field_options in self.fields}
        if self.levels is not None and not formats & {Format.JSON, Format.AVRO}:
            raise UsageError("--max-depth is an option of --value and --key json and avro")

    def require_packages(self) -> None:
        """Raise PackageMissing unless the packages of the decoders are installed."""
        for field_options in self.fields:
            if field_options.format in _PACKAGES and find_spec(_PACKAGES[field_options.format]) is None:
                raise PackageMissing(f"{_PACKAGES[field_options.format]} missing: pip install 'kctl-kafka[registry]'")
            if field_options.format is Format.VARIANT:
                require_variants()


class SchemaSource(Protocol):
    """A schema registry."""

    def versions_of(self, subject: str) -> Sequence[Schema]:
        """Return all versions of a subject.  Raises RegistryUnreachable and SchemaError."""
        ...


SampleOf = Callable[[str, str], Sequence[bytes]]
"""(topic, key or value) to some of them."""


def decide(
    options: DecodingOptions,
    topics: Sequence[str],
    held: Mapping[str, HeldColumns],
    *,
    registry: SchemaSource | None,
    sample_of: SampleOf,
    is_shared: bool,
    keeps_raw: bool = False,
) -> dict[str, Columns]:
    """Return the decodings of the topics.

    `is_shared`: all topics have the same columns.  `keeps_raw`: columns that do not tell the bytes of records have
    these beside them.  Raises UsageError, SchemaError and RegistryUnreachable.
    """
    decodings: dict[str, dict[str, Decoding]] = {topic: {} for topic in topics}
    for field_options in options.fields:
        types: dict[str, Type] = {}
        for topic in topics:
            decoding = _cut(_decoding(options, field_options, topic, registry, sample_of), options.levels)
            before = getattr(held[topic], field_options.name) if topic in held else None
            if is_shared and types:
                before = next(reversed(types.values()))
            types[topic] = _continued(field_options, topic, before, decoding)
            is_kept = keeps_raw and decoding.loses_bytes
            decodings[topic][field_options.name] = replace(decoding, type=types[topic], keeps_raw=is_kept)
        if is_shared and topics:
            last = types[topics[-1]]
            for topic in topics:
                decodings[topic][field_options.name] = replace(decodings[topic][field_options.name], type=last)
    return {topic: Columns(**both) for topic, both in decodings.items()}


def _cut(decoding: Decoding, levels: int | None) -> Decoding:
    """Return the decoding with as many levels of fields; JSON has what is below in its rest, Avro as text."""
    if levels is None or decoding.format not in {Format.JSON, Format.AVRO} or not isinstance(decoding.type, Struct):
        return decoding
    has_texts = decoding.format is Format.AVRO
    type_ = cut(decoding.type, levels, has_texts=has_texts)
    assert type_ is not None
    return replace(decoding, type=type_, levels=levels if has_texts else None)


def check_held(
    options: DecodingOptions,
    topics: Collection[str],
    held: Mapping[str, HeldColumns],
    registry: SchemaSource | None,
) -> None:
    """Check topics without new records: their columns in the export must be those of these formats and schemas.

    The registry is only asked about columns that are not objects, so that a run without new records does without it.
    Raises as `decide`.
    """
    for topic in topics:
        for field_options in options.fields:
            before = getattr(held[topic], field_options.name) if topic in held else None
            if before is None or (field_options.needs_registry and isinstance(before, Struct)):
                continue
            _continued(
                field_options,
                topic,
                before,
                _cut(_decoding(options, field_options, topic, registry, lambda _topic, _name: ()), options.levels),
            )


def _continued(options: FieldOptions, topic: str, held: Type | None, decoding: Decoding) -> Type:
    """Return the held type with the fields of the new one."""
    if held is None or held == Struct():  # no column yet, or one that --select leaves out
        return bounded(decoding.type, options.name)
    if held != decoding.type and (isinstance(held, str) or type(held) is not type(decoding.type)):
        raise UsageError(
            f"the {options.name} of topic {topic} is {kind_of(held)} in the export and would become "
            f"{kind_of(decoding.type)}: use the same --{options.name}, or export to another folder"
        )
    return bounded(extended(held, decoding.type, options.name, is_strict=not options.is_inferred), options.name)


def _decoding(
    export: DecodingOptions, options: FieldOptions, topic: str, registry: SchemaSource | None, sample_of: SampleOf
) -> Decoding:
    match options.format:
        case Format.BINARY:
            return Decoding()
        case Format.STRING:
            return Decoding(Format.STRING, STRING)
        case Format.VARIANT:
            return Decoding(Format.VARIANT, VARIANT)
    if options.is_inferred and options.changes is not ChangeFormat.NONE:
        sample = sample_of(topic, options.name)
        return Decoding(Format.JSON, inferred_rows(sample, options.name), changes=options.changes)
    if options.is_inferred:
        return Decoding(Format.JSON, inferred(sample_of(topic, options.name)))
    if not options.needs_registry:
        return _given(export, options, [Schema(NO_ID, options.format.name, options.text)], options.schema)
    assert registry is not None
    subject = options.subject(topic)
    versions = registry.versions_of(subject)
    for schema in versions:
        if schema.type != options.format.name:
            raise UsageError(f"schema {schema.id} of the subject {subject} is {schema.type}, not {options.format.name}")
    return _given(export, options, versions, f"subject {subject}")


def _given(export: DecodingOptions, options: FieldOptions, schemas: Sequence[Schema], source: str) -> Decoding:
    """Return the columns of all schemas together."""
    chosen_type: Type | None = None
    has_changes = options.changes is not ChangeFormat.NONE
    if options.format is Format.AVRO:
        schemas = [_marked(schema, export, source, has_changes=has_changes) for schema in schemas]
    for schema in schemas:
        type_ = columns_of(schema.text, source) if options.format is Format.JSON else _column(schema, options, source)
        type_ = row_type(type_) if has_changes and options.name == "value" else type_
        chosen_type = type_ if chosen_type is None else extended(chosen_type, type_, options.name, widens=True)
    if chosen_type is None:
        raise UsageError(f"{source} has no schema")
    if options.format is Format.JSON:
        texts = [(schema.id, "") for schema in schemas if options.needs_registry]
    else:
        texts = [(schema.id, text_of(schema)) for schema in schemas]
    # Keys of JSON may be in an object with their schema, as values.
    changes = options.changes if options.name == "value" or options.format is Format.JSON else ChangeFormat.NONE
    return Decoding(options.format, chosen_type, is_strict=True, schemas=tuple(texts), changes=changes)


def _marked(schema: Schema, export: DecodingOptions, source: str, *, has_changes: bool) -> Schema:
    """Return an Avro schema with marks at the logical types that have columns.  Raises UsageError."""
    try:
        schema = avro_columns.with_logical_types(schema) if has_changes else schema
        return logical_types.with_marks(schema, export.logical_columns)
    except SchemaError as error:
        raise UsageError(f"{source}: {error}") from None


def inferred_rows(values: Iterable[bytes], name: str) -> Struct:
    """Return the columns of the rows, or keys, in values of JSON with changes.

    Those whose values have a schema of Kafka Connect are the columns of these schemas.
    """
    schemas: dict[str, Any] = {}
    rows: list[str] = []
    for value in values:
        try:
            payload, schema = payload_of(parse(value))
            row = change_of(payload).row if name == "value" else payload
        except (NotJson, NotAChange):
            continue
        if schema is not None:
            found = row_schema(schema) if name == "value" else schema
            schemas.setdefault(json.dumps(found, sort_keys=True, default=str), found)
        elif isinstance(row, dict):
            rows.append(text_of_json(row))
    type_: Type = inferred(rows)
    for found in schemas.values():
        if isinstance(column := connect_types.column_of(found), Struct):
            column = Struct(tuple(field for field in column.fields if field[0] != DELETED))
            type_ = column if type_ == Struct() else extended(type_, column, name, is_strict=False)
    assert isinstance(type_, Struct)
    return type_


def _column(schema: Schema, options: FieldOptions, source: str) -> Type:
    try:
        if options.format is Format.AVRO:
            from kctl.client.registry.avro import AvroCodec  # noqa: PLC0415 - an optional package

            return avro_columns.column_of(*AvroCodec(avro_columns.prepared(schema)).parsed, options.name)
        from kctl.client.registry.protobuf import ProtobufCodec  # noqa: PLC0415 - an optional package
        from kctl.tables.exec.decoding import protobuf_values  # noqa: PLC0415 - imports pyarrow

        return protobuf_values.column_of(ProtobufCodec(schema), options.name)
    except SchemaError as error:
        raise UsageError(f"{source}: {error}") from None
    except RecursionError:
        raise UsageError(f"{source} has too many levels") from None
