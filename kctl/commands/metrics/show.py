"""`kctl metrics show`."""

from __future__ import annotations

import math
import re
from time import monotonic
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.addresses import parse_addresses
from kctl.admin.metrics import endpoint_of, read_metrics
from kctl.commands.command import examples
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.query import QueryCommand
from kctl.commands.shown import shows
from kctl.console import Column
from kctl.errors import KctlError, UsageError
from kctl.integers import INT32_MAX

if TYPE_CHECKING:
    from kctl.admin.metrics import Sample

app = typer.Typer(add_completion=False)

DEFAULT_PORT = 9404
COLUMNS = (Column("metric"), Column("labels"), Column("value", numeric=True))


class MetricItem(NamedTuple):
    """A value as a JSON object."""

    metric: str
    labels: dict[str, str]
    value: float | None
    """Null for NaN and infinite values."""


class MetricRow(NamedTuple):
    """A value in the table."""

    metric: str
    labels: str
    value: str


@app.command(
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
    samples = [each for each in read_metrics(*found, lambda: end_s - monotonic()) if pattern.search(_text(each))]
    items = [MetricItem(s.metric, s.labels, s.value if math.isfinite(s.value) else None) for s in samples]
    rows = [MetricRow(s.metric, _labels(s), f"{s.value:.15g}") for s in samples]
    run.console.show(COLUMNS, items, rows=rows)
    return ExitStatus.DONE


def _pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(text or "")
    except re.error as error:
        raise UsageError(f"--match: '{text}' is not a regular expression: {error}") from None


def _address(text: str) -> tuple[str, int]:
    addresses = parse_addresses(text, default_port=DEFAULT_PORT)
    if len(addresses) != 1:
        raise UsageError(f"'{text}' is more than one address; give one")
    return addresses[0]


def _labels(sample: Sample) -> str:
    return ",".join(f'{name}="{value}"' for name, value in sample.labels.items())


def _text(sample: Sample) -> str:
    return f"{sample.metric}{{{_labels(sample)}}}"
