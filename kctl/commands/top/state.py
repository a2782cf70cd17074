"""The state of the screen of `kctl top`, and its changes by keys and samples.  Pure: `step(state, event, now_ms) ->
state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kctl.admin.sampling.activity import Activity
from kctl.commands.top.views import COLUMNS, DEFAULT_SORT, RANKS, Table, View, table_of

# Keys of a terminal, from the bytes that it sends. Pure.


class Key(StrEnum):
    """Keys without a character of their own."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"
    INTERRUPT = "ctrl-c"


_SEQUENCES = {
    b"[A": Key.UP,
    b"OA": Key.UP,
    b"[B": Key.DOWN,
    b"OB": Key.DOWN,
    b"[5~": Key.PAGE_UP,
    b"[6~": Key.PAGE_DOWN,
    b"[H": Key.HOME,
    b"OH": Key.HOME,
    b"[1~": Key.HOME,
    b"[F": Key.END,
    b"OF": Key.END,
    b"[4~": Key.END,
}
_CONTROLS = {"\r": Key.ENTER, "\n": Key.ENTER, "\x7f": Key.BACKSPACE, "\x08": Key.BACKSPACE, "\x03": Key.INTERRUPT}
_ESC = 0x1B


def keys_of(received: bytes) -> list[str]:
    """Return the keys in the bytes of one read: a character, or the name of a Key; unknown sequences are omitted.

    Terminals send the sequence of a key in one piece, so that an escape at the end is the key of that name.
    """
    found: list[str] = []
    at = 0
    while at < len(received):
        if received[at] == _ESC:
            end = _end_of_sequence(received, at + 1)
            sequence = received[at + 1 : end]
            if not sequence:
                found.append(Key.ESCAPE)
            elif sequence in _SEQUENCES:
                found.append(_SEQUENCES[sequence])
            at = end
            continue
        end = received.find(_ESC, at)
        end = len(received) if end < 0 else end
        for character in received[at:end].decode("utf-8", "ignore"):
            if character in _CONTROLS:
                found.append(_CONTROLS[character])
            elif character.isprintable():
                found.append(character)
        at = end
    return found


def _end_of_sequence(received: bytes, at: int) -> int:
    """Return the index after the sequence that begins after an escape; `at` if there is none."""
    if at >= len(received) or received[at] not in b"[O":
        return at
    end = at + 1
    if received[at] == ord("O"):
        return min(end + 1, len(received))
    while end < len(received):
        if 0x40 <= received[end] <= 0x7E:
            return end + 1
        end += 1
    return end


FILTER_CHARACTERS_MAX = 100
_PAGE = 10
_VIEW_KEYS = {
    "o": View.OVERVIEW,
    "b": View.BROKERS,
    "t": View.TOPICS,
    "g": View.GROUPS,
    "p": View.PARTITIONS,
    "c": View.CLIENTS,
}
_MOVES = {Key.UP: -1, "k": -1, Key.DOWN: 1, "j": 1, Key.PAGE_UP: -_PAGE, Key.PAGE_DOWN: _PAGE}
_SUBJECTS = {
    View.BROKERS: (View.BROKER, "broker"),
    View.TOPICS: (View.TOPIC, "topic"),
    View.GROUPS: (View.GROUP, "group"),
    View.PARTITIONS: (View.TOPIC, "topic"),
    View.BROKER: (View.TOPIC, "topic"),
    View.GROUP: (View.TOPIC, "topic"),
}
"""The view that Enter opens, and the field of the selected row that is its subject."""
PLACES_MAX = 20
"""Views to which Escape returns, at most."""


