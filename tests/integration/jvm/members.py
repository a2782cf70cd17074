"""Consumer group members in one JVM that report what they own, read and commit."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.peers.apache_kafka import java_command

PROGRAM = Path(__file__).with_name("Members.java")
SESSION_TIMEOUT_MS = 3_000
"""Less than brokers allow by default."""


class Event(NamedTuple):
    """An event reported by a member."""

    nanos: int
    group: str
    member: str
    kind: str
    numbers: tuple[int, ...]


class Host:
    """A JVM with members of all groups."""

    def __init__(
        self, version: str, bootstrap: str, topic: str, log: Path, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        self._log = log
        command = java_command(version, str(PROGRAM), [bootstrap, topic, str(session_timeout_ms)])
        with log.open("ab") as output, log.with_suffix(".errors").open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=errors)

    def join(self, assignor: str, name: str, *, group: str = "", static: bool = False) -> None:
        """Without a group it is that of all members with this assignor."""
        self._print(f"join {group or assignor} {name} {assignor}{' static' if static else ''}")

    def leave(self, group: str, name: str) -> None:
        self._print(f"leave {group} {name}")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def events(self) -> list[Event]:
        """All events in this log, without a line that was cut off by a kill."""
        found = []
        for line in self._log.read_text().split("\n")[:-1]:
            nanos, group, member, kind, *numbers = line.split()
            found.append(Event(int(nanos), group, member, kind, tuple(map(int, numbers))))
        return found

    def _print(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
