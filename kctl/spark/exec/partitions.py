"""Divides records by partition."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kctl.spark.exec.columns import CALENDAR_US
from kctl.spark.exec.partitioning import HOUR, HOUR_US, Partitioning, Values

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 24 * HOUR_US


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
        times = times + utc_offsets_us(times, ZoneInfo(partitioning.time_zone))
        times = np.clip(times, CALENDAR_US.start, CALENDAR_US.stop - 1)
    return pa.array(np.floor_divide(times, partitioning.unit_us))


def utc_offsets_us(times: NDArray[np.int64], zone: ZoneInfo) -> NDArray[np.int64]:
    """The difference of local time to UTC at each time, which is in microseconds since 1970 and in the calendar.

    Not by Arrow, which knows no daylight-saving time after 2037: files of zones have later changes as a rule only.
    """
    hours, places = np.unique(np.floor_divide(times, HOUR_US), return_inverse=True)
    starts, ends = (
        np.array([_utc_offset_us(hour * HOUR_US, zone) for hour in (hours + later).tolist()], np.int64)
        for later in (0, 1)
    )
    found = starts[places]
    for row in np.flatnonzero((starts != ends)[places]).tolist():  # the offset changes within the hour
        found[row] = _utc_offset_us(int(times[row]), zone)
    return found


def _utc_offset_us(time_us: int, zone: ZoneInfo) -> int:
    # Local times must be in the calendar as well.
    within = min(max(time_us, CALENDAR_US.start + DAY_US), CALENDAR_US.stop - DAY_US)
    offset = (EPOCH + timedelta(microseconds=within)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


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
