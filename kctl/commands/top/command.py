"""`kctl top`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.admin.sampling.activity import activity
from kctl.admin.sampling.sample import ClusterSample, GroupVerdicts
from kctl.admin.sampling.sampler import Sampler
from kctl.commands.frame.command import ClusterCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.invocation import Invocation
from kctl.commands.frame.options.option_types import Duration
from kctl.commands.frame.output.shown import shows_one
from kctl.commands.top.screen import render
from kctl.commands.top.state import Event, KeyPressed, Sampled, SampleFailed, State, keys_of, step
from kctl.config.addresses import parse_addresses
from kctl.errors import KctlError, UsageError
from kctl.output.console import Console, Format
from kctl.output.live_screen import LiveScreen

if TYPE_CHECKING:
    from kctl.admin.sampling.activity import Activity
    from kctl.client.cluster import ClusterClient


app = typer.Typer(add_completion=False)

DEFAULT_METRICS_PORT = 9404


@app.command(
    "top",
    cls=ClusterCommand,
    epilog=examples(
        "kctl top",
        "kctl top --interval 5s --metrics 1=10.0.0.1:9404 --metrics 2=10.0.0.2:9404",
        "kctl top --once --format json",
    ),
)
@shows_one("kctl.admin.sampling.activity:Activity")
def top(
    ctx: typer.Context,
    *,
    interval: Annotated[
        Duration,
        typer.Option(
            "--interval",
            parser=Duration.within("200ms", "1h"),
            help="Time between two samples, for example 500ms or 5s.",
        ),
    ] = Duration("2s"),
    once: Annotated[
        bool, typer.Option("--once", help="Take two samples, print the activity between them, and end.")
    ] = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="ID=HOST:PORT",
            help="The HTTP endpoint with the metrics of a broker.  Default: from its properties.",
        ),
    ] = None,
    no_metrics: Annotated[
        bool, typer.Option("--no-metrics", help="Do not read the HTTP endpoints of brokers.")
    ] = False,
) -> ExitStatus:
    """Show the activity of a cluster on one screen.

    Brokers with rates, request times and disk space, topics by rate and size, consumer groups by lag, and partitions
    that are not in sync or are being moved.  Bytes per second, requests, times and the lag of the event loop come from
    the metrics of the brokers, everything else from Kafka's protocol; what is not available is `-`.

    Keys: o, b, t, g, p select a view; Enter opens the selected row, Esc returns; / filters; s sorts; ? lists the
    other keys; q quits.  --timeout applies to each sample.
    """
    run: Invocation = ctx.obj
    if metrics and no_metrics:
        raise UsageError("--metrics and --no-metrics contradict each other: give one of them")
    if run.console.format is Format.CSV:
        raise UsageError("kctl top shows more than one list, which csv has no columns for; use json or yaml")
    endpoints = dict(_endpoint(text) for text in metrics or ())
    if once:
        _show(run, run.on_cluster_concurrently(lambda client: _two(client, endpoints, interval, no_metrics)))
        return ExitStatus.DONE
    if run.console.is_machine_readable or not run.console.stdout.isatty():
        raise UsageError("kctl top draws on a terminal: give --once to print one result")

    async def live(client: ClusterClient) -> None:
        await run_live(Sampler(client, endpoints, reads_metrics=not no_metrics), run.console, interval)

    run.on_cluster_concurrently(live)
    return ExitStatus.DONE


async def _two(
    client: ClusterClient, endpoints: dict[int, tuple[str, int]], interval_ms: int, no_metrics: bool
) -> Activity:
    sampler = Sampler(client, endpoints, reads_metrics=not no_metrics)
    verdicts = GroupVerdicts()
    first = await sampler.take()
    verdicts.observe(first)
    await client.transport.sleep(interval_ms)
    second = await sampler.take()
    verdicts.observe(second)
    return activity(first, second, verdicts.of)


def _show(run: Invocation, seen: Activity) -> None:
    if run.console.is_machine_readable:
        run.console.show_one(seen)
        return
    from kctl.commands.top.screen import overview, text_of  # noqa: PLC0415 - json has no lines

    for line in overview(seen, run.console.width):
        run.console.text(text_of(line))


def _endpoint(text: str) -> tuple[int, tuple[str, int]]:
    """Return the broker id and address of a value of --metrics."""
    broker_id, separator, address = text.partition("=")
    if not separator or not broker_id.isdecimal() or not broker_id.isascii():
        raise UsageError(f"--metrics: '{text}' is not ID=HOST:PORT, for example 1=127.0.0.1:9404")
    addresses = parse_addresses(address, default_port=DEFAULT_METRICS_PORT)
    if len(addresses) != 1:
        raise UsageError(f"--metrics: '{text}' has more than one address; repeat the option")
    return int(broker_id), addresses[0]


# Runs the live screen: reads keys, takes samples, draws. `state.step` decides.
#
# Owner: event loop.


async def run_live(sampler: Sampler, console: Console, interval_ms: int) -> None:
    """Show the cluster until the user quits.  A cluster that cannot be reached is shown as such, and tried again."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    state = State(interval_ms)
    is_done = asyncio.Event()

    def on_event(event: Event) -> None:
        nonlocal state
        state = step(state, event, round((loop.time() - started_s) * 1000))
        draw()
        if state.is_done:
            is_done.set()

    def draw() -> None:
        screen.draw(render(state, *screen.size))

    def on_input(received: bytes) -> None:
        for key in keys_of(received):
            on_event(KeyPressed(key))

    async def sample() -> None:
        old: ClusterSample | None = None
        verdicts = GroupVerdicts()
        while True:
            began_s = loop.time()
            try:
                new = await sampler.take()
                verdicts.observe(new)
                on_event(Sampled(activity(old, new, verdicts.of)))
                old = new
            except (KctlError, TimeoutError, OSError) as error:
                on_event(SampleFailed(str(error) or type(error).__name__))
            await asyncio.sleep(max(began_s + interval_ms / 1000 - loop.time(), interval_ms / 5000))

    screen = LiveScreen(console.stdin, console.stdout, color=console.color, on_input=on_input, on_resize=draw)
    with screen:
        draw()
        sampling = loop.create_task(sample(), name="sample")
        ends = loop.create_task(is_done.wait(), name="keys")
        try:
            await asyncio.wait({sampling, ends}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sampling, ends):
                task.cancel()
        if not is_done.is_set():
            await sampling
    with contextlib.suppress(asyncio.CancelledError):
        await sampling
