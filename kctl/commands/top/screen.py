"""Lays out the screen of `kctl top`.  Pure: no line is wider, and no screen higher, than the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kctl.admin.sampling.activity import MOVING, OFFLINE, OK, UNDER_REPLICATED, Activity
from kctl.commands.top.state import State
from kctl.commands.top.views import DEFAULT_SORT, Column, Table, View, table_of
from kctl.output.quantities import NOTHING, compact, counted
from kctl.output.table import GAP
from kctl.output.terminal_text import cut, display_width, escape, pad

BOLD, DIM, SELECTED, GOOD, WARNING, BAD = "bold", "dim", "reverse", "green", "yellow", "bold red"
FLEXIBLE_WIDTH_MIN = 8
"""The first column of names is cut down to this width before columns are left out."""
LOW_HEIGHT_MAX = 11
"""On a terminal of so few lines, a list has only the first line about the cluster above it."""
_KEYS = (
    "? help",
    "q quit",
    "b brokers",
    "t topics",
    "g groups",
    "p problems",
    "c clients",
    "Enter open",
    "Esc back",
    "o overview",
    "/ filter",
    "s sort",
    "Space pause",
)
_KEYS_OF_TABLES = frozenset({"Enter open", "Esc back", "/ filter", "s sort"})
"""They have no effect in the overview, where no row is selected."""
_HELP = (
    ("o b t g p c", "overview, brokers, topics, groups, problems and moves, clients"),
    ("Up Down k j", "select a row; also Page Up, Page Down, Home, End"),
    ("Enter", "open the selected broker, topic or group"),
    ("Esc", "remove the filter, then go back"),
    ("/", "show only rows that contain a text; Enter ends typing"),
    ("s S", "sort by the next or the previous column"),
    ("r", "reverse the order"),
    ("Space", "stop and continue refreshing"),
    ("q", "quit"),
)
_SECTIONS = (View.BROKERS, View.TOPICS, View.GROUPS, View.PARTITIONS)
_COLOURS = {
    OFFLINE: BAD,
    UNDER_REPLICATED: WARNING,
    MOVING: "cyan",
    "LOSING": BAD,
    "STOPPED": BAD,
    "STALLED": WARNING,
    "REWOUND": WARNING,
    "WARN": WARNING,
}


class Span(NamedTuple):
    """Text with a style, which is a word that rich understands."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def text_of(line: Line) -> str:
    """Return the line without styles."""
    return "".join(span.text for span in line)


def render(state: State, width: int, height: int) -> list[Line]:
    """Return the lines of a terminal of this size."""
    if width <= 0 or height <= 0:
        return []
    head = _head(state, width)
    if height <= LOW_HEIGHT_MAX and (state.is_help or state.place.view is not View.OVERVIEW):
        head = head[:1]
    foot = [_foot(state, width)]
    space = height - len(head) - len(foot)
    if space <= 0:
        return (head + foot)[:height]
    body = _body(state, width, space)
    blanks: list[Line] = [()] * (space - len(body))
    return head + body + blanks + foot


def overview(seen: Activity, width: int | None) -> list[Line]:
    """Return the whole overview, for a pipe or a file."""
    state = State(0, seen=seen)
    wide = width or 1_000
    rows = sum(len(found.rows) for found in _tables(seen))
    lines = [*_head(state, wide, is_live=False), *_overview(seen, wide, rows + 3 * len(_SECTIONS))]
    return [_stripped(line) for line in lines]


def _body(state: State, width: int, height: int) -> list[Line]:
    if state.is_help:
        return [_cut((Span(pad(f"  {keys}", 16), BOLD), Span(text)), width) for keys, text in _HELP][:height]
    if state.seen is None:
        return []
    if state.place.view is View.OVERVIEW:
        return _overview(state.seen, width, height)
    return _list(state, width, height)


