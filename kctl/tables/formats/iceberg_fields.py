"""Which columns of an Iceberg table its partitions and its order are of, and their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions.literals import literal
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType, IntegerType

from kctl.tables.exec.selection.laid_out import physical_path
from kctl.tables.exec.selection.partitioning import DATE, HOUR, Partitioning
from kctl.tables.exec.selection.transforms import BUCKET, DAY, HOUR_OF, MONTH, YEAR, Term, ordinal

TRANSFORMS: Mapping[str, Transform[Any, Any]] = {DATE: DayTransform(), HOUR: HourTransform()}
TRANSFORMS_OF_TIME: Mapping[str, Transform[Any, Any]] = {
    YEAR: YearTransform(),
    MONTH: MonthTransform(),
    DAY: DayTransform(),
    HOUR_OF: HourTransform(),
}
"""Hidden partitions: the library computes them from the statistics of a file, which has records of one partition."""


def source_columns(schema: pa.Schema, paths: Sequence[str]) -> list[str]:
    """Return the columns of files for columns of records, which files have; `schema` is that of the files."""
    return [".".join(physical_path(schema, tuple(path.split("."))) or path.split(".")) for path in paths]


def partition_fields(by: Partitioning, schema: pa.Schema) -> list[tuple[str, Transform[Any, Any], str]]:
    """Return the source column, transform and name of each partition; `schema` is that of the files."""
    sources = source_columns(schema, by.sources)
    if not by.terms:
        return [(sources[0], TRANSFORMS[by.by], f"timestamp_{by.by}")]
    return [(source, _transform(term), term.column) for source, term in zip(sources, by.terms, strict=True)]


def _transform(term: Term) -> Transform[Any, Any]:
    match term.transform:
        case "bucket":
            return BucketTransform(term.argument)
        case "truncate":
            return TruncateTransform(term.argument)
    return TRANSFORMS_OF_TIME.get(term.transform, IdentityTransform())


def partition_value(term: Term, source: IcebergType, text: str | None) -> Any:
    """Return the value of a partition as Iceberg has it."""
    if text is None:
        return None
    if term.is_time:
        return ordinal(term, text)
    return literal(text).to(IntegerType() if term.transform == BUCKET else source).value
