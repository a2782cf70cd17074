"""The columns of files, whose names and places differ from those of records with --flatten and --rename.

A field of a file's schema says in its metadata which column or field of a record it is, unless that is its own name.
The metadata becomes the comment of a column in Iceberg, and metadata of the column in Delta.

    customer_name: string       doc: "kctl: value.customer.name"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kctl.tables.exec.schema.arrow_types import VARIANT_TYPE
from kctl.tables.exec.selection.column_layout import DECODED, ColumnLayout, Path

DOC = b"doc"
_MARK = "kctl: "


def laid_out_schema(schema: pa.Schema, layout: ColumnLayout) -> pa.Schema:
    """Return the columns of files for those of records."""
    if not layout.has_names:
        return schema
    return pa.schema([placed for field in schema for placed in _placed(field, (field.name,), layout)])


def _placed(field: pa.Field, path: Path, layout: ColumnLayout) -> Iterator[pa.Field]:
    if layout.flatten and path[0] in DECODED and _has_fields(field.type):
        for child in field.type:
            yield from _placed(child, (*path, child.name), layout)
    else:
        yield _named(field, path, layout)


def _named(field: pa.Field, path: Path, layout: ColumnLayout) -> pa.Field:
    name, type_ = layout.name_of(path), field.type
    if not layout.flatten and path[0] in DECODED and _has_fields(type_):
        type_ = pa.struct([_named(child, (*path, child.name), layout) for child in type_])
    is_own = name == path[-1] and not (layout.flatten and path[1:])
    return pa.field(name, type_, metadata=None if is_own else {DOC: f"{_MARK}{'.'.join(path)}"})


def _has_fields(type_: pa.DataType) -> bool:
    return bool(pa.types.is_struct(type_) and type_ != VARIANT_TYPE)


def source_of(field: pa.Field, parent: Path = ()) -> Path:
    """Return the path of the column or field of records that a field of files is; `parent` is that of its struct."""
    text = (field.metadata or {}).get(DOC, b"").decode(errors="replace")
    return tuple(text.removeprefix(_MARK).split(".")) if text.startswith(_MARK) else (*parent, field.name)


def is_laid_out(schema: pa.Schema) -> bool:
    """Return whether any column or field has another name or place than in records."""
    return any(_differs(field, ()) for field in schema)


def _differs(field: pa.Field, parent: Path) -> bool:
    source = source_of(field, parent)
    if source != (*parent, field.name):
        return True
    return pa.types.is_struct(field.type) and any(_differs(child, source) for child in field.type)


def record_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of records for those of files."""
    if not is_laid_out(schema):
        return schema
    return pa.schema(_fields([(source_of(field), field) for field in schema], 0))


def _fields(entries: Sequence[tuple[Path, pa.Field]], depth: int) -> list[pa.Field]:
    names = dict.fromkeys(path[depth] for path, _ in entries)
    found = []
    for name in names:
        inner = [(path, field) for path, field in entries if path[depth] == name]
        whole = next((field for path, field in inner if len(path) == depth + 1), None)
        type_ = pa.struct(_fields(inner, depth + 1)) if whole is None else _original(whole.type, inner[0][0])
        found.append(pa.field(name, type_))
    return found


def _original(type_: pa.DataType, path: Path) -> pa.DataType:
    """Return the type with the names of records."""
    if not _has_fields(type_):
        return type_
    sources = [source_of(child, path) for child in type_]
    return pa.struct(
        [
            pa.field(source[-1], _original(child.type, source), child.nullable)
            for source, child in zip(sources, type_, strict=True)
        ]
    )


def physical_path(schema: pa.Schema, path: Path) -> Path | None:
    """Return where files have a column or field of records; None if they do not have it."""
    for field in schema:
        source = source_of(field)
        if source == path[: len(source)] and (found := _path_below(field, source, path)) is not None:
            return found
    return None


def _path_below(field: pa.Field, source: Path, path: Path) -> Path | None:
    if source == path:
        return (field.name,)
    for child in field.type if _has_fields(field.type) else ():
        inner = source_of(child, source)
        if inner == path[: len(inner)] and (found := _path_below(child, inner, path)) is not None:
            return (field.name, *found)
    return None


def sort_paths(schema: pa.Schema, layout: ColumnLayout) -> list[Path]:
    """Return the columns of files by which rows are sorted; those that the files do not have are left out."""
    found = [physical_path(schema, tuple(path.split("."))) for path in layout.sort_by]
    return [path for path in found if path is not None]


def laid_out(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns of files; `schema` is a result of `laid_out_schema`."""
    if not is_laid_out(schema):
        return batch
    columns = [_renamed(_column(batch, source_of(field)), field.type, source_of(field)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, path: Path) -> pa.Array:
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _renamed(array: pa.Array, type_: pa.DataType, path: Path) -> pa.Array:
    """Return an array with the type of a file, whose structs have their own names."""
    if array.type.equals(type_) or not _has_fields(type_):
        return array
    sources = [source_of(child, path) for child in type_]
    children = [
        _renamed(pc.struct_field(array, [source[-1]]), child.type, source)
        for source, child in zip(sources, type_, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())


def as_records(batch: pa.RecordBatch, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Return the rows of a file with the columns of records, those that the file has.

    `schema` has the metadata of the columns, if those of the batch do not.  A struct whose fields are all null is null.
    """
    held = batch.schema if schema is None else pa.schema([schema.field(name) for name in batch.schema.names])
    if not is_laid_out(held):
        return batch
    columns = {source_of(field): batch.column(field.name) for field in held}
    target = record_schema(held)
    found = [_gathered(columns, field, (field.name,)) for field in target]
    return pa.RecordBatch.from_arrays(found, schema=target)


def _gathered(columns: dict[Path, pa.Array], field: pa.Field, path: Path) -> pa.Array:
    if path in columns:
        return _with_type(columns[path], field.type)
    children = [_gathered(columns, child, (*path, child.name)) for child in field.type]
    is_null = np.logical_and.reduce([child.is_null().to_numpy(zero_copy_only=False) for child in children])
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=pa.array(is_null))


def _with_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return an array whose structs have the names of records, in the same places."""
    if array.type.equals(type_) or not _has_fields(type_):
        return array
    children = [_with_type(pc.struct_field(array, [index]), child.type) for index, child in enumerate(type_)]
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
