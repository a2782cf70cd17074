"""Writes the pages of this folder from the code; with --check it only says which are out of date.  `./dev docs`"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from kctl.commands.catalog import load_all
from kctl.commands.reference import cli_reference
from kctl.config.reference import config_reference

FOLDER = Path(__file__).resolve().parent

PAGES: dict[str, Callable[[], str]] = {
    "cli.md": lambda: cli_reference(load_all()),
    "config.md": config_reference,
}
"""Each page and what makes its text."""


def main(*, check: bool) -> int:
    outdated = []
    for name, text_of in PAGES.items():
        page = FOLDER / name
        text = text_of()
        if page.exists() and page.read_text(encoding="utf-8") == text:
            continue
        outdated.append(name)
        if not check:
            page.write_text(text, encoding="utf-8")
    for name in outdated:
        sys.stdout.write(f"docs/reference/{name} {'is out of date; run ./dev docs' if check else 'written'}\n")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
