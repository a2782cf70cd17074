"""`kctl metrics`: show what a broker measures, and serve the lag of groups to Prometheus."""

from __future__ import annotations

import asyncio
import math
import re
import sys
import time
from time import monotonic
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.cluster.metrics import endpoint_of, read_metrics
from kctl.admin.groups.lag import LagOptions, LagReader
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.lazy_group import verb_group
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.output.shown import shows
from kctl.commands.frame.query import QueryCommand
from kctl.config.addresses import parse_addresses
from kctl.errors import KctlError, UsageError
from kctl.output.console import Column
from kctl.output.log_lines import LogFormat, set_up_logging
from kctl.output.quantities import INT32_MAX
from kctl.server.metrics.exporter import LagExporter

if TYPE_CHECKING:
    from kctl.admin.cluster.metrics import Sample
    from kctl.client.cluster import ClusterClient


app = typer.Typer(
    cls=verb_group(__name__, ["show", "serve"]),
    help="Show the metrics of a broker, or serve those of a cluster.",
    subcommand_metavar="VERB [ARGUMENTS] [OPTIONS]",
    add_completion=False,
)


# `kctl metrics show`.


verbs = typer.Typer(add_completion=False)

BROKER_METRICS_PORT = 9404


class MetricItem(NamedTuple):
    """A value as a JSON object."""

    metric: str
    labels: dict[str, str]
    value: Annotated[float | None, "Null for NaN and infinite values."]


class MetricRow(NamedTuple):
    """A value in the table."""

    metric: str
    labels: str
    value: Annotated[str, Column(numeric=True)]


@verbs.command(
    "show",
    cls=QueryCommand,
    epilog=examples(
        "kctl metrics show --match 'messagesin_total'",
        "kctl metrics show --endpoint 127.0.0.1:9404 --match 'topic=\"orders\"' --format jsonl",
    ),
)
@shows(MetricItem)
def show(
    ctx: typer.Context,
    *,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="RE", help="Only metrics that contain a match of this regular expression."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="HOST:PORT", help="HTTP endpoint.  Default: from the broker's properties."),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker",
            metavar="N",
            help="Show this broker.  Default: the one with the lowest id.",
            min=0,
            max=INT32_MAX,
        ),
    ] = None,
) -> ExitStatus:
    """Show the metrics of a broker.

    The metrics are read from the broker's HTTP endpoint, which `kctl broker start --metrics-port N` opens.  A regular
    expression is searched in `name{label="value",...}`.
    """
    run: Invocation = ctx.obj
    pattern = _pattern(match)
    end_s = monotonic() + run.client_settings().timeout_ms / 1000
    if endpoint is not None:
        if broker is not None:
            raise UsageError("--endpoint and --broker cannot be combined")
        found: tuple[str, int] | None = _address(endpoint)
    else:
        found = run.on_cluster(lambda client: endpoint_of(client, broker))
    if found is None:
        raise KctlError(
            "the broker has no endpoint for metrics: start it with --metrics-port N (property metrics.port), or give "
            "the endpoint of another exporter with --endpoint HOST:PORT"
        )
    if not found[1]:
        raise KctlError(
            "the broker has chosen a free port for metrics (metrics.port=0), which its log and 'kctl broker status' "
            "show: give it with --endpoint HOST:PORT"
        )
    samples = [metric for metric in read_metrics(*found, lambda: end_s - monotonic()) if pattern.search(_text(metric))]
    items = [MetricItem(s.metric, s.labels, s.value if math.isfinite(s.value) else None) for s in samples]
    rows = [MetricRow(s.metric, _labels(s), f"{s.value:.15g}") for s in samples]
    run.console.show(MetricRow, items, rows=rows)
    return ExitStatus.DONE


def _pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(text or "")
    except re.error as error:
        raise UsageError(f"--match: '{text}' is not a regular expression: {error}") from None


def _address(text: str) -> tuple[str, int]:
    addresses = parse_addresses(text, default_port=BROKER_METRICS_PORT)
    if len(addresses) != 1:
        raise UsageError(f"'{text}' is more than one address; give one")
    return addresses[0]


def _labels(sample: Sample) -> str:
    return ",".join(f'{name}="{value}"' for name, value in sample.labels.items())


def _text(sample: Sample) -> str:
    return f"{sample.metric}{{{_labels(sample)}}}"


# `kctl metrics serve`.


DEFAULT_PORT = 9308
"""The port of kafka_exporter."""


@verbs.command(
    "serve",
    cls=ClusterCommand,
    epilog=examples(
        "kctl metrics serve --bootstrap-server kafka:9092",
        "kctl metrics serve --port 9308 --listen 0.0.0.0 --cache 30s",
    ),
)
def serve(
    ctx: typer.Context,
    *,
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port of the HTTP endpoint; 0 for a free one.", min=0, max=65535)
    ] = DEFAULT_PORT,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST", help="Address to listen on; 0.0.0.0 is every IPv4 interface."),
    ] = "127.0.0.1",
    cache: Annotated[
        Duration,
        typer.Option(
            "--cache", parser=Duration.within("0s", "1h"), help="Scrapes within this time share one collection."
        ),
    ] = Duration("5s"),
    window: Annotated[
        Duration,
        typer.Option("--window", parser=Duration.within("1s"), help="Period for verdicts, as in 'kctl groups lag'."),
    ] = Duration("5m"),
) -> ExitStatus:
    """Serve the lag of consumer groups and the state of partitions to Prometheus, under the names of kafka_exporter.

    The cluster is read when Prometheus scrapes, within --timeout; if it cannot be read, the scrape gets status 503 and
    the reason.  The endpoint has no authentication and shows the names of topics and groups.  It ends with SIGINT or
    SIGTERM.
    """
    run: Invocation = ctx.obj
    set_up_logging(None if run.console.quiet else sys.stderr, LogFormat.TEXT)
    return run.on_cluster_concurrently(lambda client: _serve(run, client, listen, port, cache, window))


async def _serve(
    run: Invocation, client: ClusterClient, host: str, port: int, cache_ms: int, window_ms: int
) -> ExitStatus:
    exporter = LagExporter(
        client,
        LagReader(LagOptions(window_ms=window_ms)),
        cache_ms=cache_ms,
        now_ms=lambda: round(time.time() * 1000),
        warn=run.console.warn,
    )
    try:
        bound = exporter.endpoint.bind(host, port)
        await exporter.endpoint.start()
        shown = f"[{host}]" if ":" in host else host
        run.console.note(f"serving http://{shown}:{bound}/metrics")
        run.console.flush()
        await asyncio.Event().wait()
    finally:
        await exporter.close()
    return ExitStatus.DONE
