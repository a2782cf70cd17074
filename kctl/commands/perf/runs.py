"""`kctl perf`: produce, consume, latency."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from kctl.admin.perf.client_choice import ClientName, choose_client
from kctl.admin.perf.load_client import ProducedRecords, SizeDistribution, SizeRange, random_values, values_of_lines
from kctl.admin.perf.measurement import Load
from kctl.admin.topics.offsets import OffsetRange, offset_ranges, partitions_of
from kctl.admin.topics.topics import BROKER_DEFAULT, NewTopic, create_topics
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.list_offsets import IsolationLevel
from kctl.client.producing.producer import ProducerSettings
from kctl.client.properties.settings import fetch_limits, writing_settings
from kctl.commands.frame.command import ChangingCommand, ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration, Size
from kctl.commands.frame.options.values import parse_size
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.perf.results import ResultRow, Results
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.limits import PERF_PAYLOAD_BYTES_MAX
from kctl.model import TopicPartition
from kctl.output.quantities import INT16_MAX, INT32_MAX, INT64_MAX, counted, parse_integer
from kctl.system.user_files import read_regular

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient


# Options that the verbs of `kctl perf` share, and their values.


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
    typer.Option("--num-records", metavar="N", help="End after this many records.", min=1, max=RECORDS_MAX),
]
RunTime = Annotated[
    Duration | None, typer.Option("--duration", parser=Duration.within("1ms", "7d"), help="End after this time.")
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--throughput", metavar="N", help="Records per second.  Default: as many as possible.", min=1, max=RATE_MAX
    ),
]
ValueSizes = Annotated[
    str,
    typer.Option(
        "--record-size",
        metavar="SIZE|A-B|A-B:WEIGHT,...",
        help="Size of the values in bytes: 1k, 100-2k (all equally likely), or several with weights: 100:9,10k:1.",
    ),
]
PayloadFile = Annotated[
    str | None,
    typer.Option("--payload-file", metavar="FILE", help="Take the values from the lines of this file, at random."),
]
Warmup = Annotated[
    Duration,
    typer.Option(
        "--warmup", parser=Duration.within("0ms", "7d"), help="Do not count records in this time at the start."
    ),
]
Interval = Annotated[
    Duration,
    typer.Option(
        "--interval", parser=Duration.within("100ms", "7d"), help="Time between two rows of intermediate results."
    ),
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
    records: int | None,
    duration: Duration | None,
    *,
    warmup: Duration | None = None,
    rate: int | None = None,
    default_ms: int | None,
) -> Load:
    """Return the load of the options; `default_ms` is the duration without any limit.  Raises UsageError."""
    duration_ms: int | None = duration
    if records is None and duration_ms is None:
        duration_ms = default_ms
    return Load(
        records=records,
        duration_ns=None if duration_ms is None else duration_ms * NS_PER_MS,
        warmup_ns=(warmup or 0) * NS_PER_MS,
        rate=rate,
    )


def parse_sizes(text: str) -> SizeDistribution:
    """Return the sizes, ranges of sizes and their weights.  Raises UsageError."""
    ranges, weights = [], []
    for part in text.split(","):
        match = re.fullmatch(r"([^-:]+)(?:-([^-:]+))?(?::([0-9]+))?", part)
        try:
            if not match:
                raise UsageError(f"'{part}' is not a size; use 1k, 100-2k or 100-2k:9")
            ranges.append(SizeRange(parse_size(match[1]), parse_size(match[2] or match[1])))
            weights.append(parse_integer(match[3] or "1", "a weight", high=_WEIGHT_MAX))
        except UsageError as error:
            raise UsageError(f"--record-size: {error}") from None
    if len(ranges) > _RANGES_MAX:
        raise UsageError(f"--record-size takes at most {_RANGES_MAX} ranges")
    return SizeDistribution(tuple(ranges), tuple(weights))


def record_values(size: str, payload_file: str | None, random: Random) -> Iterator[bytes]:
    """Return the values of the test records.  Raises UsageError."""
    if payload_file is None:
        return random_values(parse_sizes(size), random)
    try:
        data = read_regular(payload_file)
    except OSError as error:
        raise UsageError(f"cannot read {payload_file}: {error.strerror}") from None
    if len(data) > PERF_PAYLOAD_BYTES_MAX:
        raise UsageError(f"{payload_file} has more than {PERF_PAYLOAD_BYTES_MAX} bytes")
    return values_of_lines(data, random)


# The topic of a load test: creates it on request, and requires a confirmation if it has records.


class Creation(NamedTuple):
    """Whether a missing topic is created, and its settings."""

    is_wanted: bool
    partitions: int | None
    replication_factor: int | None


class DryRunItem(NamedTuple):
    """The plan of a load test."""

    topic: str
    status: str
    partitions: int | None
    records_in_topic: int
    client: str


Ranges = dict[TopicPartition, OffsetRange]


def ranges_of(run: Invocation, topic: str) -> Ranges | None:
    """Return the offsets of the topic; None if it does not exist."""

    async def look(client: ClusterClient) -> Ranges | None:
        try:
            partitions = await partitions_of(client, [topic])
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise
        return await offset_ranges(client, partitions)

    return run.on_brokers(look)


def prepare(run: Invocation, topic: str, creation: Creation, client: str, *, dry_run: bool) -> Ranges | None:
    """Return the offsets of a topic that may be written to; None after a dry run, which has shown what would be done.

    Raises ApiError without the topic, and Refused without consent to write to a topic with records.
    """
    if not creation.is_wanted and (creation.partitions or creation.replication_factor):
        raise UsageError("--partitions and --replication-factor require --create")
    ranges = ranges_of(run, topic)
    if ranges is None:
        if not creation.is_wanted:
            text = f"topic '{topic}' does not exist; add --create to create it"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        _create(run, topic, creation, dry_run=dry_run)
        if dry_run:
            run.console.show_one(DryRunItem(topic, "would be created", creation.partitions, 0, client))
            return None
        run.console.note(f"topic '{topic}' was created; 'kctl topics delete {topic}' deletes it")
        run.restart_timeout()
        ranges = ranges_of(run, topic) or {}
    records = sum(range_.end - range_.start for range_ in ranges.values())
    if dry_run:
        run.console.show_one(DryRunItem(topic, "would be written to", len(ranges), records, client))
        return None
    if records:
        run.consent(f"Write test records to topic '{topic}', which has {counted(records, 'record')}?")
    return ranges


def _create(run: Invocation, topic: str, creation: Creation, *, dry_run: bool) -> None:
    new = NewTopic(topic, creation.partitions or BROKER_DEFAULT, creation.replication_factor or BROKER_DEFAULT)
    (created,) = run.on_brokers(lambda client: create_topics(client, [new], validate_only=dry_run))
    if not created.outcome.is_done:
        raise ApiError(created.outcome.error, f"topic '{topic}': {created.outcome.message}")


# `kctl perf produce`.


verbs = typer.Typer(add_completion=False)

Acks = Literal["all", "-1", "1", "0"]
ACK_TEXTS: dict[str, str] = {"all": "all", "-1": "all", "1": "1", "0": "0"}
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
DEFAULT_DURATION_MS = 10_000
LINGER_MS_MAX = 900_000


@verbs.command(
    "produce",
    cls=ChangingCommand,
    epilog=examples(
        "kctl perf produce load-test --create --partitions 6 --num-records 1000000 --record-size 1k",
        "kctl perf produce load-test --duration 60s --warmup 5s --throughput 20000 --acks all --histogram --yes",
        "kctl perf produce load-test --record-size 100:90,10k:10 --compression zstd --format jsonl --yes",
    ),
)
@shows_one(ResultRow, DryRunItem)
def produce(
    ctx: typer.Context,
    topic: Topic,
    *,
    records: Records = None,
    duration: RunTime = None,
    rate: Rate = None,
    size: ValueSizes = "1k",
    payload_file: PayloadFile = None,
    acks: Annotated[
        Acks,
        typer.Option("--acks", help="Which replicas must acknowledge: all in-sync replicas, the leader (1), none (0)."),
    ] = "all",
    compression: Annotated[Compression, typer.Option("--compression", help="Compression codec of batches.")] = "none",
    linger: Annotated[
        int,
        typer.Option(
            "--linger", metavar="MS", help="How long a batch waits for more records.", min=0, max=LINGER_MS_MAX
        ),
    ] = 5,
    batch_size: Annotated[
        Size, typer.Option("--batch-size", parser=Size.within("1", "64m"), help="Size of a batch.")
    ] = Size("64k"),
    warmup: Warmup = Duration("0s"),
    interval: Interval = Duration("1s"),
    histogram: HistogramOption = False,
    client: Client = "auto",
    create: Create = False,
    partitions: Partitions = None,
    replication_factor: ReplicationFactor = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Write test records, and measure throughput and the time until they are acknowledged.

    Ends after --num-records or --duration, by default after 10 s, or when interrupted; the results until then are
    shown.  The values are random bytes without keys, spread over all partitions.  With --acks all the producer is
    idempotent.

    plain and jsonl have a row per --interval, then one for the total; the others have the total.  Latencies are
    accurate to 1 %.  Writing to a topic that has records asks for confirmation; without a terminal --yes is required
    (exit status 5).
    """
    run: Invocation = ctx.obj
    load = parse_load(records, duration, warmup=warmup, rate=rate, default_ms=DEFAULT_DURATION_MS)
    values = record_values(size, payload_file, Random())
    run.note_unused("perf produce")
    properties = run.producer_properties()
    writing = writing_settings(
        properties,
        ProducerSettings(),
        request_timeout_ms=run.client_settings().response_timeout_ms,
        acks=ACK_TEXTS[run.setting(ctx, "acks", "acks")],
        compression_type=run.setting(ctx, "compression", "compression.type"),
        linger_ms=int(run.setting(ctx, "linger", "linger.ms")),
        batch_size=Size(run.setting(ctx, "batch_size", "batch.size")),
    )
    if writing.partitioner is not None:
        raise UsageError(
            "partitioner.class, partitioner.ignore.keys: test records go to all partitions in turn; remove them"
        )
    test_records = ProducedRecords(values, writing.settings)
    interval_ns = interval * NS_PER_MS
    chosen = choose_client(client, run.client_settings())
    results = Results(run, chosen.name, load, interval_ns=interval_ns, histogram=histogram)
    creation = Creation(create, partitions, replication_factor)
    if prepare(run, topic, creation, chosen.name, dry_run=dry_run) is None:
        return ExitStatus.DONE
    with results.shown() as load_run:
        chosen.produce(topic, test_records, load_run)
    return results.status()


