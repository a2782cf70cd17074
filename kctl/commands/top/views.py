"""The tables of `kctl top`: which rows and columns a view has, and how their values are written.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from kctl.admin.sampling.activity import MOVING, OFFLINE, OK, UNDER_REPLICATED, Activity
from kctl.lag.rules import Verdict
from kctl.output.quantities import NOTHING, compact
from kctl.output.terminal_text import escape_cell


class View(Enum):
    """The contents of the screen."""

    OVERVIEW = "overview"
    BROKERS = "brokers"
    TOPICS = "topics"
    GROUPS = "groups"
    PARTITIONS = "partitions"
    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"
    CLIENTS = "clients"


class Column(NamedTuple):
    """One column of a view: the field of the row that it shows and sorts by.

    `rank`: where the terminal is narrow, columns with the highest rank are left out first; 0 is always shown.
    """

    field: str
    title: str
    text: Callable[[Any], str]
    rank: int = 0
    numeric: bool = True
    is_rare: bool = False
    """Left out where no row has a value."""


class Table(NamedTuple):
    """A view: its columns and its rows, which are NamedTuples of `kctl.admin.sampling.activity`."""

    columns: tuple[Column, ...]
    rows: list[Any]


def _number(value: float | None) -> str:
    return NOTHING if value is None else str(value)


def _words(value: object) -> str:
    return NOTHING if value is None or value == "" else escape_cell(str(value))


def _flag(value: object) -> str:
    return "*" if value else ""


def _list(value: Sequence[int]) -> str:
    return ",".join(map(str, value)) or NOTHING


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}%"


_TOPIC = Column("topic", "TOPIC", _words, numeric=False)
_PARTITION = Column("partition", "PART", _number)
_STATUS = Column("status", "STATUS", _words, numeric=False)
_RECORDS = Column("records_per_s", "REC/S", compact)
COLUMNS: dict[View, tuple[Column, ...]] = {
    View.BROKERS: (
        Column("broker", "BROKER", _number),
        Column("is_controller", "C", _flag, 5, numeric=False),
        Column("address", "ADDRESS", _words, 3, numeric=False),
        Column("rack", "RACK", _words, 7, numeric=False, is_rare=True),
        Column("leaders", "LEADS", _number, 4),
        Column("replicas", "REPL", _number, 6),
        _RECORDS,
        Column("bytes_in_per_s", "IN B/S", compact, 1),
        Column("bytes_out_per_s", "OUT B/S", compact, 1),
        Column("requests_per_s", "REQ/S", compact, 4),
        Column("produce_p99_ms", "PROD p99 ms", compact, 5),
        Column("fetch_p99_ms", "FETCH p99 ms", compact, 5),
        Column("loop_lag_p99_ms", "LOOP p99 ms", compact, 2),
        Column("idle_percent", "IDLE", _percent, 3),
        Column("disk_bytes", "DISK B", compact),
        Column("disk_free_bytes", "FREE B", compact, 6, is_rare=True),
        Column("offline_directories", "BAD DIRS", _number, 4),
    ),
    View.TOPICS: (
        _TOPIC,
        Column("partitions", "PARTS", _number, 2),
        Column("replication_factor", "REPL", _number, 4),
        _RECORDS,
        Column("growth_bytes_per_s", "GROWTH B/S", compact, 3),
        Column("size_bytes", "SIZE B", compact),
        Column("under_replicated", "UNDER-REPL", _number, 1),
        Column("offline", "OFFLINE", _number, 1),
    ),
    View.GROUPS: (
        Column("group", "GROUP", _words, numeric=False),
        Column("state", "STATE", _words, 2, numeric=False),
        Column("members", "MEMBERS", _number, 3),
        Column("partitions", "PARTS", _number, 4),
        Column("lag", "LAG", compact),
        Column("lag_per_s", "LAG +/S", compact, 1),
        Column("consumed_per_s", "REC/S", compact, 1),
        Column("verdict", "VERDICT", _words, 1, numeric=False, is_rare=True),
    ),
    View.PARTITIONS: (
        _TOPIC,
        _PARTITION,
        _STATUS,
        Column("copied_percent", "COPIED", _percent, 1, is_rare=True),
        Column("leader", "LEADER", _number, 2),
        Column("replicas", "REPLICAS", _list, 3, numeric=False),
        Column("isr", "IN SYNC", _list, 2, numeric=False),
        Column("adding", "ADDING", _list, 4, numeric=False, is_rare=True),
        Column("removing", "REMOVING", _list, 5, numeric=False, is_rare=True),
        Column("records_per_s", "REC/S", compact, 3),
        Column("end_offset", "END", _number, 6),
        Column("size_bytes", "SIZE B", compact, 4),
    ),
    View.GROUP: (
        _TOPIC,
        _PARTITION,
        Column("committed", "COMMITTED", _number, 2),
        Column("end_offset", "END", _number, 2),
        Column("lag", "LAG", compact),
        Column("consumed_per_s", "REC/S", compact, 1),
        Column("client_id", "CLIENT", _words, 3, numeric=False, is_rare=True),
        Column("host", "HOST", _words, 4, numeric=False, is_rare=True),
    ),
    View.CLIENTS: (
        Column("software", "SOFTWARE", _words, numeric=False),
        Column("version", "VERSION", _words, numeric=False),
        Column("connections", "CONNECTIONS", _number),
        Column("brokers", "BROKERS", _list, 1, numeric=False),
    ),
}
COLUMNS[View.TOPIC] = COLUMNS[View.PARTITIONS][1:]
COLUMNS[View.BROKER] = COLUMNS[View.PARTITIONS]
DEFAULT_SORT: dict[View, tuple[str, bool]] = {
    View.BROKERS: ("broker", False),
    View.TOPICS: ("records_per_s", True),
    View.GROUPS: ("lag", True),
    View.PARTITIONS: ("status", True),
    View.TOPIC: ("partition", False),
    View.BROKER: ("records_per_s", True),
    View.GROUP: ("lag", True),
    View.CLIENTS: ("connections", True),
}
"""Field and whether the largest comes first."""
RANKS: dict[str, dict[str, int]] = {
    "status": {OK: 0, MOVING: 1, UNDER_REPLICATED: 2, OFFLINE: 3},
    "verdict": {verdict.name: verdict.value for verdict in Verdict},
}
"""The severity of the words of a field, by which it is sorted."""
_NAMES = (
    "broker",
    "address",
    "rack",
    "topic",
    "partition",
    "group",
    "state",
    "status",
    "verdict",
    "client_id",
    "host",
    "software",
)
"""The fields that a filter looks into."""


def table_of(view: View, subject: str, seen: Activity, sort: tuple[str, bool], text: str) -> Table:
    """Return the rows of a view about one subject that contain `text`, in the order of `sort`."""
    rows = [row for row in _rows(view, subject, seen) if not text or _contains(row, text.casefold())]
    field, is_descending = sort
    # Rows without a value come last in either order, rows with equal values by name.
    rows.sort(key=_name)
    known = [row for row in rows if getattr(row, field) is not None]
    known.sort(key=lambda row: _sort_key(field, getattr(row, field)), reverse=is_descending)
    return Table(COLUMNS[view], known + [row for row in rows if getattr(row, field) is None])


def _rows(view: View, subject: str, seen: Activity) -> Sequence[Any]:
    match view:
        case View.BROKERS:
            return seen.brokers
        case View.TOPICS:
            return seen.topics
        case View.GROUPS:
            return seen.groups
        case View.PARTITIONS:
            return [partition for partition in seen.partitions if partition.status != OK]
        case View.TOPIC:
            return [partition for partition in seen.partitions if partition.topic == subject]
        case View.BROKER:
            return [
                partition
                for partition in seen.partitions
                if any(str(replica) == subject for replica in partition.replicas)
            ]
        case View.GROUP:
            return [offset for offset in seen.group_offsets if offset.group == subject]
        case View.CLIENTS:
            return seen.clients
        case View.OVERVIEW:
            return ()


def _contains(row: Any, text: str) -> bool:
    return any(text in str(getattr(row, name)).casefold() for name in _NAMES if getattr(row, name, None) is not None)


def _name(row: Any) -> tuple[Any, ...]:
    return tuple(
        getattr(row, name)
        for name in ("broker", "group", "topic", "partition", "software", "version")
        if hasattr(row, name)
    )


def _sort_key(field: str, value: Any) -> Any:
    return RANKS[field].get(value, 0) if field in RANKS else value
