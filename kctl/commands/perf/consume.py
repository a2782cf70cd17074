"""`kctl perf consume`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kctl.admin.perf.client_choice import choose_client
from kctl.client.fetching import FetchLimits
from kctl.client.list_offsets import IsolationLevel
from kctl.client.property_settings import fetch_limits
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.perf import options
from kctl.commands.perf.results import ResultRow, Results
from kctl.commands.perf.target import ranges_of
from kctl.commands.shown import shows_one
from kctl.errors import ApiError, ErrorCode
from kctl.integers import INT64_MAX

app = typer.Typer(add_completion=False)


@app.command(
    "consume",
    cls=ClusterCommand,
    epilog=examples(
        "kctl perf consume orders",
        "kctl perf consume orders --records 1000000 --warmup 2s",
        "kctl perf consume orders --from end --duration 60s --format jsonl",
    ),
)
@shows_one(ResultRow)
def consume(
    ctx: typer.Context,
    topic: options.Topic,
    *,
    from_: Annotated[
        Literal["start", "end"],
        typer.Option("--from", help="Read what the topic has, or only what is written from now on."),
    ] = "start",
    records: options.Records = None,
    duration: options.Duration = None,
    warmup: options.Warmup = "0s",
    interval: options.Interval = "1s",
    client: options.Client = "auto",
) -> ExitStatus:
    """Read a topic without a group, and measure the throughput.

    Stops at the offsets that were the end of the topic when it started, after --records or after --duration, or when
    interrupted; the results until then are shown.  With --from end it ends after --records or --duration, by default
    after 10 s.

    plain and jsonl have a row per --interval, then one for the total; the others have the total.
    """
    run: Invocation = ctx.obj
    default_ms = 10_000 if from_ == "end" else None
    load = options.parse_load(records, duration, warmup=warmup, default_ms=default_ms)
    interval_ns = options.parse_interval_ns(interval)
    run.note_unused("perf consume")
    properties = run.consumer_properties()
    isolation = IsolationLevel[properties.get("isolation.level", "read_committed").strip().upper()]
    limits = fetch_limits(properties, FetchLimits())
    chosen = choose_client(client, run.client_settings(), limits, isolation)
    results = Results(run, chosen.name, load, interval_ns=interval_ns, histogram=False)
    found = ranges_of(run, topic)
    if found is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic}' does not exist")
    if from_ == "end":
        ranges = {tp: (one.end, INT64_MAX) for tp, one in found.items()}
    else:
        ranges = {tp: (one.start, one.end) for tp, one in found.items()}
    with results.shown() as load_run:
        chosen.consume(ranges, load_run)
    return results.status()
