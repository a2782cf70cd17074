"""Writes the screen of `kctl groups lag --watch` into docs/lag.md: `python -m docs.capture_lag`.

It starts a broker and four groups: one that keeps up, one that was stopped, one whose member does nothing, and one that
is about to lose records; then it runs the command on a pseudo-terminal and takes the last screen.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kctl.testing.broker_process import BrokerProcess

PAGE = Path(__file__).parent / "lag.md"
START, END = "<!-- screen: written by docs/capture_lag.py -->\n", "<!-- end of screen -->\n"
COLUMNS, LINES = 110, 30
WINDOW, ROUNDS = "10s", 14
WAIT_S = 60
LINE = "kctl groups lag --watch --window 10s --interval 1s --sort verdict"
_CLEARED = "\x1b[H\x1b[2J"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Scene:
    """A broker with groups."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._options = ["--bootstrap-server", bootstrap, "--command-config", str(folder / "client.properties")]
        # A member that does nothing stays a member until the end.
        (folder / "client.properties").write_text("session.timeout.ms=120000\n")

    def command(self, line: str) -> list[str]:
        return [sys.executable, "-m", "kctl", *line.split(), *self._options]

    def run(self, line: str, lines: list[str] | None = None) -> str:
        """The output of a command; `lines` are its standard input.  Raises CalledProcessError."""
        text = "".join(f"{one}\n" for one in lines or ())
        done = subprocess.run(self.command(line), input=text, check=True, capture_output=True, text=True)
        return done.stdout

    @contextlib.contextmanager
    def reader(self, topic: str, group: str) -> Iterator[subprocess.Popen[bytes]]:
        """A member that has read everything; it is ended afterwards."""
        words = self.command(f"consume {topic} --group {group} --from start --follow --format jsonl")
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.wait_for(group, "OK")
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def wait_for(self, group: str, verdict: str) -> None:
        """Waits until the group has a commit in each partition, and this verdict."""
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            line = f"groups lag {group} --by partition --window {WINDOW} --format json"
            done = subprocess.run(self.command(line), check=False, capture_output=True, text=True)
            rows = json.loads(done.stdout) if done.returncode == 0 else []
            if any(row["verdict"] == verdict and row["current_offset"] is not None for row in rows):
                return
            time.sleep(0.2)
        raise TimeoutError(f"group {group} is not {verdict} within {WAIT_S} s")


def capture() -> str:
    """The last screen, without control sequences."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        broker = BrokerProcess(Path(folder) / "data")
        broker.start()
        stack.callback(broker.stop)
        scene = Scene(broker.bootstrap_servers, Path(folder))
        for topic in ("orders", "payments", "invoices"):
            scene.run(f"topics create {topic} --partitions 2")
            scene.run(f"produce {topic}", [f"{topic} {number}" for number in range(400)])
        scene.run("topics create clicks --partitions 1 --config retention.ms=3600000")
        old_ms = round((time.time() - 56 * 60) * 1000)
        old: list[dict[str, Any]] = [
            {"key": None, "value": "click", "headers": [], "timestamp_ms": old_ms + n} for n in range(250)
        ]
        scene.run("produce clicks --input jsonl", [json.dumps(one) for one in old])
        scene.run("groups reset-offsets nightly-report --topic clicks --to-earliest --execute")
        scene.run("groups reset-offsets archive --topic invoices --to-earliest --execute")
        stack.enter_context(scene.reader("orders", "search"))
        billing = stack.enter_context(scene.reader("payments", "billing"))
        billing.send_signal(signal.SIGSTOP)
        scene.run("produce payments", [f"payment {number}" for number in range(30)])
        feeding = subprocess.Popen(scene.command("produce orders"), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert feeding.stdin is not None
        stack.callback(feeding.kill)
        return _last_screen(scene.command(f"{LINE.removeprefix('kctl ')} --rounds {ROUNDS}"), feeding)


def _last_screen(command: list[str], feeding: subprocess.Popen[bytes]) -> str:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    watching = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    text = b""
    with contextlib.suppress(OSError):  # EIO when the command has ended
        while piece := os.read(master, 65536):
            text += piece
            assert feeding.stdin is not None
            feeding.stdin.write(b"order\n" * 20)
            feeding.stdin.flush()
    watching.wait()
    os.close(master)
    screen = text.decode().rsplit(_CLEARED, 1)[-1].replace("\r\n", "\n")
    return "\n".join(line.rstrip() for line in _STYLE.sub("", screen).splitlines())


def main() -> int:
    page = PAGE.read_text()
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n```console\n$ {LINE}\n{capture()}\n```\n\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
