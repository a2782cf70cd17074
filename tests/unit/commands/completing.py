"""What shells complete with the scripts of the repository."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60

_IN_BASH = """
source completions/kctl.bash
COMP_LINE=$1
COMP_POINT=${#COMP_LINE}
shift
COMP_WORDS=("$@")
COMP_CWORD=$(( $# - 1 ))
_kctl
printf '%s\\n' "${COMPREPLY[@]}"
"""
_BREAKS = re.compile(r"[:=]+|[^:=]+")
"""bash also divides words at these characters (COMP_WORDBREAKS)."""


def in_bash(line: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """What bash offers for the end of the line."""
    words = [piece for word in line.split(" ") for piece in _BREAKS.findall(word) or [""]]
    ran = subprocess.run(
        ["bash", "-c", _IN_BASH, "-", line, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment,
    )
    assert ran.stderr == ""
    return [word for word in ran.stdout.splitlines() if word]


def in_zsh(line: str, expected: str, environment: Mapping[str, str]) -> str:
    """The output of zsh after TAB, up to the expected text.  Raises TimeoutError."""
    terminal, of_zsh = pty.openpty()
    zsh = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=of_zsh,
        stdout=of_zsh,
        stderr=of_zsh,
        cwd=ROOT,
        env={**environment, "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(of_zsh)
    try:
        text = "fpath=(completions $fpath); autoload -Uz compinit; compinit -D -u; PS1=; print rea''dy\n"
        os.write(terminal, text.encode())
        _read_until("ready", terminal)
        os.write(terminal, f"{line}\t".encode())
        return _read_until(expected, terminal)
    finally:
        zsh.kill()
        zsh.wait()
        os.close(terminal)


def _read_until(expected: str, terminal: int) -> str:
    deadline, text = time.monotonic() + TIMEOUT_S, ""
    while expected not in text:
        if not select.select([terminal], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise TimeoutError(f"no '{expected}' in {text!r}")
        text += os.read(terminal, 1 << 16).decode(errors="replace")
    return text
