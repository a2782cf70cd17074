"""Decodes JSON that describes changes into the rows and what becomes of them; and the keys of such records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kctl.tables.exec.decoding.batch_decoder import DecodedColumn, Occurrences, decoded_texts
from kctl.tables.exec.decoding.json_values import without_header
from kctl.tables.exec.schema.arrow_types import arrow_type
from kctl.tables.exec.schema.changes import NotAChange, change_of, payload_of, row_schema
from kctl.tables.exec.schema.column_types import Decoding, Struct
from kctl.tables.exec.schema.connect_types import as_json, converted
from kctl.tables.exec.schema.json_fields import NOTHING, Misplaced, divided
from kctl.tables.exec.schema.json_text import NotJson, parse, text_of


class JsonChangeDecoder:
    """JSON in UTF-8, optionally after the header of a schema registry or with a schema of Kafka Connect.

    Values are changes, see kctl.tables.exec.schema.changes; keys are objects.
    """

    def __init__(self, decoding: Decoding, name: str) -> None:
        self._type = decoding.type
        self._arrow = arrow_type(decoding.type)
        self._has_column = decoding.type != Struct()
        self._ids = [schema_id for schema_id, _ in decoding.schemas]
        self._name = name
        self._are_changes = name == "value"

    def decode(self, raw: pa.Array) -> DecodedColumn:
        """See ColumnDecoder."""
        misfits: dict[int, str] = {}
        if self._ids:
            raw, misfits = without_header(raw, self._ids)
        texts, invalid = decoded_texts(raw)
        misfits |= invalid
        values: list[Any] = []
        rests: list[str | None] = []
        kinds: list[str | None] = []
        misplaced: dict[Misplaced, Occurrences] = {}
        for index, text in enumerate(texts.to_pylist()):
            kind, value, rest = None, None, None
            try:
                kind, row = self._change(text)
                places: list[Misplaced] = []
                value, left = divided(row, self._type, self._name, places)
                rest = None if left is NOTHING else text_of(as_json(left))
                for place in places:
                    before = misplaced.get(place, Occurrences(0, index))
                    misplaced[place] = Occurrences(before.times + 1, min(before.first, index))
            except (NotJson, NotAChange) as error:
                misfits.setdefault(index, str(error))
            values.append(value)
            rests.append(rest)
            kinds.append(kind)
        arrays = [pa.array(values, self._arrow)] if self._has_column else []
        arrays.append(pa.array(rests, pa.string()))
        if self._are_changes:
            arrays.append(pa.array(kinds, pa.string()))
        return DecodedColumn(arrays, misfits, misplaced)

    def _change(self, text: str | None) -> tuple[str | None, Any]:
        """Return what becomes of the row, and the row as its columns have it.  Raises NotJson, NotAChange."""
        payload, schema = payload_of(None if text is None else parse(text))
        if self._are_changes:
            kind, row = change_of(payload)
            return kind.value, converted(row, row_schema(schema))
        if payload is not None and not isinstance(payload, dict):
            raise NotJson("it is not a JSON object")
        return None, converted(payload, schema)
