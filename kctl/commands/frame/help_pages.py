"""The help of each command as rendered by `./dev docs`, so that `kctl NOUN VERB --help` imports neither typer nor rich.

help_pages.txt has for each command a line with a form feed and its name, followed by the help text; the name of the
program itself is empty.  For a terminal with fewer than PAGE_COLUMNS columns typer lays out the help.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

PATH = os.path.join(os.path.dirname(__file__), "help_pages.txt")
"""Not a pathlib.Path: every command line imports this module, and pathlib takes a tenth of the time of --version."""
PAGE_COLUMNS = 80
"""The width of the pages; lines of examples may be longer."""
_TITLE = re.compile(r"^[A-Z][A-Za-z ]*:", re.MULTILINE)


def page_for(arguments: Sequence[str], *, columns: int | None, with_styles: bool = False) -> str | None:
    """The help that a command line requests, with bold titles if `with_styles`.

    None unless the command line is the name of a command followed by --help or -h, and if the terminal with this number
    of columns is too narrow; `columns` is None if the output is not a terminal.
    """
    *command, last = arguments or [""]
    if last not in {"--help", "-h"} or (columns is not None and columns < PAGE_COLUMNS) or not os.path.exists(PATH):
        return None
    with open(PATH, encoding="utf-8") as file:
        _, found, rest = file.read().partition(f"\f{' '.join(command)}\n")
    if not found:
        return None
    page = rest.partition("\f")[0]
    return _TITLE.sub("\x1b[1m\\g<0>\x1b[0m", page) if with_styles else page


def format_pages(pages: Mapping[str, str]) -> str:
    """The text of help_pages.txt from the help of each command, by its name (`topics create`)."""
    return "".join(f"\f{name}\n{text}" for name, text in pages.items())
