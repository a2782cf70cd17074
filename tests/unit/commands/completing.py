"""Real shells on a terminal, with the completion scripts of the repository: what a line is after TAB."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120

_SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        (
            "bind 'set enable-bracketed-paste off'; source completions/kctl.bash;"
            ' kctl() { printf \'%s\\0\' "$@" >> "$SHOWN"; printf \'\\1\' >> "$SHOWN"; }; PS1=; kctl ready\n'
        ),
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        (
            "fpath=($PWD/completions $fpath); autoload -Uz compinit; compinit -D -u;"
            ' kctl() { printf \'%s\\0\' "$@" >> "$SHOWN"; printf \'\\1\' >> "$SHOWN" }; PS1=; kctl ready\n'
        ),
    ),
    "fish": (
        ["fish", "--no-config", "-i"],
        (
            "source completions/kctl.fish; function kctl; printf '%s\\0' $argv >> $SHOWN; printf '\\1' >> $SHOWN; end;"
            " function fish_prompt; end; kctl ready\n"
        ),
    ),
}
"""The command of each shell, and its first line: a function `kctl` shows the words that a line has been divided into.

The scripts call the program of that name.
"""


_ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Makes its standard input the terminal of its session, without which fish is not interactive."""


class Shell:
    """An interactive shell.  `environment` has the folder of the program `kctl` in PATH."""

    def __init__(self, name: str, environment: Mapping[str, str], folder: Path) -> None:
        self._shown = folder / f"shown-by-{name}"
        self._shown.write_bytes(b"")
        self._command, self._first_line = _SHELLS[name]
        self._environment = {**environment, "TERM": "dumb", "SHOWN": str(self._shown), "HOME": str(folder)}

    def __enter__(self) -> Self:
        self._terminal, of_shell = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, *self._command],
            stdin=of_shell,
            stdout=of_shell,
            stderr=of_shell,
            cwd=ROOT,
            env=self._environment,
            start_new_session=True,
        )
        os.close(of_shell)
        self.run(self._first_line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def run(self, typed: str) -> list[str]:
        """The words after `kctl` when the keys of a line and return are pressed.  Raises TimeoutError."""
        before, text, deadline = self._shown.read_bytes(), "", time.monotonic() + TIMEOUT_S
        os.write(self._terminal, f"{typed}\r".encode())
        while True:
            if select.select([self._terminal], [], [], 0.02)[0]:
                try:
                    text += os.read(self._terminal, 1 << 16).decode(errors="replace")
                except OSError:  # EIO: the shell has ended.
                    raise TimeoutError(f"{typed!r} ended the shell: {text!r}") from None
            shown = self._shown.read_bytes()[len(before) :]
            if shown.endswith(b"\1"):
                return shown.removesuffix(b"\1").decode().split("\0")[:-1]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{typed!r} did not run: {text!r}")
