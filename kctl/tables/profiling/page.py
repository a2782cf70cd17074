"""A profile as one HTML page without scripts, fonts or pictures from elsewhere.  Pure.

A content security policy forbids the page to run or load anything, in case a text were not escaped after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_html
from typing import NamedTuple

from kctl.output.quantities import compact, counted, format_duration, format_size
from kctl.output.terminal_text import escape as escape_controls
from kctl.tables.profiling.fields import SLICES, FieldProfile
from kctl.tables.profiling.rows import Spread, TopicProfile, time_text
from kctl.tables.profiling.time_counts import bars as time_bars

# Charts as SVG elements of an HTML page. Pure.
#
# Colours come from the classes of the page's style sheet, so that they follow its light and dark theme. All texts are
# escaped here, so callers pass them as they are.


CHART_WIDTH = 720
ROW_HEIGHT = 20
LABEL_WIDTH = 210
COLUMNS_HEIGHT = 160
COLUMN_WIDTH_MAX = 40
COLUMN_LABEL_WIDTH = 80
LABEL_CHARACTERS_MAX = 32


class Bar(NamedTuple):
    """A bar, its label, and what is shown when the pointer is over it."""

    label: str
    value: float
    note: str


def text(value: object) -> str:
    """Any text for HTML, in elements and attributes: markup, control and direction characters have no effect."""
    return escape_html(escape_controls(str(value)))


def rows_chart(bars: Sequence[Bar], title: str) -> str:
    """Horizontal bars, one below the other, with their values."""
    highest = max((bar.value for bar in bars), default=0) or 1
    room = CHART_WIDTH - LABEL_WIDTH - 70
    parts = []
    for number, bar in enumerate(bars):
        y = number * ROW_HEIGHT
        width = max(bar.value / highest * room, 1 if bar.value else 0)
        parts.append(
            f"<g><title>{text(bar.note)}</title>"
            f"{_label(bar.label, y)}"
            f'<rect class="bar" x="{LABEL_WIDTH}" y="{y + 3}" width="{width:.1f}" height="{ROW_HEIGHT - 6}"/>'
            f'<text class="value" x="{LABEL_WIDTH + width + 6:.1f}" y="{y + 14}">{text(compact(bar.value))}</text></g>'
        )
    return _svg(parts, len(bars) * ROW_HEIGHT, title)


def columns_chart(bars: Sequence[Bar], title: str) -> str:
    """Vertical bars, side by side; as many labels as there is room for."""
    highest = max((bar.value for bar in bars), default=0) or 1
    step = CHART_WIDTH / max(len(bars), 1)
    width = min(max(step - 2, step * 0.7), COLUMN_WIDTH_MAX)
    every = max(1, -(-len(bars) * COLUMN_LABEL_WIDTH // CHART_WIDTH))
    base = COLUMNS_HEIGHT - 22
    parts = [
        f'<text class="label" x="0" y="11">{text(compact(highest))}</text>',
        f'<line class="axis" x1="0" y1="{base}" x2="{CHART_WIDTH}" y2="{base}"/>',
    ]
    for number, bar in enumerate(bars):
        x = number * step
        height = max(bar.value / highest * (base - 18), 1 if bar.value else 0)
        parts.append(
            f"<g><title>{text(bar.note)}</title>"
            f'<rect class="area" x="{x:.1f}" y="0" width="{step:.1f}" height="{base}"/>'
            f'<rect class="bar" x="{x:.1f}" y="{base - height:.1f}" width="{width:.1f}" height="{height:.1f}"/></g>'
        )
        if number % every == 0:
            parts.append(f'<text class="label" x="{x:.1f}" y="{COLUMNS_HEIGHT - 6}">{text(bar.label)}</text>')
    return _svg(parts, COLUMNS_HEIGHT, title)


class HeatRow(NamedTuple):
    """A label, and shares from 0 to 1; None where nothing is known."""

    label: str
    shares: Sequence[float | None]
    note: str


def heat_chart(rows: Sequence[HeatRow], title: str) -> str:
    """A cell for each share, the darker the higher; cells without a value are outlined."""
    parts = []
    for number, row in enumerate(rows):
        y = number * ROW_HEIGHT
        step = (CHART_WIDTH - LABEL_WIDTH) / max(len(row.shares), 1)
        parts.append(f"<g><title>{text(row.note)}</title>{_label(row.label, y)}</g>")
        for column, share in enumerate(row.shares):
            known = "none" if share is None else "cell"
            shown = "no values" if share is None else f"{share:.1%}"
            parts.append(
                f'<rect class="{known}" x="{LABEL_WIDTH + column * step:.1f}" y="{y + 2}" width="{step - 2:.1f}" '
                f'height="{ROW_HEIGHT - 4}" fill-opacity="{share or 0:.3f}">'
                f"<title>{text(f'{row.label}, slice {column}: {shown}')}</title></rect>"
            )
    return _svg(parts, len(rows) * ROW_HEIGHT, title)


def _svg(parts: Sequence[str], height: int, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {CHART_WIDTH} {height}" width="{CHART_WIDTH}" height="{height}" role="img" '
        f'aria-label="{text(title)}">{"".join(parts)}</svg>'
    )


def _label(label: str, y: int) -> str:
    """The label of a row at the left."""
    return f'<text class="label" x="{LABEL_WIDTH - 8}" y="{y + 14}" text-anchor="end">{text(_shortened(label))}</text>'


def _shortened(label: str) -> str:
    label = escape_controls(label)
    return label if len(label) <= LABEL_CHARACTERS_MAX else f"{label[: LABEL_CHARACTERS_MAX - 1]}…"


PARTITIONS_SHOWN_MAX = 100
FIELDS_SHOWN_MAX = 200
TIME_BARS_MAX = 90

STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --soft: #667085; --line: #d0d5dd; --bar: #2f6fb5;
  --page: #ffffff; --alarm: #b42318 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #3b4353; --bar: #6aa6e8; --page: #14181f; --alarm: #f97066 }
}
body { margin: 32px auto; max-width: 780px; padding: 0 24px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 24px; margin: 0 0 4px; overflow-wrap: anywhere } h2 { font-size: 17px; margin: 36px 0 6px }
p { margin: 4px 0 12px } .soft { color: var(--soft) } .alarm { color: var(--alarm) }
svg { display: block; max-width: 100%; height: auto; overflow: visible; margin: 4px 0 14px }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink) } svg .label, svg .value { fill: var(--soft) }
svg .bar, svg .cell { fill: var(--bar) } svg .area { fill: transparent } svg .axis { stroke: var(--line) }
svg .none { fill: none; stroke: var(--line) } svg g:hover .bar { opacity: 0.7 }
.scroll { overflow-x: auto; margin-bottom: 14px }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 500; white-space: nowrap }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.name { overflow-wrap: anywhere }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(165px, 1fr)); gap: 12px; margin: 20px 0 }
.facts div { border: 1px solid var(--line); border-radius: 6px; padding: 8px 12px }
.facts b { display: block; font-size: 19px; font-weight: 600 } .facts span { color: var(--soft); font-size: 12px }
"""


