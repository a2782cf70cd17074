"""Divides records by partition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kctl.spark.exec.columns import CALENDAR_US
from kctl.spark.exec.partitioning import HOUR, Partitioning, Values


def by_partition(batch: pa.RecordBatch, partitioning: Partitioning) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The records of each partition, in order.  The batch is not empty."""
    if not partitioning:
        yield (), batch
        return
    keys = _units(batch, partitioning) if partitioning.unit_us else _field(batch, partitioning)
    encoded = keys.dictionary_encode(null_encoding="encode")
    found = encoded.dictionary
    if len(found) == 1:
        yield _values(found[0], partitioning), batch
        return
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(found)), side="right")
    for key, rows in zip(found, np.split(order, ends[:-1]), strict=True):
        yield _values(key, partitioning), batch.take(pa.array(rows))  # a copy, so that each part can be freed


def _units(batch: pa.RecordBatch, partitioning: Partitioning) -> pa.Array:
    """Days or hours since 1970 in the time zone; times outside of the calendar count as its first or last ones."""
    times = np.clip(batch.column("timestamp").cast(pa.int64()).to_numpy(), CALENDAR_US.start, CALENDAR_US.stop - 1)
    if partitioning.time_zone != "UTC":
        zoned = pa.array(times).view(pa.timestamp("us", tz=partitioning.time_zone))
        times = np.clip(pc.local_timestamp(zoned).cast(pa.int64()).to_numpy(), CALENDAR_US.start, CALENDAR_US.stop - 1)
    return pa.array(np.floor_divide(times, partitioning.unit_us))


def _field(batch: pa.RecordBatch, partitioning: Partitioning) -> pa.Array:
    return pc.struct_field(batch.column("value"), list(partitioning.field))


def _values(key: pa.Scalar, partitioning: Partitioning) -> Values:
    found = key.as_py()
    if partitioning.unit_us:
        time = np.datetime64(found, "h" if partitioning.by == HOUR else "D")
        return tuple(str(time).split("T"))
    if isinstance(found, bool):
        return ("true" if found else "false",)
    return (None if found is None else str(found),)
