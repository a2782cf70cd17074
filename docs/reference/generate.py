"""Writes the generated pages from the code; with --check it only reports which are out of date.  See ./dev docs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from kctl.commands.reference import cli_reference
from kctl.commands.root import all_commands, help_pages
from kctl.config.reference import config_reference
from kctl.limits import LIMITS, Limit

ROOT = Path(__file__).resolve().parents[2]
_TABLE_START = "<!-- limits: written by ./dev docs from kctl/limits.py -->\n"
_TABLE_END = "<!-- end of limits -->\n"


def limits_table(page: str) -> str:
    """`page` with the table of bounds between its two markers replaced by the present one."""
    before, _, rest = page.partition(_TABLE_START)
    _, _, after = rest.partition(_TABLE_END)
    rows = "".join(f"| {limit.what} | {_bound(limit)} | {limit.on_excess} |\n" for limit in LIMITS)
    return f"{before}{_TABLE_START}\n| bounded | bound | on excess |\n|---|---|---|\n{rows}\n{_TABLE_END}{after}"


def _bound(limit: Limit) -> str:
    if isinstance(limit.value, int):
        return f"{limit.value:,} {limit.unit}"
    return f"`{limit.value}` (default {limit.unit})"


PAGES: dict[str, Callable[[str], str]] = {
    "docs/reference/cli.md": lambda _: cli_reference(all_commands()),
    "kctl/commands/help_pages.txt": lambda _: help_pages(),
    "docs/reference/config.md": lambda _: config_reference(),
    "docs/security.md": limits_table,
}
"""Each page and the function from its present text to the text that the code asks for."""


def main(*, check: bool) -> int:
    """Returns the exit status: 1 if `check` found a page out of date."""
    outdated = []
    for name, text_of in PAGES.items():
        page = ROOT / name
        present = page.read_text(encoding="utf-8") if page.exists() else ""
        text = text_of(present)
        if present == text:
            continue
        outdated.append(name)
        if not check:
            page.write_text(text, encoding="utf-8")
    for name in outdated:
        sys.stdout.write(f"{name} {'is out of date; run ./dev docs' if check else 'written'}\n")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