def page(profile: TopicProfile, *, version: str, created_ms: int) -> str:
    """The page; `version` is that of kctl."""
    sections = (
        _facts(profile),
        _partitions(profile),
        _times(profile),
        _sizes(profile),
        _keys(profile),
        _disorder(profile),
        _values(profile),
        _slices(profile),
    )
    title = f"Profile of {profile.topic}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{text(title)}</h1>\n<p class="soft">{text(_span(profile))} {text(profile.isolation)}. '
        f"kctl {text(version)}, {text(time_text(created_ms))}.</p>\n{''.join(sections)}</body>\n</html>\n"
    )


def _span(profile: TopicProfile) -> str:
    offsets = sum(one.end - one.start for one in profile.partitions)
    times = [one.min_timestamp for one in profile.partitions if one.min_timestamp is not None]
    ends = [one.max_timestamp for one in profile.partitions if one.max_timestamp is not None]
    when = f" from {time_text(min(times))} to {time_text(max(ends))}" if times else ""
    return f"{counted(offsets, 'offset')} of {counted(len(profile.partitions), 'partition')}{when}."


def _facts(profile: TopicProfile) -> str:
    keys = profile.keys
    about = "about " if keys.distinct_error else ""
    shares = [one.share for one in profile.partitions]
    skew = max(shares, default=0) * len(shares)
    plain = sum(one.uncompressed_bytes for one in profile.codecs)
    facts = [
        (f"{profile.records:,}", "records"),
        (format_size(profile.log_bytes), f"of batches, {format_size(plain)} uncompressed"),
        (f"{about}{keys.distinct:,}", "different keys"),
        (f"{profile.null_keys:,}", f"null keys, {_percent(profile.null_keys, profile.records)}"),
        (f"{profile.null_values:,}", f"null values, {_percent(profile.null_values, profile.records)}"),
        (f"{skew:.2f} ×", "the largest partition, relative to the mean"),
        (f"{profile.out_of_order:,}", f"out of order, {_percent(profile.out_of_order, profile.records)}"),
        (f"{sum(1 for one in profile.values.fields if one.changes):,}", "JSON fields that change"),
    ]
    cells = "".join(f"<div><b>{text(value)}</b><span>{text(name)}</span></div>" for value, name in facts)
    return f'<div class="facts">{cells}</div>\n'


