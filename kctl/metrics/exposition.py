"""Writes metrics in the formats of Prometheus and OpenMetrics, in slices.

`prometheus_client` selects the format and writes the head of each family.  Its encoder takes about 5 us for a sample,
and a broker with 5,000 partitions has 50,000: their lines, which are the same in both formats, are written here.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kctl.limits import Subject, bound
from kctl.metrics.definitions import AnyFamily, Dialect, HistogramFamily, SeriesName, series_names

METRICS_SLICE_MS = bound(
    Subject.METRICS_ENDPOINT,
    "time to make metrics without a pause",
    1,
    "ms",
    on_excess="other connections are served in between",
)


# Orders the formats that an Accept header names by the client's preference. RFC 9110, 12.5.1. Pure.


OPENMETRICS = "application/openmetrics-text"
TEXT = "text/plain"
_OWN = (TEXT, OPENMETRICS)
"""In the order in which they are offered to a client that accepts any type."""
_QUALITY = "q"


class _Range(NamedTuple):
    media_type: str
    parameters: tuple[str, ...]
    """All but the quality, as in the header."""
    quality: float


def preferences(accept: str) -> list[str]:
    """Return the media types with their parameters, such as a version, most preferred first; those refused are left
    out.

    Types of the same quality stay in the order of the header.  A wildcard stands for the types that it covers and the
    header does not name.
    """
    ranges = list(_ranges(accept))
    named = {media_range.media_type for media_range in ranges}
    media_types: list[str] = []
    for media_range in sorted(ranges, key=lambda accepted: -accepted.quality):
        if media_range.quality <= 0:
            continue
        if media_range.media_type.endswith("/*"):
            media_types += [own for own in _OWN if own not in named and _covers(media_range.media_type, own)]
        elif media_range.media_type in _OWN:
            media_types.append(";".join((media_range.media_type, *media_range.parameters)))
    return media_types


def _ranges(accept: str) -> Iterator[_Range]:
    for item in accept.split(","):
        media_type, *parameters = [part.strip() for part in item.split(";")]
        if not media_type:
            continue
        quality, others = 1.0, []
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == _QUALITY:
                quality = _quality(value)
            elif parameter:
                others.append(parameter)
        yield _Range(media_type.lower(), tuple(others), quality)


def _quality(text: str) -> float:
    """Return the number; 1, which is the default, for what is none."""
    try:
        value = float(text)
    except ValueError:
        return 1.0
    return 1.0 if math.isnan(value) else min(max(value, 0.0), 1.0)


def _covers(wildcard: str, media_type: str) -> bool:
    return wildcard == "*/*" or media_type.startswith(wildcard.removesuffix("*"))


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
        """Return the text of metrics of `prometheus_client`."""
        return self._encode(_Collected(metrics)).removesuffix(_END_OF_OPENMETRICS)

    @property
    def end(self) -> bytes:
        """The last bytes of an exposition."""
        return _END_OF_OPENMETRICS if self.is_openmetrics else b""


def _encoder(accept: str) -> tuple[Encode, str]:
    """Return the encoder and the content type that the client prefers; the plain text format if it accepts none."""
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
    """Return the text of all families; None among them is a point at which to look at the clock.

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


# Merges the metrics of several brokers into one exposition, each sample with the label `broker`. Pure.
#
# Prometheus requires that all samples of a family are together, after one description of it.


_COMMENTS = ("# HELP ", "# TYPE ", "# UNIT ")

Families = dict[str, tuple[list[str], list[str]]]
"""For the name of each family its description and its samples, as lines."""


def labelled(text: str, broker_id: int) -> Families:
    """Return the families of one broker's exposition, in either text format, with the label added to each sample.

    Samples without a description before them are left out: the endpoints of kctl write none.
    """
    label = f'broker="{broker_id}"'
    families: Families = {}
    samples: list[str] | None = None
    for line in text.split("\n"):
        if line.startswith(_COMMENTS):
            name = line.split(" ", 3)[2]
            description, samples = families.setdefault(name, ([], []))
            description.append(line)
        elif line and not line.startswith("#") and samples is not None:
            samples.append(_with_label(line, label))
    return families


def merged(brokers: Iterable[Mapping[str, tuple[list[str], list[str]]]]) -> Iterator[bytes]:
    """Yield the text of all families, a piece for each; the description is that of the first broker that has it."""
    families_by_broker = list(brokers)
    for name in dict.fromkeys(name for families in families_by_broker for name in families):
        parts = [families[name] for families in families_by_broker if name in families]
        lines = [*parts[0][0], *(line for _, samples in parts for line in samples), ""]
        yield "\n".join(lines).encode()


def _with_label(line: str, label: str) -> str:
    """Return a sample is `name value` or `name{labels} value`."""
    name, brace, rest = line.partition("{")
    if brace and " " not in name:
        comma = "" if rest.startswith("}") else ","
        return f"{name}{{{label}{comma}{rest}"
    name, _, rest = line.partition(" ")
    return f"{name}{{{label}}} {rest}"
