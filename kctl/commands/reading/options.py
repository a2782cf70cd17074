"""The options that select records, the partitions and the registry that they name, and the progress of a read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import typer

from kctl.admin.records.selection import RecordFilter, parse_bytes, parse_header_match
from kctl.admin.records.where import parse_where
from kctl.admin.topics.offsets import find_offset_ranges, offset_ranges, resolve
from kctl.client.consuming.positions import Position
from kctl.client.producing.partitioners import crc32_partition_of_key, partition_of_key
from kctl.client.registry.client import RegistryClient
from kctl.client.registry.codecs import Encoder, codec_module
from kctl.client.registry.schema import RegistrySettings, registry_settings
from kctl.commands.frame.options.option_types import Offset, Partitions, any_text
from kctl.commands.reading.searches import SEARCHED_BYTES_MAX, TimedSearch
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.output.quantities import INT32_MAX, INT64_MAX, counted, format_duration, parse_integer
from kctl.system.user_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kctl.admin.topics.offsets import OffsetRange, OffsetSpec
    from kctl.client.cluster import ClusterClient
    from kctl.client.consuming.consumer import Consumer
    from kctl.client.consuming.list_offsets import IsolationLevel
    from kctl.client.registry.descriptor_set import DescribedMessages
    from kctl.model import TopicPartition
    from kctl.output.console import Console


# The options that select records, which `kctl consume` and `kctl copy` share.


From = Annotated[
    Offset,
    typer.Option(
        "--from",
        parser=Offset,
        help="Where to start: start, end, N, +N after the start, -N before the end, @TIME.",
    ),
]


class SelectOptions(NamedTuple):
    """The options that select records by what is in them."""

    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="Only records with this key: text, hex:4A4B, base64:SksK; text:hex:4A for a text like those, text: for"
            " the empty key.",
        ),
    ] = None
    partition_of_key: Annotated[
        bool,
        typer.Option(
            "--partition-of-key",
            help="With --key: read only the partitions that the default partitioners select for the key: of Java and"
            " kctl (murmur2) and that of librdkafka (CRC-32).",
        ),
    ] = False
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="RE", help="Only records whose value contains this regular expression."),
    ] = None
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="EXPR",
            help="Only records for which the condition is true, such as 'value.status == \"failed\" and offset > 100'.",
        ),
    ] = None
    record_header: Annotated[
        list[str] | None,
        typer.Option(
            "--record-header",
            metavar="NAME[=VALUE]",
            help="Only records with this header; the value has the forms of --key.",
        ),
    ] = None


Limit = Annotated[
    int | None,
    typer.Option("-n", "--max-messages", metavar="N", help="Stop after N records.", max=INT64_MAX, min=0),
]
Partition = Annotated[
    Partitions | None, typer.Option("--partition", parser=Partitions, help="Only these partitions.  Default: all.")
]
RecordFormat = Annotated[
    str | None,
    typer.Option("-f", "--record-format", metavar="FORMAT", help=r"The format of each record, such as '%k %v\n'."),
]
NullMarker = Annotated[
    str | None,
    typer.Option(
        "--null-marker", metavar="TEXT", help="Text that stands for a null key or value (a tombstone).", parser=any_text
    ),
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option("--schema-registry", metavar="URL", help="Schema registry.  Default: schema.registry.url."),
]


class DescriptorOptions(NamedTuple):
    """The options that name a message type of Protobuf without a registry."""

    value_descriptor: Annotated[
        str | None,
        typer.Option(
            "--value-descriptor",
            metavar="FILE",
            help="Values are Protobuf without a registry: a file of protoc --descriptor_set_out.",
        ),
    ] = None
    value_message: Annotated[
        str | None,
        typer.Option("--value-message", metavar="NAME", help="Message type of values, such as shop.Order."),
    ] = None
    key_descriptor: Annotated[
        str | None, typer.Option("--key-descriptor", metavar="FILE", help="The same for keys.")
    ] = None
    key_message: Annotated[str | None, typer.Option("--key-message", metavar="NAME", help="Message type of keys.")] = (
        None
    )

    def messages(self) -> dict[str, DescribedMessages]:
        """Return what decodes and encodes "key" and "value".  Raises UsageError and SchemaError."""
        given = {
            "key": (self.key_descriptor, self.key_message),
            "value": (self.value_descriptor, self.value_message),
        }
        found: dict[str, DescribedMessages] = {}
        for field, (path, name) in given.items():
            if (path is None) != (name is None):
                raise UsageError(f"--{field}-descriptor and --{field}-message are given together")
            if path is None or name is None:
                continue
            try:
                found[field] = codec_module("descriptor_set").DescribedMessages(read_regular(path), name, path)
            except OSError as error:
                raise UsageError(f"cannot read {path}: {error.strerror}") from None
        return found


Mask = Annotated[
    list[str] | None, typer.Option("--mask", metavar="PATH", help="Hide what is at this path, such as value.password.")
]
MaskRegex = Annotated[
    list[str] | None,
    typer.Option("--mask-regex", metavar="RE", help="Hide what matches in keys, values and values of headers."),
]


class Selecting:
    """The records that a command line selects."""

    def __init__(self, records: RecordFilter, key_for_partition: bytes | None, search: TimedSearch | None) -> None:
        self.records = records
        self.key_for_partition = key_for_partition
        """The key whose partition alone is read; None for all."""
        self._search = search

    def warn_of_shortened(self, console: Console) -> None:
        """Warn if --grep has not searched some values to their end."""
        if self._search is not None and self._search.shortened:
            console.warn(
                f"--grep searched only the first {SEARCHED_BYTES_MAX:,} bytes of"
                f" {counted(self._search.shortened, 'value')}"
            )


def selecting(options: SelectOptions) -> Selecting:
    """Return the selection that the options describe.  Raises UsageError."""
    if options.partition_of_key and options.key is None:
        raise UsageError("--partition-of-key requires --key")
    key = None if options.key is None else parse_bytes(options.key, "--key")
    search = None if options.grep is None else TimedSearch(options.grep)
    records = RecordFilter(
        key=key,
        headers=tuple(parse_header_match(header, "--record-header") for header in options.record_header or []),
        search=search,
        where=None if options.where is None else parse_where(options.where),
    )
    return Selecting(records, key if options.partition_of_key else None, search)


# Which partitions of a topic are read, and their ranges of offsets, for `kctl consume` and `kctl copy`.


NAMED_MAX = 10
CONTINUE_REMEDY = "'--on-truncation continue' reads on where the logs part"


def select_partitions(
    tps: list[TopicPartition], requested: list[int] | None, key: bytes | None = None
) -> list[TopicPartition]:
    """Return the requested partitions of a topic, and of these those that partitioners select for the key.

    Raises ApiError for a partition that does not exist.
    """
    if requested is not None:
        missing = sorted(set(requested) - {tp.partition for tp in tps})
        if missing:
            message = f"{tps[0].topic} has no partition {', '.join(map(str, missing))}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    of_key = None if key is None else {partition_of_key(key, len(tps)), crc32_partition_of_key(key, len(tps))}
    return [
        tp
        for tp in tps
        if (requested is None or tp.partition in requested) and (of_key is None or tp.partition in of_key)
    ]


async def reachable(
    console: Console, client: ClusterClient, tps: list[TopicPartition], isolation: IsolationLevel
) -> dict[TopicPartition, OffsetRange]:
    """Return the offset ranges of the partitions; those with an error are omitted with a warning.

    Raises ApiError if all have an error.
    """
    held: dict[TopicPartition, OffsetRange] = {}
    failed: dict[TopicPartition, ApiError] = {}
    for tp, found in (await find_offset_ranges(client, tps, isolation=isolation)).items():
        if isinstance(found, ApiError):
            failed[tp] = found
        else:
            held[tp] = found
    for tp, error in failed.items():
        if not held:
            raise ApiError(error.code, f"{tp}: {error}")
        console.warn(f"{tp} is not read: {error.code.name}: {error}")
    return held


async def starts(
    client: ClusterClient, tps: Collection[TopicPartition], lower: OffsetSpec, isolation: IsolationLevel
) -> dict[TopicPartition, Position]:
    """Return where reading from `lower` starts, moved into the range of each partition.  Raises ApiError."""
    held = await offset_ranges(client, tps, isolation=isolation)
    requested = await resolve(client, held, lower)
    return {tp: Position(inside(range_, requested[tp])) for tp, range_ in held.items()}


def named_partitions(tps: Sequence[TopicPartition]) -> str:
    """Return the first partitions, and the number of the others."""
    more = f" and {len(tps) - NAMED_MAX} more" if len(tps) > NAMED_MAX else ""
    return ", ".join(map(str, tps[:NAMED_MAX])) + more


def inside(range_: OffsetRange, offset: int) -> int:
    """Return the offset moved into the range."""
    return min(max(offset, range_.start), range_.end)


def drop_finished(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> None:
    """Stop fetching partitions that have reached their ends."""
    for tp, end in ends.items():
        if tp in consumer.positions and consumer.positions[tp] >= end:
            consumer.drop(tp)


# The schema registry that options and properties name.


_SUBJECT_VERSION = re.compile(r"(.+?)(?::([0-9]+|latest))?", re.DOTALL)


def registry_client(properties: Mapping[str, str], url: str | None) -> RegistryClient:
    """Return the registry of the option or the properties.  Raises UsageError and ConfigError."""
    return RegistryClient(registry_of(properties, url))


def registry_of(properties: Mapping[str, str], url: str | None) -> RegistrySettings:
    """Return the settings of the registry of the option or the properties.  Raises UsageError and ConfigError."""
    settings = registry_settings(properties, url)
    if settings is None:
        raise UsageError("no schema registry: use --schema-registry URL, or schema.registry.url in --command-config")
    return settings


def encoder_of(client: RegistryClient, text: str, default_subject: str, option: str) -> Encoder:
    """Return the encoder of `latest`, `id:17`, `SUBJECT` or `SUBJECT:3`, each with `#MESSAGE` for a message type of
    Protobuf.

    Raises UsageError, SchemaError and RegistryUnreachable.
    """
    name, marker, type_name = text.partition("#")
    if marker and not type_name:
        raise UsageError(f"{option}: the name of the message type is missing after #")
    if name.startswith("id:"):
        schema = client.by_id(parse_integer(name[3:], f"the id of {option}", high=INT32_MAX))
    elif name in {"", "latest"}:
        schema = client.of_subject(default_subject, "latest")
    else:
        found = _SUBJECT_VERSION.fullmatch(name)
        assert found is not None
        schema = client.of_subject(found[1], found[2] or "latest")
    return Encoder(schema, type_name or None)


# The progress of a read over known ranges of offsets: rate and time left, on stderr.


class ScanProgress:
    """A line with the offsets that have been read.  Use as a context manager."""

    def __init__(
        self,
        console: Console,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._bounds = bounds
        self._total = sum(end - start for start, end in bounds.values())
        self._clock = clock
        self._begun_s = clock()
        self._line = console.progress("read", self._total, unit="offsets")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.hide()

    def hide(self) -> None:
        """Erase the line before other output."""
        self._line.hide()

    def update(self, positions: Mapping[TopicPartition, int], *, found: int) -> None:
        """Show the progress: the positions of the partitions that are still read, and the number of selected
        records.
        """
        unread = sum(max(0, end - positions[tp]) for tp, (_, end) in self._bounds.items() if tp in positions)
        done = self._total - unread
        self._line.update(done, note=f"{found:,} selected{rate_note(done, self._total, self._clock() - self._begun_s)}")


def rate_note(done: int, total: int, elapsed_s: float) -> str:
    """`, 1,200/s, 5m left`; empty before there is a rate."""
    if done <= 0 or elapsed_s <= 0:
        return ""
    rate = done / elapsed_s
    left = f", {format_duration(round((total - done) / rate * 1000))} left" if total > done else ""
    return f", {rate:,.0f}/s{left}"