def _partitions(profile: TopicProfile) -> str:
    shown = sorted(profile.partitions, key=lambda one: -one.records)[:PARTITIONS_SHOWN_MAX]
    if len(profile.partitions) <= PARTITIONS_SHOWN_MAX:
        shown = list(profile.partitions)
        note = ""
    else:
        note = f"The {PARTITIONS_SHOWN_MAX} largest of {counted(len(profile.partitions), 'partition')}."
    bars = [
        Bar(
            f"partition {one.partition}",
            one.records,
            f"{counted(one.records, 'record')} ({one.share:.2%}), {format_size(one.log_bytes)}, "
            f"offsets {one.start:,} to {one.end:,}",
        )
        for one in shown
    ]
    gone = sum(one.gone for one in profile.partitions)
    alarm = f'<p class="alarm">{counted(gone, "offset")} deleted while the topic was read.</p>' if gone else ""
    return _section("Partitions", note, rows_chart(bars, "Records by partition") + alarm)


def _times(profile: TopicProfile) -> str:
    buckets, width_ms, outside = time_bars(list(profile.times), profile.time_width_ms, TIME_BARS_MAX)
    if not buckets:
        return _section("Time", "No record has a timestamp.", "")
    form = 10 if width_ms >= 86_400_000 else 16 if width_ms >= 60_000 else 19
    bars = [
        Bar(
            _short_time(one.start_ms, form),
            one.records,
            f"{counted(one.records, 'record')} from {time_text(one.start_ms)}",
        )
        for one in buckets
    ]
    note = f"Records in intervals of {format_duration(width_ms)}, by timestamp in UTC."
    if outside:
        note += f" Far outside of the times shown: {counted(outside, 'record')}."
    if profile.without_timestamp:
        note += f" Without timestamp: {counted(profile.without_timestamp, 'record')}."
    if profile.append_time:
        note += f" With the time of the broker: {counted(profile.append_time, 'record')}."
    return _section("Time", note, columns_chart(bars, "Records by time"))


def _short_time(timestamp_ms: int, characters: int) -> str:
    """The date, or the time of day, as far as it matters for intervals of this length."""
    whole = time_text(timestamp_ms)
    return whole[:10] if characters == 10 else whole[11:characters]


def _sizes(profile: TopicProfile) -> str:
    sizes = (("Keys", profile.key_sizes), ("Values", profile.value_sizes))
    table = _table(
        ("", "count", "mean", "min", "p50", "p90", "p99", "max"),
        [(name, *_numbers(spread)) for name, spread in sizes],
    )
    charts = "".join(
        f'<p class="soft">{name} by size in bytes</p>{_spread_chart(spread, f"{name} by size")}'
        for name, spread in sizes
        if spread.counted
    )
    return _section("Sizes", "Bytes. Percentiles are at most 3 % too high, the others are exact.", table + charts)


def _keys(profile: TopicProfile) -> str:
    keys = profile.keys
    if not profile.key_sizes.counted:
        return _section("Keys", "No record has a key.", "")
    about = f"About {keys.distinct:,}" if keys.distinct_error else f"{keys.distinct:,}"
    note = f"{about} different keys"
    note += f" (standard error {keys.distinct_error:.1%})" if keys.distinct_error else ""
    note += f". With records in several partitions: {counted(keys.in_several_partitions, 'key')}."
    if keys.records_per_key.counted:
        spread = keys.records_per_key
        note += f" Records per key: median {spread.p50:,}, 99 % of the keys at most {spread.p99:,}."
    if keys.frequency_error:
        note += f" The counts below may each be too low by up to {keys.frequency_error:,}."
    bars = [
        Bar(one.key or "(empty)", one.records, f"{one.key}: {counted(one.records, 'record')} ({one.share:.2%})")
        for one in keys.top
    ]
    return _section("Keys", note, rows_chart(bars, "Most frequent keys"))


