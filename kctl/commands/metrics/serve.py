"""`kctl metrics serve`."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.lag import LagOptions, LagReader
from kctl.commands.command import ClusterCommand, examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.times import parse_duration_ms
from kctl.errors import UsageError
from kctl.log_output.formats import LogFormat
from kctl.log_output.handler import set_up_logging
from kctl.server.metrics.exporter import LagExporter

if TYPE_CHECKING:
    from kctl.client.cluster import ClusterClient

app = typer.Typer(add_completion=False)

DEFAULT_PORT = 9308
"""The port of kafka_exporter."""
CACHE_MS_MAX = 3_600_000


@app.command(
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
        str, typer.Option("--cache", metavar="DURATION", help="Scrapes within this time share one collection.")
    ] = "5s",
    window: Annotated[
        str, typer.Option("--window", metavar="DURATION", help="Period for verdicts, as in 'kctl groups lag'.")
    ] = "5m",
) -> ExitStatus:
    """Serve the lag of consumer groups and the state of partitions to Prometheus, under the names of kafka_exporter.

    The cluster is read when Prometheus scrapes, within --timeout; if it cannot be read, the scrape gets status 503 and
    the reason.  The endpoint has no authentication and shows the names of topics and groups.  It ends with SIGINT or
    SIGTERM.
    """
    run: Invocation = ctx.obj
    cache_ms, window_ms = parse_duration_ms(cache), parse_duration_ms(window)
    if cache_ms > CACHE_MS_MAX or window_ms < 1000:
        raise UsageError("--cache is at most 1h, and --window at least 1s")
    set_up_logging(None if run.console.quiet else sys.stderr, LogFormat.TEXT)
    return run.on_cluster_concurrently(lambda client: _serve(run, client, listen, port, cache_ms, window_ms))


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