# `kctl perf consume`.


@verbs.command(
    "consume",
    cls=ClusterCommand,
    epilog=examples(
        "kctl perf consume orders",
        "kctl perf consume orders --num-records 1000000 --warmup 2s",
        "kctl perf consume orders --from end --duration 60s --format jsonl",
    ),
)
@shows_one(ResultRow)
def consume(
    ctx: typer.Context,
    topic: Topic,
    *,
    from_: Annotated[
        Literal["start", "end"],
        typer.Option("--from", help="Read what the topic has, or only what is written from now on."),
    ] = "start",
    records: Records = None,
    duration: RunTime = None,
    warmup: Warmup = Duration("0s"),
    interval: Interval = Duration("1s"),
    client: Client = "auto",
) -> ExitStatus:
    """Read a topic without a group, and measure the throughput.

    Stops at the offsets that were the end of the topic when it started, after --num-records or after --duration, or
    when interrupted; the results until then are shown.  With --from end it ends after --num-records or --duration, by
    default after 10 s.

    plain and jsonl have a row per --interval, then one for the total; the others have the total.
    """
    run: Invocation = ctx.obj
    default_ms = 10_000 if from_ == "end" else None
    load = parse_load(records, duration, warmup=warmup, default_ms=default_ms)
    interval_ns = interval * NS_PER_MS
    run.note_unused("perf consume")
    properties = run.consumer_properties()
    isolation = IsolationLevel[properties.get("isolation.level", "read_committed").strip().upper()]
    limits = fetch_limits(properties, FetchLimits())
    chosen = choose_client(client, run.client_settings(), limits, isolation)
    results = Results(run, chosen.name, load, interval_ns=interval_ns, histogram=False)
    range_by_partition = ranges_of(run, topic)
    if range_by_partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic}' does not exist")
    if from_ == "end":
        ranges = {tp: (range_.end, INT64_MAX) for tp, range_ in range_by_partition.items()}
    else:
        ranges = {tp: (range_.start, range_.end) for tp, range_ in range_by_partition.items()}
    with results.shown() as load_run:
        chosen.consume(ranges, load_run)
    return results.status()