def _disorder(profile: TopicProfile) -> str:
    if not profile.out_of_order:
        return _section("Order of timestamps", "In each partition, no record is earlier than one before it.", "")
    note = (
        "Records with an earlier timestamp than one before them in their partition: "
        f"{profile.out_of_order:,} ({_percent(profile.out_of_order, profile.records)}). By how much, in milliseconds:"
    )
    return _section("Order of timestamps", note, _spread_chart(profile.lateness_ms, "Lateness in milliseconds"))


def _values(profile: TopicProfile) -> str:
    values = profile.values
    total = values.sampled or 1
    bars = [Bar(one.kind, one.values, f"{one.values:,} of {total:,}") for one in values.kinds]
    parts = [rows_chart(bars, "Kinds of values")]
    if values.schema_ids:
        rows = [
            HeatRow(
                f"schema id {one.schema_id}",
                _shares(one.by_slice, [each.records for each in profile.slices]),
                counted(one.values, "value"),
            )
            for one in values.schema_ids[:FIELDS_SHOWN_MAX]
        ]
        parts.append('<p class="soft">Share of the records with each schema id, oldest offsets on the left</p>')
        parts.append(heat_chart(rows, "Schema ids over time"))
    if values.fields:
        parts.append(_fields(values.fields, has_more=values.has_more_fields))
    note = f"Examined at equal distances of offsets: {counted(values.sampled, 'value')}."
    return _section("Values", note, "".join(parts))


def _fields(fields: Sequence[FieldProfile], *, has_more: bool) -> str:
    shown = sorted(fields, key=lambda one: not one.changes)[:FIELDS_SHOWN_MAX]
    rows = [HeatRow(one.field, one.shares_by_slice, f"{one.field}: {one.share:.1%} of the objects") for one in shown]
    note = f"Fields of JSON objects: in which share of the objects, in {SLICES} slices of offsets, oldest on the left."
    if has_more or len(shown) < len(fields):
        note += " There are more fields than shown."
    table = _table(
        ("Field", "share", "Kinds", "Changes"),
        [
            (
                one.field,
                f"{one.share:.1%}",
                ", ".join(f"{kind} {count:,}" for kind, count in one.kinds.items()),
                "; ".join(one.changes),
            )
            for one in shown
        ],
        names=(0, 2, 3),
    )
    return f'<p class="soft">{text(note)}</p>{heat_chart(rows, "Fields over time")}{table}'


def _slices(profile: TopicProfile) -> str:
    rows = [
        (
            one.slice,
            f"{one.records:,}",
            "" if one.min_timestamp is None else time_text(one.min_timestamp),
            "" if one.max_timestamp is None else time_text(one.max_timestamp),
        )
        for one in profile.slices
    ]
    note = "The offsets of each partition are divided into slices of equal length, from old to new."
    return _section("Slices", note, _table(("slice", "records", "earliest", "latest"), rows, names=(2, 3)))


def _spread_chart(spread: Spread, title: str) -> str:
    bars = [
        Bar(compact(one.low), one.counted, f"{one.counted:,} of {one.low:,} to {one.high:,}") for one in spread.bars
    ]
    return columns_chart(bars, title)


def _numbers(spread: Spread) -> Iterable[str]:
    for number in (spread.counted, spread.mean, spread.min, spread.p50, spread.p90, spread.p99, spread.max):
        yield "" if number is None else f"{number:,.1f}" if isinstance(number, float) else f"{number:,}"


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, names: Sequence[int] = (0,)) -> str:
    """A table; columns other than `names` have numbers."""
    kinds = ["name" if column in names else "number" for column in range(len(titles))]
    head = "".join(f'<th class="{kind}">{text(title)}</th>' for kind, title in zip(kinds, titles, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{text(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _section(title: str, note: str, body: str) -> str:
    about = f'<p class="soft">{text(note)}</p>' if note else ""
    return f"<section><h2>{text(title)}</h2>{about}{body}</section>\n"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "0 %"


def _shares(counts: Sequence[int], totals: Sequence[int]) -> list[float | None]:
    return [count / total if total else None for count, total in zip(counts, totals, strict=True)]
