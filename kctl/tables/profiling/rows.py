"""A profile as rows.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

from kctl.limits import PROFILE_KEY_BYTES_MAX
from kctl.output.quantities import format_duration
from kctl.output.table import JSON_ONLY, Column, nonzero
from kctl.tables.profiling.fields import FieldProfile

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(timestamp_ms: int) -> str:
    """Return a time in UTC with milliseconds; beyond the years of the calendar, the number."""
    try:
        return f"{(_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(' ', 'milliseconds')[:-6]}Z"
    except OverflowError:
        return str(timestamp_ms)


def percent(share: float) -> str:
    """Return a share of 1 in percent, with two digits."""
    return f"{share:.2%}"


class PartitionProfile(NamedTuple):
    """The offsets `start` to `end` (exclusive) of a partition."""

    topic: Annotated[str, JSON_ONLY]
    partition: int
    start: int
    end: int
    records: int
    share: Annotated[float, Column(shown=percent), "Of the records of the topic."]
    log_bytes: Annotated[int, "Size of the batches as they are stored."]
    key_bytes: int
    value_bytes: int
    null_keys: int
    null_values: int
    out_of_order: Annotated[int, "Records with an earlier timestamp than one before them."]
    lateness_ms_max: Annotated[
        int,
        Column("lateness", shown=format_duration),
        "The longest time by which a record is earlier than one before it.",
    ]
    min_timestamp: Annotated[int | None, Column("earliest", numeric=False, shown=time_text)]
    max_timestamp: Annotated[
        int | None,
        Column("latest", numeric=False, shown=time_text),
        "In milliseconds since 1970; null without timestamps.",
    ]
    gone: Annotated[int, Column(is_rare=True, shown=nonzero), "Offsets whose records were deleted during the profile."]


class Bar(NamedTuple):
    """The count of the numbers from `low` to `high`, inclusive."""

    low: int
    high: int
    counted: int


class Spread(NamedTuple):
    """Numbers of bytes, milliseconds or records; percentiles are at most 1/32 too high."""

    counted: int
    mean: float | None
    min: int | None
    p50: int | None
    p90: int | None
    p99: int | None
    max: int | None
    bars: Annotated[Sequence[Bar], "Counts by powers of two."]


class TopKey(NamedTuple):
    """A frequent key."""

    key: Annotated[str, "As text, or `0x` and its bytes if it is not UTF-8; cut off after 100 bytes."]
    records: Annotated[int, "At least; at most `frequency_error` more."]
    share: Annotated[float, Column(shown=percent)]


class KeyProfile(NamedTuple):
    """Keys that are not null."""

    distinct: int
    distinct_error: Annotated[float, "Relative standard error of `distinct`; 0 if it is exact."]
    in_several_partitions: Annotated[int, "Keys with records in more than one partition, with the same error."]
    records_per_key: Spread
    frequency_error: Annotated[int, "What may be missing in the counts of `top`; 0 if they are exact."]
    top: Sequence[TopKey]


class CodecProfile(NamedTuple):
    """Batches compressed with one codec."""

    codec: str
    batches: int
    log_bytes: int
    uncompressed_bytes: int


class SliceProfile(NamedTuple):
    """One of the 20 slices of equal length in which the offsets of each partition are divided."""

    slice: int
    records: int
    min_timestamp: int | None
    max_timestamp: int | None
    sampled_objects: Annotated[int, "JSON objects in the sample of values."]


class KindCount(NamedTuple):
    """How many sampled values are of a kind."""

    kind: str
    values: int


class SchemaIdCount(NamedTuple):
    """How many values begin with the header of a schema registry's serializer with this id, by slice."""

    schema_id: int
    values: int
    by_slice: Sequence[int]


class ValueProfile(NamedTuple):
    """What values are."""

    sampled: Annotated[int, "Values in the sample; sizes, nulls and schema ids are those of all values."]
    kinds: Sequence[KindCount]
    schema_ids: Sequence[SchemaIdCount]
    other_schema_ids: Annotated[int, "Values with further ids, which are not listed."]
    fields: Sequence[FieldProfile]
    has_more_fields: bool


class TimeBucket(NamedTuple):
    """Records with timestamps from `start_ms` up to the start of the next bucket."""

    start_ms: int
    records: int


class TopicProfile(NamedTuple):
    """The profile of a topic."""

    topic: str
    isolation: str
    records: int
    log_bytes: int
    null_keys: int
    null_values: int
    with_headers: Annotated[int, "Records with headers."]
    append_time: Annotated[int, "Records with the time of the broker (LogAppendTime)."]
    without_timestamp: int
    out_of_order: int
    partitions: Sequence[PartitionProfile]
    key_sizes: Spread
    value_sizes: Spread
    lateness_ms: Annotated[Spread, "Of the records that are out of order."]
    keys: KeyProfile
    codecs: Sequence[CodecProfile]
    time_width_ms: int
    times: Sequence[TimeBucket]
    slices: Sequence[SliceProfile]
    values: ValueProfile


def key_text(key: bytes) -> str:
    """See TopKey."""
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        if error.end == len(key) == PROFILE_KEY_BYTES_MAX:
            return key[: error.start].decode()  # the last character was cut off
        return f"0x{key.hex()}"
