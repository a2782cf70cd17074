"""ZooKeeper's four-letter words that only read: `echo srvr | nc HOST PORT`.

Pure: returns text for a snapshot of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from kctl.limits import Subject, bound
from kctl.zookeeper.embedded.keeper import Client, Keeper
from kctl.zookeeper.embedded.tree import CONTAINER_OWNER

ZOOKEEPER_DUMP_LINES_MAX = bound(
    Subject.EMBEDDED_ZOOKEEPER,
    "sessions, and ephemeral znodes, in the output of the word `dump` of the embedded ZooKeeper server",
    2_000,
    "lines of each kind",
    on_excess="further ones are left out; the output has the number of all sessions",
)


VERSION = "3.8.0-kctl"
"""The version of the protocol first, because clients parse it, then this implementation."""


class Peer(Client, Protocol):
    """The properties of a connection that are displayed."""

    peer: tuple[str, int]
    received_count: int
    sent_count: int


@dataclass(slots=True)
class Traffic:
    """Counters since the start; latencies in milliseconds."""

    received: int = 0
    sent: int = 0
    latency_min_ms: float = 0.0
    latency_max_ms: float = 0.0
    latency_sum_ms: float = 0.0
    latency_count: int = 0

    def took(self, latency_ms: float) -> None:
        """Count a request that took `latency_ms`."""
        self.latency_min_ms = min(self.latency_min_ms, latency_ms) if self.latency_count else latency_ms
        self.latency_max_ms = max(self.latency_max_ms, latency_ms)
        self.latency_sum_ms += latency_ms
        self.latency_count += 1

    @property
    def latency_average_ms(self) -> float:
        """The average latency in milliseconds, 0 without requests."""
        return self.latency_sum_ms / self.latency_count if self.latency_count else 0.0


@dataclass(slots=True)
class Snapshot:
    """The state of the server at one time."""

    keeper: Keeper
    connections: Sequence[Peer]
    outstanding: int
    traffic: Traffic
    settings: Mapping[str, object]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_read_only: bool = False
    """Whether the disk cannot be written."""


def response(word: str, snapshot: Snapshot) -> str | None:
    """Return the output of a word; None if it is not a four-letter word of ZooKeeper."""
    if word in _RESPONSES:
        return _RESPONSES[word](snapshot)
    if word in _NOT_ALLOWED:
        return f"{word} is not executed because it is not in the whitelist.\n"
    return None


def _ruok(_: Snapshot) -> str:
    return "imok"


def _isro(snapshot: Snapshot) -> str:
    return "ro" if snapshot.is_read_only else "rw"


def _srvr(snapshot: Snapshot) -> str:
    return f"{_version_line()}{_server_lines(snapshot)}"


def _stat(snapshot: Snapshot) -> str:
    clients = "".join(f" {_connection_text(connection)}\n" for connection in snapshot.connections)
    return f"{_version_line()}Clients:\n{clients}\n{_server_lines(snapshot)}"


def _cons(snapshot: Snapshot) -> str:
    lines = []
    for connection in snapshot.connections:
        session = snapshot.keeper.sessions.find(connection.session_id)
        more = f",sid=0x{session.id:x},to={session.timeout_ms}" if session else ""
        lines.append(f" {_connection_text(connection).removesuffix(')')}{more})\n")
    return "".join(lines) + "\n"


def _conf(snapshot: Snapshot) -> str:
    return "".join(f"{name}={value}\n" for name, value in snapshot.settings.items())


def _envi(snapshot: Snapshot) -> str:
    lines = {"zookeeper.version": VERSION, **snapshot.environment}
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in lines.items())


def _dirs(snapshot: Snapshot) -> str:
    return f"datadir_size: {snapshot.keeper.tree.data_bytes}\nlogdir_size: 0\n"


def _dump(snapshot: Snapshot) -> str:
    all_sessions = snapshot.keeper.sessions
    sessions = sorted(islice(all_sessions, ZOOKEEPER_DUMP_LINES_MAX), key=lambda session: session.deadline_ms)
    owners: dict[int, list[str]] = {}
    left = ZOOKEEPER_DUMP_LINES_MAX
    for owner, paths in snapshot.keeper.tree.ephemerals.items():
        if owner != CONTAINER_OWNER and paths and left > 0:
            owners[owner] = sorted(islice(paths, left))
            left -= len(owners[owner])
    return (
        "SessionTracker dump:\n"
        f"Session Sets ({len(all_sessions)})/({len(all_sessions)}):\n"
        + "".join(f"1 expire at {session.deadline_ms}:\n\t0x{session.id:x}\n" for session in sessions)
        + "ephemeral nodes dump:\n"
        + f"Sessions with Ephemerals ({len(owners)}):\n"
        + "".join(f"0x{owner:x}:\n" + "".join(f"\t{path}\n" for path in paths) for owner, paths in owners.items())
        + "Connections dump:\n"
        + f"Connections Sets ({len(snapshot.connections)})/({len(snapshot.connections)}):\n"
    )


def _wchs(snapshot: Snapshot) -> str:
    data = snapshot.keeper.watches.data
    return f"{data.watcher_count} connections watching {data.path_count} paths\nTotal watches:{len(data)}\n"


def _mntr(snapshot: Snapshot) -> str:
    keeper, traffic = snapshot.keeper, snapshot.traffic
    ephemerals = sum(len(paths) for owner, paths in keeper.tree.ephemerals.items() if owner != CONTAINER_OWNER)
    lines: dict[str, object] = {
        "zk_version": VERSION,
        "zk_server_state": "read-only" if snapshot.is_read_only else "standalone",
        "zk_avg_latency": f"{traffic.latency_average_ms:.4f}",
        "zk_max_latency": round(traffic.latency_max_ms),
        "zk_min_latency": round(traffic.latency_min_ms),
        "zk_packets_received": traffic.received,
        "zk_packets_sent": traffic.sent,
        "zk_num_alive_connections": len(snapshot.connections),
        "zk_outstanding_requests": snapshot.outstanding,
        "zk_znode_count": len(keeper.tree),
        "zk_watch_count": len(keeper.watches.data) + len(keeper.watches.children),
        "zk_ephemerals_count": ephemerals,
        "zk_global_sessions": len(keeper.sessions),
        "zk_approximate_data_size": keeper.tree.data_bytes,
    }
    return "".join(f"{name}\t{value}\n" for name, value in lines.items())


def _version_line() -> str:
    return f"Zookeeper version: {VERSION}\n"


def _server_lines(snapshot: Snapshot) -> str:
    traffic = snapshot.traffic
    latencies = f"{traffic.latency_min_ms:.0f}/{traffic.latency_average_ms:.4f}/{traffic.latency_max_ms:.0f}"
    return (
        f"Latency min/avg/max: {latencies}\n"
        f"Received: {traffic.received}\n"
        f"Sent: {traffic.sent}\n"
        f"Connections: {len(snapshot.connections)}\n"
        f"Outstanding: {snapshot.outstanding}\n"
        f"Zxid: 0x{snapshot.keeper.zxid:x}\n"
        f"Mode: {'read-only' if snapshot.is_read_only else 'standalone'}\n"
        f"Node count: {len(snapshot.keeper.tree)}\n"
    )


def _connection_text(connection: Peer) -> str:
    host, port = connection.peer
    return f"/{host}:{port}[1](queued=0,recved={connection.received_count},sent={connection.sent_count})"


_RESPONSES: dict[str, Callable[[Snapshot], str]] = {
    "ruok": _ruok,
    "isro": _isro,
    "srvr": _srvr,
    "stat": _stat,
    "cons": _cons,
    "conf": _conf,
    "envi": _envi,
    "dirs": _dirs,
    "dump": _dump,
    "wchs": _wchs,
    "mntr": _mntr,
}
_NOT_ALLOWED = frozenset({"crst", "srst", "gtmk", "stmk", "wchc", "wchp", "hash", "lead"})