# `kctl perf latency`.


@verbs.command(
    "latency",
    cls=ChangingCommand,
    epilog=examples(
        "kctl perf latency load-test --create --num-records 10000 --acks all --histogram",
        "kctl perf latency load-test --throughput 100 --duration 60s --warmup 5s --yes",
    ),
)
@shows_one(ResultRow, DryRunItem)
def latency(
    ctx: typer.Context,
    topic: Topic,
    *,
    records: Records = None,
    duration: RunTime = None,
    rate: Rate = None,
    size: ValueSizes = "100",
    payload_file: PayloadFile = None,
    acks: Annotated[
        Literal["all", "1"],
        typer.Option("--acks", help="Which replicas must acknowledge: all in-sync replicas, or the leader (1)."),
    ] = "all",
    warmup: Warmup = Duration("0s"),
    interval: Interval = Duration("1s"),
    histogram: HistogramOption = False,
    client: Client = "auto",
    create: Create = False,
    partitions: Partitions = None,
    replication_factor: ReplicationFactor = None,
    dry_run: DryRun = False,
) -> ExitStatus:
    """Write one test record at a time and read it, and measure the time between the two.

    Ends after --num-records or --duration, by default after 10 s, or when interrupted; the results until then
    are shown.  The records go to the partitions in turn.  Records of other producers in the topic are skipped.

    plain and jsonl have a row per --interval, then one for the total; the others have the total.  Latencies are
    accurate to 1 %.  Writing to a topic that has records asks for confirmation; without a terminal --yes is required
    (exit status 5).
    """
    run: Invocation = ctx.obj
    load = parse_load(records, duration, warmup=warmup, rate=rate, default_ms=DEFAULT_DURATION_MS)
    writing = writing_settings(
        run.producer_properties(),
        ProducerSettings(),
        request_timeout_ms=run.client_settings().response_timeout_ms,
        acks=run.setting(ctx, "acks", "acks"),
        linger_ms=0,
    )
    if writing.settings.acks == 0:
        raise UsageError("acks=0: the latency is measured to the acknowledgement and the reader; use all or 1")
    test_records = ProducedRecords(record_values(size, payload_file, Random()), writing.settings)
    interval_ns = interval * NS_PER_MS
    run.note_unused("perf latency")
    limits = fetch_limits(run.consumer_properties(), FetchLimits())
    chosen = choose_client(client, run.client_settings(), limits)
    results = Results(run, chosen.name, load, interval_ns=interval_ns, histogram=histogram)
    creation = Creation(create, partitions, replication_factor)
    ranges = prepare(run, topic, creation, chosen.name, dry_run=dry_run)
    if ranges is None:
        return ExitStatus.DONE
    with results.shown() as load_run:
        chosen.round_trips({tp: range_.end for tp, range_ in ranges.items()}, test_records, load_run)
    return results.status()
