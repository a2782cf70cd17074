"""Decodes JSON objects into columns with pyarrow's parser; record by record only what that refuses.

For the parser, each value is wrapped into an object with its index: `{"i":0,"v":...}`.  So a value that is not JSON by
itself, but is together with its neighbours, does not shift the rows: it is refused, or changes an index.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kctl.client.registry.schema import HEADER_BYTES
from kctl.tables.exec.decoding.batch_decoder import DecodedColumn, Occurrences, decoded_texts
from kctl.tables.exec.schema.arrow_types import arrow_type
from kctl.tables.exec.schema.column_types import Decoding, Struct
from kctl.tables.exec.schema.json_fields import NOTHING, Misplaced, divided
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
        self._is_strict = decoding.is_strict
        self._ids = [schema_id for schema_id, _ in decoding.schemas]
        self._name = name

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """See ColumnDecoder."""
        misfits: dict[int, str] = {}
        if self._ids:
            raw, misfits = _without_header(raw, self._ids)
        texts, invalid = decoded_texts(raw)
        misfits |= invalid
        values: list[pa.Array] = []
        rests: list[pa.Array] = []
        misplaced: dict[Misplaced, Occurrences] = {}
        pending = [(0, len(texts))] if len(texts) else []
        while pending:
            start, count = pending.pop()
            part = texts.slice(start, count)
            if self._has_column and (parsed := self._parsed(part)) is not None:
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
        columns = pa.schema([("i", pa.int64()), ("v", self._arrow)])
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
        return found if _is_exact(found) else None

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


def _without_header(raw: pa.Array, ids: list[int]) -> tuple[pa.Array, dict[int, str]]:
    """Return the values after the zero byte and the id; those without the header of a known schema become null."""
    headers = pc.binary_slice(raw, 0, HEADER_BYTES)
    known = pa.array([b"\0" + schema_id.to_bytes(4, "big") for schema_id in ids], pa.binary())
    is_known = pc.is_in(headers, known)
    has_value = raw.is_valid()
    wrong = pc.indices_nonzero(pc.and_(has_value, pc.invert(is_known))).to_pylist()
    # Without an end, pyarrow 26 fails if a value is null or shorter than the header.
    payloads = pc.if_else(is_known, pc.binary_slice(raw, HEADER_BYTES, _BYTES_MAX), pa.scalar(None, pa.binary()))
    return payloads, dict.fromkeys(wrong, "it does not begin with the id of a schema of its subject")


_WHOLE_END = 2.0**53
"""Below this number, doubles have every whole number; this or a larger one may have been rounded."""


def _is_exact(array: pa.Array) -> bool:
    """Return whether doubles have no whole number that was rounded, nor NaN or infinity, which the parser accepts."""
    if pa.types.is_floating(array.type):
        return pc.all(pc.less(pc.abs(array), _WHOLE_END)).as_py() is not False
    if pa.types.is_struct(array.type):
        return all(_is_exact(array.field(index)) for index in range(array.type.num_fields))
    if pa.types.is_list(array.type):
        return _is_exact(array.values)
    return True
