"""Decodes JSON objects into columns with pyarrow's parser; record by record only what that refuses.

For the parser, each value is wrapped into an object with its index: `{"i":0,"v":...}`.  So a value that is not JSON by
itself, but is together with its neighbours, does not shift the rows: it is refused, or changes an index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kctl.client.registry.schema import HEADER_BYTES
from kctl.tables.exec.decoding.batch_decoder import DecodedColumn, Occurrences, decoded_texts
from kctl.tables.exec.schema.arrow_types import arrow_type
from kctl.tables.exec.schema.column_types import (
    Decoding,
    ListOf,
    Struct,
    Type,
    alternative_name,
    alternatives,
    is_alternative,
)
from kctl.tables.exec.schema.json_fields import NOTHING, WHOLE_END, Misplaced, divided
from kctl.tables.exec.schema.json_text import NotJson, parse, text_of

RECORD_BY_RECORD_MAX = 64
"""More records than these are halved if the parser refuses them, to find those it accepts."""
_BYTES_MAX = 2**31 - 1
"""Of all values of a column together."""


class JsonDecoder:
    """JSON objects in UTF-8, optionally after the header of a schema registry."""

    def __init__(self, decoding: Decoding, name: str) -> None:
        self._type = decoding.type
        self._arrow = arrow_type(decoding.type)
        self._has_column = decoding.type != Struct()
        self._parsed_type = arrow_type(_without_alternatives(decoding.type))
        self._is_parsed = self._has_column and not _is_alternative_in_list(decoding.type)
        self._is_strict = decoding.is_strict
        self._ids = [schema_id for schema_id, _ in decoding.schemas]
        self._name = name

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """See ColumnDecoder."""
        misfits: dict[int, str] = {}
        if self._ids:
            raw, misfits = without_header(raw, self._ids)
        texts, invalid = decoded_texts(raw)
        misfits |= invalid
        values: list[pa.Array] = []
        rests: list[pa.Array] = []
        misplaced: dict[Misplaced, Occurrences] = {}
        pending = [(0, len(texts))] if len(texts) else []
        while pending:
            start, count = pending.pop()
            part = texts.slice(start, count)
            if self._is_parsed and (parsed := self._parsed(part)) is not None:
                values.append(parsed)
                rests.append(pa.nulls(count, pa.string()))
            elif count > RECORD_BY_RECORD_MAX:
                half = count // 2
                pending += [(start + half, count - half), (start, half)]
            else:
                value, rest, found = self._one_by_one(part, start, misplaced)
                values.append(value)
                rests.append(rest)
                misfits |= found
        rest = pa.concat_arrays(rests) if rests else pa.nulls(0, pa.string())
        if not self._has_column:
            return DecodedColumn([rest], misfits, misplaced)
        column = pa.concat_arrays(values) if values else pa.nulls(0, self._arrow)
        return DecodedColumn([column, rest], misfits, misplaced)

    def _parsed(self, texts: pa.Array) -> pa.Array | None:
        """Return the column; None if any text is not a JSON object that has exactly the known fields, or some of
        them.
        """
        count = len(texts)
        indexes = pa.array(range(count), pa.int64())
        wrapped = pc.binary_join_element_wise(
            '{"i":', indexes.cast(pa.string()), ',"v":', pc.fill_null(texts, "null"), "}\n", ""
        )
        joined = wrapped.buffers()[2]
        columns = pa.schema([("i", pa.int64()), ("v", self._parsed_type)])
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(joined),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=joined.size + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=columns, newlines_in_values=True, unexpected_field_behavior="error"
                ),
            )
        except (pa.ArrowException, ValueError):
            return None
        if table.schema != columns or not table.column("i").combine_chunks().equals(indexes):
            return None
        found = table.column("v").combine_chunks()
        return _with_alternatives(found, self._type) if _is_exact(found) else None

    def _one_by_one(
        self, texts: pa.Array, start: int, misplaced: dict[Misplaced, Occurrences]
    ) -> tuple[pa.Array, pa.Array, dict[int, str]]:
        """Return the column, the rests, and the reasons of values that do not fit, by index; the first is `start`."""
        values: list[Any] = []
        rests: list[str | None] = []
        reasons: dict[int, str] = {}
        for index, text in enumerate(texts.to_pylist(), start):
            value, rest = None, None
            if text is not None:
                try:
                    value, left, places = self._divided(text)
                    for place in places:
                        before = misplaced.get(place, Occurrences(0, index))
                        misplaced[place] = Occurrences(before.times + 1, min(before.first, index))
                    rest = None if left is NOTHING else text_of(left)
                except NotJson as error:
                    reasons[index] = str(error)
            values.append(value)
            rests.append(rest)
        column = pa.array(values, self._arrow) if self._has_column else pa.nulls(0)
        return column, pa.array(rests, pa.string()), reasons

    def _divided(self, text: str) -> tuple[Any, Any, list[Misplaced]]:
        """Divide a text, or raise NotJson."""
        value = parse(text)
        if value is not None and not isinstance(value, dict):
            raise NotJson("it is not a JSON object")
        misplaced: list[Misplaced] = []
        fitting, rest = divided(value, self._type, self._name, misplaced)
        if self._is_strict and (wrong := next((place for place in misplaced if place.wanted), None)):
            raise NotJson(f"{wrong.path} is not {wrong.wanted}")
        return fitting, rest, misplaced


def without_header(raw: pa.Array, ids: list[int]) -> tuple[pa.Array, dict[int, str]]:
    """Return the values after the zero byte and the id; those without the header of a known schema become null."""
    headers = pc.binary_slice(raw, 0, HEADER_BYTES)
    known = pa.array([b"\0" + schema_id.to_bytes(4, "big") for schema_id in ids], pa.binary())
    is_known = pc.is_in(headers, known)
    has_value = raw.is_valid()
    wrong = pc.indices_nonzero(pc.and_(has_value, pc.invert(is_known))).to_pylist()
    # Without an end, pyarrow 26 fails if a value is null or shorter than the header.
    payloads = pc.if_else(is_known, pc.binary_slice(raw, HEADER_BYTES, _BYTES_MAX), pa.scalar(None, pa.binary()))
    return payloads, dict.fromkeys(wrong, "it does not begin with the id of a schema of its subject")


def _without_alternatives(type_: Type) -> Type:
    """Return the type as the parser gets it: an int64 that has an alternative for doubles is a double."""
    if not isinstance(type_, Struct):
        return type_
    fields = dict(type_.fields)
    names = [name for name in fields if not is_alternative(name, fields)]
    return Struct(
        tuple((name, "double" if _is_split(name, fields) else _without_alternatives(fields[name])) for name in names)
    )


def _is_split(name: str, fields: Mapping[str, Type]) -> bool:
    return fields[name] == "int64" and "double" in alternatives(name, fields)


def _is_alternative_in_list(type_: Type, *, is_item: bool = False) -> bool:
    match type_:
        case ListOf(item):
            return _is_alternative_in_list(item, is_item=True)
        case Struct(fields):
            named = dict(fields)
            return any(
                (is_item and is_alternative(name, named)) or _is_alternative_in_list(field_type, is_item=is_item)
                for name, field_type in fields
            )
    return False


def _with_alternatives(array: pa.Array, type_: Type) -> pa.Array:
    """Return what was parsed without alternatives as a column of the type, with the same values."""
    if array.type == arrow_type(type_):
        return array
    assert isinstance(type_, Struct)
    fields = dict(type_.fields)
    columns: dict[str, pa.Array] = {}
    for name, field_type in fields.items():
        if is_alternative(name, fields):
            columns.setdefault(name, pa.nulls(len(array), arrow_type(field_type)))
            continue
        values = array.field(name)
        if _is_split(name, fields):
            is_whole = pc.equal(values, pc.floor(values))
            columns[name] = pc.if_else(is_whole, values, None).cast(pa.int64())
            columns[alternative_name(name, "double")] = pc.if_else(is_whole, None, values)
        else:
            columns[name] = _with_alternatives(values, field_type)
    return pa.StructArray.from_arrays(
        [columns[name] for name in fields], fields=list(arrow_type(type_)), mask=array.is_null()
    )


def _is_exact(array: pa.Array) -> bool:
    """Return whether doubles have no whole number that was rounded, nor NaN or infinity, which the parser accepts."""
    if pa.types.is_floating(array.type):
        return pc.all(pc.less(pc.abs(array), WHOLE_END)).as_py() is not False
    if pa.types.is_struct(array.type):
        return all(_is_exact(array.field(index)) for index in range(array.type.num_fields))
    if pa.types.is_list(array.type):
        return _is_exact(array.values)
    return True