def _head(state: State, width: int, *, is_live: bool = True) -> list[Line]:
    seen = state.seen
    if seen is None:
        what = (
            f"no response for {state.failed_for_ms // 1000} s: {escape(state.failure)}" if state.failure else "reading"
        )
        return [_cut((Span("kctl top  ", BOLD), Span(what, BAD if state.failure else "")), width)]
    title = [Span("kctl top", BOLD)]
    if state.is_paused:
        title.append(Span("  PAUSED", WARNING))
    if state.failure:
        title.append(Span(f"  no response for {state.failed_for_ms // 1000} s: {escape(state.failure)}", BAD))
    title.append(Span(f"  cluster {escape(seen.cluster_id or '-')}"))
    if is_live:
        title.append(Span(f"  every {state.interval_ms / 1000:g} s", DIM))
    rates = [broker.records_per_s for broker in seen.brokers if broker.records_per_s is not None]
    disks = [broker.disk_bytes for broker in seen.brokers if broker.disk_bytes is not None]
    controller = "none" if seen.controller is None else str(seen.controller)
    facts = (
        f"brokers {len(seen.brokers)}",
        f"controller {controller}",
        f"rec/s {compact(sum(rates) if rates else None)}",
        f"disk {compact(sum(disks) if disks else None)}",
        f"topics {len(seen.topics)}",
        f"partitions {len(seen.partitions)}",
        f"groups {len(seen.groups)}",
    )
    lines = [tuple(title), (Span(_fitting(facts, width)),)]
    lines += [(Span(escape(seen.controller_problem), BAD),)] if seen.controller_problem is not None else []
    lines += [health] if (health := _health(seen)) else []
    lines += [(Span(f"not read: {escape('; '.join(seen.problems))}", WARNING),)] if seen.problems else []
    return [_cut(line, width) for line in (*lines, ())]


def _health(seen: Activity) -> Line:
    counts = dict.fromkeys((OFFLINE, UNDER_REPLICATED, MOVING, OK), 0)
    for partition in seen.partitions:
        counts[partition.status] += 1
    bad_directories = sum(broker.offline_directories or 0 for broker in seen.brokers)
    words = [
        Span(f"{count} {status.lower()}", _COLOURS[status])
        for status, count in counts.items()
        if count and status != OK
    ]
    if bad_directories:
        words.append(Span(f"{bad_directories} failed log directories", BAD))
    if not words:
        return () if seen.controller_problem is not None else (Span("all partitions are in sync", GOOD),)
    joined = [words[0]]
    for word in words[1:]:
        joined += [Span(", "), word]
    return (Span("partitions: "), *joined)


def _foot(state: State, width: int) -> Line:
    if state.is_typing:
        return _cut((Span("filter: ", BOLD), Span(escape(state.place.filter) + "_")), width)
    is_overview = state.place.view is View.OVERVIEW
    keys = (key for key in _KEYS if not (is_overview and key in _KEYS_OF_TABLES))
    return _cut((Span(_fitting(keys, width), DIM),), width)


def _fitting(words: Iterable[str], width: int) -> str:
    """Return the first words that fit, two blanks apart."""
    text = ""
    for word in words:
        longer = f"{text}  {word}" if text else word
        if display_width(longer) > width:
            break
        text = longer
    return text


def _tables(seen: Activity) -> list[Table]:
    return [table_of(view, "", seen, DEFAULT_SORT[view], "") for view in _SECTIONS]


def _overview(seen: Activity, width: int, height: int) -> list[Line]:
    """Return a section for each kind of thing; they share the height by their number of rows."""
    tables = [table for table in _tables(seen) if table.rows]
    room = _shared(height - 2 * len(tables) + 1, [len(table.rows) for table in tables])
    lines: list[Line] = []
    for table, rows in zip(tables, room, strict=True):
        if rows:
            lines += [*([()] if lines else []), *_table(table, width, table.rows[:rows])]
    return lines[:height]