@dataclass(frozen=True, slots=True)
class Place:
    """A view, and what is selected in it."""

    view: View = View.OVERVIEW
    subject: str = ""
    """The broker, topic or group of a view about one of them."""
    cursor: int = 0
    filter: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a screen is drawn from."""

    interval_ms: int
    place: Place = Place()
    back: tuple[Place, ...] = ()
    """Views to which Escape returns, beginning with the last one."""
    sorts: Mapping[View, tuple[str, bool]] = field(default_factory=lambda: dict(DEFAULT_SORT))
    is_typing: bool = False
    """Whether keys are characters of the filter."""
    is_paused: bool = False
    is_help: bool = False
    is_done: bool = False
    seen: Activity | None = None
    seen_ms: int = 0
    """When the latest sample was taken."""
    failure: str = ""
    """Why the latest attempt failed."""
    failed_for_ms: int = 0
    """Since the latest sample, or the start."""

    def table(self) -> Table:
        """Return the rows of the view, filtered and sorted; of the overview, none."""
        if self.seen is None or self.place.view is View.OVERVIEW:
            return Table((), [])
        place = self.place
        return table_of(place.view, place.subject, self.seen, self.sorts[place.view], place.filter)


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """A key, see `keys.keys_of`."""

    key: str


@dataclass(frozen=True, slots=True)
class Sampled:
    """The cluster was sampled."""

    activity: Activity


@dataclass(frozen=True, slots=True)
class SampleFailed:
    """The cluster could not be sampled."""

    message: str


Event = KeyPressed | Sampled | SampleFailed


def step(state: State, event: Event, now_ms: int) -> State:
    """Return the state after an event."""
    match event:
        case Sampled(activity):
            if state.is_paused:
                return replace(state, failure="", failed_for_ms=0)
            shown = replace(state, seen=activity, seen_ms=now_ms, failure="", failed_for_ms=0)
            return _move(shown, 0)
        case SampleFailed(message):
            return replace(state, failure=message, failed_for_ms=now_ms - state.seen_ms)
        case KeyPressed(Key.INTERRUPT):
            return replace(state, is_done=True)
        case KeyPressed(key):
            return _typed(state, key) if state.is_typing else _pressed(state, key)


def _typed(state: State, key: str) -> State:
    place = state.place
    if key == Key.ENTER:
        return replace(state, is_typing=False)
    if key == Key.ESCAPE:
        return replace(state, is_typing=False, place=replace(place, filter="", cursor=0))
    if key == Key.BACKSPACE:
        return replace(state, place=replace(place, filter=place.filter[:-1], cursor=0))
    if len(key) > 1 or len(place.filter) >= FILTER_CHARACTERS_MAX:
        return state
    return replace(state, place=replace(place, filter=place.filter + key, cursor=0))


def _pressed(state: State, key: str) -> State:
    if state.is_help:
        return replace(state, is_help=False)
    if key in _MOVES:
        return _move(state, _MOVES[key])
    if key in _VIEW_KEYS:
        return replace(state, place=Place(_VIEW_KEYS[key]), back=())
    match key:
        case "q":
            return replace(state, is_done=True)
        case "?" | "h":
            return replace(state, is_help=True)
        case " ":
            return replace(state, is_paused=not state.is_paused)
        case Key.HOME:
            return _move(state, -len(state.table().rows))
        case Key.END:
            return _move(state, len(state.table().rows))
        case Key.ENTER:
            return _opened(state)
        case Key.ESCAPE | Key.BACKSPACE:
            return _closed(state)
    if state.place.view is View.OVERVIEW:
        return state
    match key:
        case "/":
            return replace(state, is_typing=True)
        case "s":
            return _sorted(state, 1)
        case "S":
            return _sorted(state, -1)
        case "r":
            name, is_descending = state.sorts[state.place.view]
            return _with_sort(state, (name, not is_descending))
    return state


def _move(state: State, rows: int) -> State:
    """Move the cursor, which stays within the rows."""
    count = len(state.table().rows)
    cursor = max(0, min(state.place.cursor + rows, count - 1))
    return state if cursor == state.place.cursor else replace(state, place=replace(state.place, cursor=cursor))


def _opened(state: State) -> State:
    rows = state.table().rows
    found = _SUBJECTS.get(state.place.view)
    if found is None or not rows:
        return state
    view, name = found
    row: Any = rows[min(state.place.cursor, len(rows) - 1)]
    back = (*state.back, state.place)[-PLACES_MAX:]
    return replace(state, place=Place(view, str(getattr(row, name))), back=back)


def _closed(state: State) -> State:
    """Escape removes the filter first, then returns to the previous view."""
    if state.place.filter:
        return replace(state, place=replace(state.place, filter="", cursor=0))
    if state.back:
        return _move(replace(state, place=state.back[-1], back=state.back[:-1]), 0)
    return replace(state, place=Place())


def _sorted(state: State, columns: int) -> State:
    """Sort by the next column; numbers begin with the largest, severities with the worst, names with the first."""
    view = state.place.view
    shown = COLUMNS[view]
    names = [column.field for column in shown]
    chosen = shown[(names.index(state.sorts[view][0]) + columns) % len(shown)]
    return _with_sort(state, (chosen.field, chosen.numeric or chosen.field in RANKS))


def _with_sort(state: State, sort: tuple[str, bool]) -> State:
    sorts = {**state.sorts, state.place.view: sort}
    return replace(state, sorts=sorts, place=replace(state.place, cursor=0))
