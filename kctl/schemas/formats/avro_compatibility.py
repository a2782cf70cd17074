"""Whether data of one Avro schema can be read with another one: Avro's rules of schema resolution.

As in org.apache.avro.SchemaCompatibility, with its paths and messages.  The checker of Apache Avro's Python library
has the same verdicts (a property test compares them), and loses which message belongs to which path.
"""

from __future__ import annotations

from typing import Any

from avro.schema import Schema

from kctl.schemas.formats.parsed import READER, WRITER, Budget, Difference

_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}


def compare_avro(reader: Schema, writer: Schema) -> list[Difference]:
    """Return what prevents that data of `writer` are read with `reader`.  Raises InvalidSchema."""
    return _Comparison().differences(reader, writer, "")


class _Comparison:
    def __init__(self) -> None:
        self._budget = Budget()
        self._known: dict[tuple[int, int], bool] = {}
        """Whether pairs are compatible; those that are being compared count as such, for recursive types."""

    def differences(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        self._budget.spend()
        pair = (id(reader), id(writer))
        if self._known.get(pair, False):
            return []
        self._known[pair] = True
        found = self._compare(reader, writer, path)
        self._known[pair] = not found
        return found

    def _compare(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        if writer.type == "union":
            return self._of_written_union(reader, writer, path)
        if reader.type == "union":
            if any(not self.differences(branch, writer, path) for branch in reader.schemas):
                return []
            return [_missing_branch(writer, path)]
        if reader.type != writer.type:
            is_promoted = writer.type in _PROMOTIONS.get(reader.type, ())
            return [] if is_promoted else [_type_mismatch(reader, writer, path)]
        match reader.type:
            case "array":
                return self.differences(reader.items, writer.items, f"{path}/items")
            case "map":
                return self.differences(reader.values, writer.values, f"{path}/values")
            case "fixed":
                return _names(reader, writer, path) + _sizes(reader, writer, path)
            case "enum":
                return _names(reader, writer, path) + _symbols(reader, writer, path)
            case "record" | "error":
                return _names(reader, writer, path) + self._fields(reader, writer, path)
        return []

    def _of_written_union(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        found: list[Difference] = []
        for index, branch in enumerate(writer.schemas):
            of_branch = self.differences(reader, branch, path)
            if of_branch and reader.type == "union":
                found.append(_missing_branch(branch, f"{path}/{index}"))
            else:
                found += of_branch
        return found

    def _fields(self, reader: Any, writer: Any, path: str) -> list[Difference]:
        found: list[Difference] = []
        for index, field in enumerate(reader.fields):
            place = f"{path}/fields/{index}"
            names = [field.name, *(field.props.get("aliases") or ())]
            written = next((writer.fields_dict[name] for name in names if name in writer.fields_dict), None)
            if written is not None:
                found += self.differences(field.type, written.type, f"{place}/type")
            elif not field.has_default:
                found.append(
                    Difference(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        f"The field '{field.name}' at path '{place}' in the {READER} schema has no default value and "
                        f"is missing in the {WRITER} schema",
                        field.name,
                    )
                )
        return found


def _type_mismatch(reader: Any, writer: Any, path: str) -> Difference:
    return Difference(
        "TYPE_MISMATCH",
        f"The type (path '{path or '/'}') of a field in the {READER} schema does not match with the {WRITER} schema",
        f"reader type: {reader.type.upper()} not compatible with writer type: {writer.type.upper()}",
    )


def _missing_branch(writer: Any, path: str) -> Difference:
    return Difference(
        "MISSING_UNION_BRANCH",
        f"The {READER} schema is missing a type inside a union field at path '{path or '/'}' in the {WRITER} schema",
        f"reader union lacking writer type: {writer.type.upper()}",
    )


def _names(reader: Any, writer: Any, path: str) -> list[Difference]:
    space = reader.fullname.rpartition(".")[0]
    aliases = {
        alias if "." in alias or not space else f"{space}.{alias}" for alias in reader.props.get("aliases") or ()
    }
    if reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2] or writer.fullname in aliases:
        return []
    place = f"{path}/name"
    return [
        Difference(
            "NAME_MISMATCH",
            f"The name of the schema has changed (path '{place}')",
            f"expected: {writer.fullname}",
        )
    ]


def _sizes(reader: Any, writer: Any, path: str) -> list[Difference]:
    if reader.size == writer.size:
        return []
    return [
        Difference(
            "FIXED_SIZE_MISMATCH",
            f"The size of FIXED type field at path '{path}/size' in the {READER} schema does not match with the "
            f"{WRITER} schema",
            f"expected: {writer.size}, found: {reader.size}",
        )
    ]


def _symbols(reader: Any, writer: Any, path: str) -> list[Difference]:
    missing = f"[{', '.join(symbol for symbol in writer.symbols if symbol not in reader.symbols)}]"
    if missing == "[]" or reader.props.get("default") in reader.symbols:
        return []
    return [
        Difference(
            "MISSING_ENUM_SYMBOLS",
            f"The {READER} schema is missing enum symbols '{missing}' at path '{path}/symbols' in the {WRITER} schema",
            missing,
        )
    ]
