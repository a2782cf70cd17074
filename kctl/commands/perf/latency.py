"""`kctl perf latency`."""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal

import typer

from kctl.admin.perf.client_choice import choose_client
from kctl.admin.perf.load_client import ProducedRecords
from kctl.client.fetching import FetchLimits
from kctl.client.producer import ProducerSettings
from kctl.client.property_settings import fetch_limits, writing_settings
from kctl.commands.command import ChangingCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.perf import options
from kctl.commands.perf.results import ResultRow, Results
from kctl.commands.perf.target import Creation, DryRunItem, prepare
from kctl.commands.shown import shows_one
from kctl.errors import UsageError

app = typer.Typer(add_completion=False)

DEFAULT_DURATION_MS = 10_000


@app.command(
    "latency",
    cls=ChangingCommand,
    epilog=examples(
        "kctl perf latency load-test --create --records 10000 --acks all --histogram",
        "kctl perf latency load-test --rate 100 --duration 60s --warmup 5s --yes",
    ),
)
@shows_one(ResultRow, DryRunItem)
def latency(
    ctx: typer.Context,
    topic: options.Topic,
    *,
    records: options.Records = None,
    duration: options.Duration = None,
    rate: options.Rate = None,
    size: options.Size = "100",
    payload_file: options.PayloadFile = None,
    acks: Annotated[
        Literal["all", "1"],
        typer.Option("--acks", help="Which replicas must acknowledge: all in-sync replicas, or the leader (1)."),
    ] = "all",
    warmup: options.Warmup = "0s",
    interval: options.Interval = "1s",
    histogram: options.HistogramOption = False,
    client: options.Client = "auto",
    create: options.Create = False,
    partitions: options.Partitions = None,
    replication_factor: options.ReplicationFactor = None,
    dry_run: options.DryRun = False,
) -> ExitStatus:
    """Write one test record at a time and read it, and measure the time between the two.

    Ends after --records or --duration, by default after 10 s, or when interrupted; the results until then are shown.
    The records go to the partitions in turn.  Records of other producers in the topic are skipped.

    plain and jsonl have a row per --interval, then one for the total; the others have the total.  Latencies are
    accurate to 1 %.  Writing to a topic that has records asks for confirmation; without a terminal --yes is required
    (exit status 5).
    """
    run: Invocation = ctx.obj
    load = options.parse_load(records, duration, warmup=warmup, rate=rate, default_ms=DEFAULT_DURATION_MS)
    writing = writing_settings(
        run.producer_properties(),
        ProducerSettings(),
        request_timeout_ms=run.client_settings().response_timeout_ms,
        acks=run.setting(ctx, "acks", "acks"),
        linger_ms=0,
    )
    if writing.settings.acks == 0:
        raise UsageError("acks=0: the latency is measured to the acknowledgement and the reader; use all or 1")
    test_records = ProducedRecords(options.values(size, payload_file, Random()), writing.settings)
    interval_ns = options.parse_interval_ns(interval)
    run.note_unused("perf latency")
    limits = fetch_limits(run.consumer_properties(), FetchLimits())
    chosen = choose_client(client, run.client_settings(), limits)
    results = Results(run, chosen.name, load, interval_ns=interval_ns, histogram=histogram)
    creation = Creation(create, partitions, replication_factor)
    found = prepare(run, topic, creation, chosen.name, dry_run=dry_run)
    if found is None:
        return ExitStatus.DONE
    with results.shown() as load_run:
        chosen.round_trips({tp: one.end for tp, one in found.items()}, test_records, load_run)
    return results.status()
