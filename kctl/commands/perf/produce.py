"""`kctl perf produce`."""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal

import typer

from kctl.admin.perf.client_choice import choose_client
from kctl.admin.perf.load_client import ProducedRecords
from kctl.client.producer import ProducerSettings
from kctl.client.property_settings import writing_settings
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.perf import options
from kctl.commands.perf.results import ResultRow, Results
from kctl.commands.perf.target import Creation, DryRunItem, prepare
from kctl.commands.shown import shows_one
from kctl.commands.values import parse_size
from kctl.errors import UsageError

app = typer.Typer(add_completion=False)

Acks = Literal["all", "-1", "1", "0"]
ACK_TEXTS: dict[str, str] = {"all": "all", "-1": "all", "1": "1", "0": "0"}
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
DEFAULT_DURATION_MS = 10_000
LINGER_MS_MAX = 900_000
BATCH_BYTES_MAX = 64 << 20


@app.command(
    "produce",
    cls=ChangingCommand,
    epilog=examples(
        "kctl perf produce load-test --create --partitions 6 --records 1000000 --size 1k",
        "kctl perf produce load-test --duration 60s --warmup 5s --rate 20000 --acks all --histogram --yes",
        "kctl perf produce load-test --size 100:90,10k:10 --compression zstd --format jsonl --yes",
    ),
)
@shows_one(ResultRow, DryRunItem)
def produce(
    ctx: typer.Context,
    topic: options.Topic,
    *,
    records: options.Records = None,
    duration: options.Duration = None,
    rate: options.Rate = None,
    size: options.Size = "1k",
    payload_file: options.PayloadFile = None,
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
    batch_size: Annotated[str, typer.Option("--batch-size", metavar="SIZE", help="Size of a batch.")] = "64k",
    warmup: options.Warmup = "0s",
    interval: options.Interval = "1s",
    histogram: options.HistogramOption = False,
    client: options.Client = "auto",
    create: options.Create = False,
    partitions: options.Partitions = None,
    replication_factor: options.ReplicationFactor = None,
    dry_run: options.DryRun = False,
) -> ExitStatus:
    """Write test records, and measure throughput and the time until they are acknowledged.

    Ends after --records or --duration, by default after 10 s, or when interrupted; the results until then are shown.
    The values are random bytes without keys, spread over all partitions.  With --acks all the producer is idempotent.

    plain and jsonl have a row per --interval, then one for the total; the others have the total.  Latencies are
    accurate to 1 %.  Writing to a topic that has records asks for confirmation; without a terminal --yes is required
    (exit status 5).
    """
    run: Invocation = ctx.obj
    load = options.parse_load(records, duration, warmup=warmup, rate=rate, default_ms=DEFAULT_DURATION_MS)
    values = options.values(size, payload_file, Random())
    run.note_unused("perf produce")
    properties = run.producer_properties()
    batch_bytes = parse_size(batch_size)
    if not 0 < batch_bytes <= BATCH_BYTES_MAX:
        raise UsageError(f"--batch-size must be between 1 and {BATCH_BYTES_MAX} bytes, not '{batch_size}'")
    writing = writing_settings(
        properties,
        ProducerSettings(),
        request_timeout_ms=run.client_settings().response_timeout_ms,
        acks=ACK_TEXTS[run.setting(ctx, "acks", "acks")],
        compression_type=run.setting(ctx, "compression", "compression.type"),
        linger_ms=int(run.setting(ctx, "linger", "linger.ms")),
        batch_size=parse_size(run.setting(ctx, "batch_size", "batch.size")),
    )
    if writing.partitioner is not None:
        raise UsageError(
            "partitioner.class, partitioner.ignore.keys: test records go to all partitions in turn; remove them"
        )
    test_records = ProducedRecords(values, writing.settings)
    interval_ns = options.parse_interval_ns(interval)
    chosen = choose_client(client, run.client_settings())
    results = Results(run, chosen.name, load, interval_ns=interval_ns, histogram=histogram)
    creation = Creation(create, partitions, replication_factor)
    if prepare(run, topic, creation, chosen.name, dry_run=dry_run) is None:
        return ExitStatus.DONE
    with results.shown() as load_run:
        chosen.produce(topic, test_records, load_run)
    return results.status()