def _shared(space: int, needs: Sequence[int]) -> list[int]:
    """Return how many rows each section gets: small sections whole, the others equal parts of the rest."""
    given = [0] * len(needs)
    left = max(0, space)
    for position, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        given[index] = min(needs[index], left // (len(needs) - position))
        left -= given[index]
    return given


def _list(state: State, width: int, height: int) -> list[Line]:
    """Return one view with a selected row, which is always on the screen."""
    table, place = state.table(), state.place
    field, is_descending = state.sorts[place.view]
    name = f"{place.view.value} {escape(place.subject)}".rstrip()
    order = next(column.title for column in table.columns if column.field == field)
    words = f"{name}: {counted(len(table.rows), 'row')}, sorted by {order}{' descending' if is_descending else ''}"
    filtered = f", filter: {escape(place.filter)}" if place.filter else ""
    space = max(0, height - 2)
    first = max(0, min(place.cursor - space // 2, len(table.rows) - space))
    shown = table.rows[first : first + space]
    title = _cut((Span(words, BOLD), Span(filtered, WARNING)), width)
    return [title, *_table(table, width, shown, selected=place.cursor - first)][:height]


def _table(table: Table, width: int, rows: Sequence[Any], *, selected: int = -1) -> list[Line]:
    """Return the titles and rows.

    The first column of names is cut, then columns of high rank are left out, until they fit.
    """
    texts = {column.field: [column.text(getattr(row, column.field)) for row in rows] for column in table.columns}
    columns = [
        column
        for column in table.columns
        if any(text != NOTHING for text in texts[column.field]) or not (rows or column.is_rare)
    ]
    natural = {
        column.field: max(map(display_width, (column.title, *texts[column.field])), default=0) for column in columns
    }
    flexible = next((column.field for column in columns if not column.numeric and column.rank == 0), "")

    def least(shown: Iterable[Column]) -> int:
        fields = [column.field for column in shown]
        sizes = [min(natural[field], FLEXIBLE_WIDTH_MIN) if field == flexible else natural[field] for field in fields]
        return sum(sizes) + GAP * (len(sizes) - 1)

    while least(columns) > width and max(column.rank for column in columns) > 0:
        worst = max(column.rank for column in columns)
        columns.remove(next(column for column in reversed(columns) if column.rank == worst))
    widths = {column.field: natural[column.field] for column in columns}
    excess = sum(widths.values()) + GAP * (len(columns) - 1) - width
    if flexible in widths and excess > 0:
        widths[flexible] = max(min(natural[flexible], FLEXIBLE_WIDTH_MIN), widths[flexible] - excess)
    lines = [_cut((Span(_joined(columns, [column.title for column in columns], widths), BOLD),), width)]
    for index, row in enumerate(rows):
        cells = [texts[column.field][index] for column in columns]
        style = SELECTED if index == selected else _colour(row)
        lines.append(_cut((Span(_joined(columns, cells, widths), style),), width))
    return lines


def _joined(columns: Sequence[Column], cells: Sequence[str], widths: dict[str, int]) -> str:
    return (" " * GAP).join(
        pad(cut(text, widths[column.field]), widths[column.field], right=column.numeric)
        for column, text in zip(columns, cells, strict=True)
    )


def _colour(row: Any) -> str:
    if getattr(row, "offline", 0) or getattr(row, "offline_directories", 0):
        return BAD
    if getattr(row, "under_replicated", 0):
        return WARNING
    return _COLOURS.get(getattr(row, "status", None) or getattr(row, "verdict", None) or "", "")


def _cut(line: Line, width: int) -> Line:
    """Return the line in at most `width` columns."""
    left = width
    spans: list[Span] = []
    for text, style in line:
        size = display_width(text)
        if size > left:
            spans.append(Span(cut(text, left), style))
            break
        spans.append(Span(text, style))
        left -= size
    return tuple(spans)


def _stripped(line: Line) -> Line:
    return (*line[:-1], Span(line[-1].text.rstrip(), line[-1].style)) if line else line
