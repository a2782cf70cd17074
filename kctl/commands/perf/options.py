"""Options that the verbs of `kctl perf` share, and their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Annotated

import typer

from kctl.admin.perf.client_choice import ClientName
from kctl.admin.perf.measurement import Load
from kctl.admin.perf.payloads import SizeDistribution, SizeRange, random_values, values_of_lines
from kctl.commands.times import parse_duration_ms
from kctl.commands.values import parse_size
from kctl.errors import UsageError
from kctl.input_files import read_regular
from kctl.integers import INT16_MAX, INT32_MAX, parse_integer
from kctl.limits import PERF_PAYLOAD_BYTES_MAX

NS_PER_MS = 1_000_000
DURATION_MS_MAX = 7 * 86_400_000
RECORDS_MAX = 10**12
RATE_MAX = 10**9
INTERVAL_MS_MIN = 100
_WEIGHT_MAX = 1_000_000
_RANGES_MAX = 100

Topic = Annotated[str, typer.Argument(help="Topic for the test records.", metavar="TOPIC")]
Client = Annotated[
    ClientName,
    typer.Option(
        "--client",
        help="Measure with librdkafka or with kctl's own client; auto takes librdkafka if it is installed and the"
        " listener has no TLS and SASL.",
    ),
]
Records = Annotated[
    int | None,
    typer.Option("--records", metavar="N", help="End after this many records.", min=1, max=RECORDS_MAX),
]
Duration = Annotated[str | None, typer.Option("--duration", metavar="DURATION", help="End after this time.")]
Rate = Annotated[
    int | None,
    typer.Option("--rate", metavar="N", help="Records per second.  Default: as many as possible.", min=1, max=RATE_MAX),
]
Size = Annotated[
    str,
    typer.Option(
        "--size",
        metavar="SIZE|A-B|A-B:WEIGHT,...",
        help="Size of the values in bytes: 1k, 100-2k (all equally likely), or several with weights: 100:9,10k:1.",
    ),
]
PayloadFile = Annotated[
    str | None,
    typer.Option("--payload-file", metavar="FILE", help="Take the values from the lines of this file, at random."),
]
Warmup = Annotated[
    str, typer.Option("--warmup", metavar="DURATION", help="Do not count records in this time at the start.")
]
Interval = Annotated[
    str, typer.Option("--interval", metavar="DURATION", help="Time between two rows of intermediate results.")
]
HistogramOption = Annotated[
    bool,
    typer.Option(
        "--histogram",
        help="Show how often each range of latencies occurred; with plain and csv instead of the total, which is then a"
        " note on stderr.",
    ),
]
Create = Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        metavar="N",
        help="Number of partitions of the topic to --create.  Default: the broker's.",
        min=1,
        max=INT32_MAX,
    ),
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replication-factor",
        metavar="N",
        help="Number of replicas of the topic to --create.  Default: the broker's.",
        min=1,
        max=INT16_MAX,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check topic and options, without creating or writing anything.")
]


def parse_load(
    records: int | None, duration: str | None, *, warmup: str = "0s", rate: int | None = None, default_ms: int | None
) -> Load:
    """The load of the options; `default_ms` is the duration without --records and --duration.  Raises UsageError."""
    duration_ms = _bounded_ms(duration, "--duration") if duration else None
    if records is None and duration_ms is None:
        duration_ms = default_ms
    return Load(
        records=records,
        duration_ns=None if duration_ms is None else duration_ms * NS_PER_MS,
        warmup_ns=_bounded_ms(warmup, "--warmup", low=0) * NS_PER_MS,
        rate=rate,
    )


def parse_interval_ns(text: str) -> int:
    """The time between two rows.  Raises UsageError."""
    return _bounded_ms(text, "--interval", low=INTERVAL_MS_MIN) * NS_PER_MS


def _bounded_ms(text: str, option: str, *, low: int = 1) -> int:
    duration_ms = parse_duration_ms(text)
    if not low <= duration_ms <= DURATION_MS_MAX:
        raise UsageError(f"{option} must be between {low}ms and 7d, not '{text}'")
    return duration_ms


def parse_sizes(text: str) -> SizeDistribution:
    """Sizes, ranges of sizes and their weights.  Raises UsageError."""
    ranges, weights = [], []
    for part in text.split(","):
        found = re.fullmatch(r"([^-:]+)(?:-([^-:]+))?(?::([0-9]+))?", part)
        try:
            if not found:
                raise UsageError(f"'{part}' is not a size; use 1k, 100-2k or 100-2k:9")
            ranges.append(SizeRange(parse_size(found[1]), parse_size(found[2] or found[1])))
            weights.append(parse_integer(found[3] or "1", "a weight", high=_WEIGHT_MAX))
        except UsageError as error:
            raise UsageError(f"--size: {error}") from None
    if len(ranges) > _RANGES_MAX:
        raise UsageError(f"--size takes at most {_RANGES_MAX} ranges")
    return SizeDistribution(tuple(ranges), tuple(weights))


def values(size: str, payload_file: str | None, random: Random) -> Iterator[bytes]:
    """The values of the test records.  Raises UsageError."""
    if payload_file is None:
        return random_values(parse_sizes(size), random)
    try:
        data = read_regular(payload_file)
    except OSError as error:
        raise UsageError(f"cannot read {payload_file}: {error.strerror}") from None
    if len(data) > PERF_PAYLOAD_BYTES_MAX:
        raise UsageError(f"{payload_file} has more than {PERF_PAYLOAD_BYTES_MAX} bytes")
    return values_of_lines(data, random)
