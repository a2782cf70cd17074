"""Schemas of all types, and the messages of their comparison."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.limits import Subject, bound
from kctl.schemas.formats.avro_compatibility import compare_avro
from kctl.schemas.formats.avro_schema import parse_avro
from kctl.schemas.formats.json_compatibility import compare_json
from kctl.schemas.formats.json_schema import parse_json_schema
from kctl.schemas.formats.parsed import Difference, InvalidSchema, ParsedSchema
from kctl.schemas.formats.protobuf_compatibility import compare_protobuf
from kctl.schemas.formats.protobuf_schema import Compile, parse_protobuf

TYPES = ("JSON", "PROTOBUF", "AVRO")
PARSED_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "schemas that are kept as they were parsed",
    1_000,
    "schemas",
    on_excess="the oldest is parsed again when it is needed",
)
_COMPARE = {"AVRO": compare_avro, "JSON": compare_json, "PROTOBUF": compare_protobuf}
_SHOWN_CHARACTERS_MAX = 10_000


class SchemaParser:
    """Parses schemas, and keeps them."""

    def __init__(self, compile_protobuf: Compile) -> None:
        self._compile = compile_protobuf
        self._parsed: dict[tuple[str, str, tuple[tuple[str, str], ...], bool], ParsedSchema] = {}

    def parse(self, kind: str, text: str, used: Mapping[str, str], *, normalizes: bool = False) -> ParsedSchema:
        """Return a schema; `used` are the texts of those that it uses, each after those that it uses itself.

        Raises InvalidSchema.
        """
        key = (kind, text, tuple(used.items()), normalizes)
        if key not in self._parsed:
            parsed = self._parse(kind, text, used, normalizes=normalizes)
            if len(self._parsed) >= PARSED_MAX:
                del self._parsed[next(iter(self._parsed))]
            self._parsed[key] = parsed
        return self._parsed[key]

    def _parse(self, kind: str, text: str, used: Mapping[str, str], *, normalizes: bool) -> ParsedSchema:
        if not text.strip():
            raise InvalidSchema("Empty schema")
        match kind:
            case "AVRO":
                return parse_avro(text, used.values(), normalizes=normalizes)
            case "JSON":
                return parse_json_schema(text, used, normalizes=normalizes)
            case "PROTOBUF":
                return parse_protobuf(text, used, self._compile)
        raise InvalidSchema(f"Invalid schema type {kind[:100]}, supported are {', '.join(TYPES)}")


def incompatibilities(level: str, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    """Return why a level does not permit `new` after `old`.  Raises InvalidSchema."""
    if new.type != old.type:
        return ["Incompatible because of different schema type"]
    messages = []
    if level.startswith(("BACKWARD", "FULL")):
        messages += [difference.text("new", "old") for difference in _differences(new, old)]
    if level.startswith(("FORWARD", "FULL")):
        messages += [difference.text("old", "new") for difference in _differences(old, new)]
    return messages


def shown(version: int, old: ParsedSchema) -> list[str]:
    """Return the messages that name the version with which a schema is not compatible."""
    text = old.text
    if len(text) > _SHOWN_CHARACTERS_MAX:
        return [f"{{oldSchemaVersion: {version}}}", f"{{oldSchema: <truncated> '{text[:_SHOWN_CHARACTERS_MAX]}...'}}"]
    return [f"{{oldSchemaVersion: {version}}}", f"{{oldSchema: '{text}'}}"]


def _differences(reader: ParsedSchema, writer: ParsedSchema) -> list[Difference]:
    return _COMPARE[reader.type](reader.model, writer.model)
