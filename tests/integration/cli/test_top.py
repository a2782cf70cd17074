"""`kctl top` in a pseudo-terminal, and its result for scripts from kctl's and Apache Kafka's brokers."""

from __future__ import annotations

import fcntl
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.integration.cli.conftest import ON_OURS, Kctl
from tests.integration.cli.group_readers import ROOT, TIMEOUT_S

ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"
"""The sequences that open and close the alternate screen."""


class Terminal:
    """`kctl top` in a terminal of 80 columns and 24 lines."""

    def __init__(self, bootstrap: str) -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.output = b""
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # for SIGQUIT
        words = [sys.executable, "-m", "kctl", "top", "--interval", "300ms", "--bootstrap-server", bootstrap]
        self.process = subprocess.Popen(
            words, stdin=self.slave, stdout=self.slave, stderr=self.slave, cwd=ROOT, env=os.environ | {"TERM": "xterm"}
        )

    def wait_for(self, expected: bytes) -> None:
        """Reads until these bytes have been written since the last wait."""
        end_s = time.monotonic() + TIMEOUT_S
        while expected not in self.output:
            assert time.monotonic() < end_s, (expected, self.output[-2000:])
            if select.select([self.master], [], [], 1)[0]:
                self.output += os.read(self.master, 65536)
        self.output = self.output.partition(expected)[2]

    def ends_with(self, status: int) -> None:
        """The process ends, and the terminal is as it was."""
        self.wait_for(LEFT)
        assert self.process.wait(TIMEOUT_S) == status
        assert termios.tcgetattr(self.slave) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(bootstrap: str) -> Iterator[Terminal]:
    opened = Terminal(bootstrap)
    yield opened
    opened.close()


@ON_OURS
def test_the_screen_follows_keys_and_q_restores_the_terminal(terminal: Terminal) -> None:
    terminal.wait_for(ENTERED)
    terminal.wait_for(b"BROKER")
    os.write(terminal.master, b"t")
    terminal.wait_for(b"sorted by REC/S descending")
    os.write(terminal.master, b"q")
    terminal.ends_with(0)


@ON_OURS
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, -signal.SIGHUP),
        (signal.SIGQUIT, -signal.SIGQUIT),
    ],
)
def test_a_signal_restores_the_terminal(terminal: Terminal, number: int, status: int) -> None:
    terminal.wait_for(b"BROKER")
    terminal.process.send_signal(number)
    terminal.ends_with(status)


@ON_OURS
def test_a_stopped_process_gives_the_terminal_back_and_takes_it_again(terminal: Terminal) -> None:
    terminal.wait_for(b"BROKER")
    terminal.process.send_signal(signal.SIGTSTP)
    terminal.wait_for(LEFT)
    _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert termios.tcgetattr(terminal.slave) == terminal.before
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait_for(ENTERED)
    terminal.wait_for(b"BROKER")
    os.write(terminal.master, b"q")
    terminal.ends_with(0)


@ON_OURS
def test_a_screen_without_a_cluster_shows_the_reason_and_ends(bootstrap: str) -> None:
    terminal = Terminal("127.0.0.1:1")
    try:
        terminal.wait_for(b"cannot reach")
        os.write(terminal.master, b"q")
        terminal.ends_with(0)
    finally:
        terminal.close()


def test_once_prints_one_document(kctl: Kctl, topic: str) -> None:
    assert kctl(f"produce {topic} --partition 0", stdin=b"a\nb\nc\n").status == 0
    ran = kctl("top --once --interval 200ms --format json")
    assert ran.status == 0, ran.err
    document = ran.document
    [broker] = document["brokers"]
    assert broker["is_controller"]
    assert broker["disk_bytes"] > 0
    [found] = [row for row in document["topics"] if row["topic"] == topic]
    assert (found["partitions"], found["under_replicated"], found["records_per_s"]) == (3, 0, 0)
    assert {partition["end_offset"] for partition in document["partitions"] if partition["topic"] == topic} == {0, 3}
    assert document["problems"] == []
    assert topic in kctl("top --once --interval 200ms").out


@ON_OURS
def test_wrong_options_are_refused(kctl: Kctl) -> None:
    for line, words in (
        ("top", "--once"),
        ("top --once --interval 1ms", "--interval"),
        ("top --once --metrics x", "ID=HOST:PORT"),
        ("top --once --metrics 1=h:1 --no-metrics", "contradict"),
    ):
        ran = kctl(line)
        assert ran.status == 2
        assert words in ran.err
