"""The help of each command as a page of 80 columns, so that `kctl NOUN VERB --help` imports neither typer nor rich.

`command_cache` keeps the pages.  For a terminal with fewer than PAGE_COLUMNS columns typer lays out the help.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kctl.commands.frame.help.command_cache import FULL_HELP, Described, read_described, store_described

PAGE_COLUMNS = 80
"""The width of the pages; lines of examples may be longer."""
_REQUESTS_OF_ALL = (["--all", "--help"], ["--all", "-h"], ["--all", "help"])
_TITLE = re.compile(r"^[A-Z][A-Za-z ]*:", re.MULTILINE)


def described(name: str) -> Described | None:
    """Return what help and completion know of a command (`topics create`), of a noun, or with an empty name of the
    program.

    None if there is no such command.
    """
    found = read_described(name)
    if found is None:
        from kctl.commands.frame.root import describe  # noqa: PLC0415 - imports typer

        found = describe(name)
        if found is not None:
            store_described(name, found)
    return found


def page_for(arguments: Sequence[str], *, columns: int | None, with_styles: bool = False) -> str | None:
    """Return the help that a command line requests, with bold titles if `with_styles`.

    None unless the command line is the name of a command followed by --help or -h, and if the terminal with this number
    of columns is too narrow; `columns` is None if the output is not a terminal.
    """
    if columns is not None and columns < PAGE_COLUMNS:
        return None
    if sorted(arguments) in _REQUESTS_OF_ALL:
        found = described(FULL_HELP)
        return None if found is None else _styled(found.page, with_styles=with_styles)
    *command, last = arguments or [""]
    if last not in {"--help", "-h"}:
        return None
    if any(not word or word.startswith("-") or " " in word for word in command):
        return None
    found = described(" ".join(command))
    if found is None:
        return None
    return _styled(found.page, with_styles=with_styles)


def _styled(page: str, *, with_styles: bool) -> str:
    return _TITLE.sub("\x1b[1m\\g<0>\x1b[0m", page) if with_styles else page
