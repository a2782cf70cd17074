"""How the files of a table are partitioned.  Pure."""

from __future__ import annotations

from enum import StrEnum

HOUR_US = 3_600_000_000


class PartitionBy(StrEnum):
    """Unit of the records' timestamps (UTC) of which each file has one value."""

    NONE = "none"
    DATE = "date"
    HOUR = "hour"

    @property
    def unit_us(self) -> int:
        """Microseconds of a unit; 0 without partitions."""
        return {PartitionBy.NONE: 0, PartitionBy.DATE: 24 * HOUR_US, PartitionBy.HOUR: HOUR_US}[self]

    @property
    def columns(self) -> tuple[str, ...]:
        """Partition columns of a Delta table: a date, and an hour from 0 to 23."""
        return {PartitionBy.NONE: (), PartitionBy.DATE: ("date",), PartitionBy.HOUR: ("date", "hour")}[self]

    def values(self, time: str) -> dict[str, str | None]:
        """The partition columns of a time such as 2026-11-01 or 2026-11-01T07."""
        date, _, hour = time.partition("T")
        return dict(zip(self.columns, (date, str(int(hour or 0))), strict=False))
