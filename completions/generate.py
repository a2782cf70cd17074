"""Writes the completion scripts of this folder; --check only lists outdated ones.  `./dev completions`"""

from __future__ import annotations

import sys
from pathlib import Path

from kctl.commands.completion.scripts import script_for
from kctl.commands.frame.root import all_commands

FOLDER = Path(__file__).resolve().parent

SCRIPTS = {"bash": "kctl.bash", "zsh": "_kctl", "fish": "kctl.fish"}
"""Each shell and the name by which it finds a script."""


def main(*, check: bool) -> int:
    commands = all_commands()
    outdated = []
    for shell, name in SCRIPTS.items():
        script = FOLDER / name
        text = script_for(shell, commands)
        if script.exists() and script.read_text(encoding="utf-8") == text:
            continue
        outdated.append(name)
        if not check:
            script.write_text(text, encoding="utf-8")
    for name in outdated:
        sys.stdout.write(f"completions/{name} {'is out of date; run ./dev completions' if check else 'written'}\n")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
