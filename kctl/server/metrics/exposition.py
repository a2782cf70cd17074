"""Writes metrics in the formats of Prometheus and OpenMetrics, in slices.

`prometheus_client` selects the format and writes the head of each family.  Its encoder takes about 5 us for a sample,
and a broker with 5,000 partitions has 50,000: their lines, which are the same in both formats, are written here.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kctl.limits import METRICS_SLICE_MS
from kctl.server.metrics.accept import OPENMETRICS, preferences
from kctl.server.metrics.definitions import AnyFamily, HistogramFamily
from kctl.server.metrics.naming import Dialect, SeriesName, series_names

_END_OF_OPENMETRICS = b"# EOF\n"
_ROWS_PER_CHECK = 100
"""Rows between two looks at the clock; 100 take about 0.1 ms."""

Encode = Callable[[Collector], bytes]


class Format:
    """The exposition format that a client requested in its Accept header."""

    def __init__(self, accept: str) -> None:
        self._encode, self.content_type = _encoder(accept)
        self.is_openmetrics = self.content_type.startswith(OPENMETRICS)

    def metrics(self, metrics: Iterable[Metric]) -> bytes:
        """The text of metrics of `prometheus_client`."""
        return self._encode(_Collected(metrics)).removesuffix(_END_OF_OPENMETRICS)

    @property
    def end(self) -> bytes:
        """The last bytes of an exposition."""
        return _END_OF_OPENMETRICS if self.is_openmetrics else b""


def _encoder(accept: str) -> tuple[Encode, str]:
    """The encoder and the content type that the client prefers; the plain text format if it accepts none."""
    for preference in preferences(accept):
        try:
            encode, content_type = choose_encoder(preference)
            encode(_Collected((Metric("trial", "", "gauge"),)))
        except Exception:  # noqa: S112 - the header is untrusted: a version may be no number, an escaping unknown
            continue
        # A version of OpenMetrics that the package does not know gets plain text, which may be less preferred.
        if content_type.startswith(preference.partition(";")[0]):
            return encode, content_type
    return choose_encoder("")


class _Collected(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def exposition(families: Iterable[AnyFamily | Metric | None], form: Format, dialect: Dialect) -> list[bytes]:
    """The text of all families; None among them is a point at which to look at the clock.

    Other work of the event loop is done in between, every METRICS_SLICE_MS.
    """
    pieces: list[bytes] = []
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + METRICS_SLICE_MS / 1000
    for piece in _pieces(families, form, dialect):
        if piece:
            pieces.append(piece)
        if now_s() >= until_s:
            await asyncio.sleep(0)
            until_s = now_s() + METRICS_SLICE_MS / 1000
    pieces.append(form.end)
    return pieces


def _pieces(families: Iterable[AnyFamily | Metric | None], form: Format, dialect: Dialect) -> Iterator[bytes]:
    for family in families:
        if family is None:
            yield b""
            continue
        if isinstance(family, Metric):
            yield form.metrics((family,))
            continue
        doc = f"{family.definition.doc} [{family.definition.unit}]"
        for name in series_names(family.definition, dialect):
            yield form.metrics((Metric(name.name, doc, name.type),))
            yield from _lines(family, name)


def _lines(family: AnyFamily, series: SeriesName) -> Iterator[bytes]:
    lines: list[str] = []
    for count, line in enumerate(_rows(family, series), 1):
        lines.append(line)
        if count % _ROWS_PER_CHECK == 0:
            yield "".join(lines).encode()
            lines.clear()
    yield "".join(lines).encode()


def _rows(family: AnyFamily, series: SeriesName) -> Iterator[str]:
    name = series.name
    if isinstance(family, HistogramFamily):
        for labels, value in family.rows:
            comma = "," if labels else ""
            for quantile, number in value.quantiles:
                yield f'{name}{{{labels}{comma}quantile="{quantile}"}} {number}\n'
            yield _line(name + "_count", labels, value.observations)
    else:
        name += "_total" if series.type == "counter" else ""
        for labels, number in family.rows:
            yield f"{name}{{{labels}}} {number}\n" if labels else f"{name} {number}\n"


def _line(name: str, labels: str, number: float) -> str:
    return f"{name}{{{labels}}} {number}\n" if labels else f"{name} {number}\n"
