"""The help of each verb as rendered by `./dev docs`, so that `kctl NOUN VERB --help` in a pipe does not import typer.

help_pages.txt has for each verb a line with a form feed and the name of the command, followed by the help text.  On a
terminal typer renders the help instead, because it fits the width and has colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

PATH = Path(__file__).with_name("help_pages.txt")


def page_for(words: Sequence[str]) -> str | None:
    """The help that a command line requests; None unless it is the name of a command followed by --help or -h."""
    *command, last = words or [""]
    if last not in {"--help", "-h"} or not command or not PATH.exists():
        return None
    _, found, rest = PATH.read_text(encoding="utf-8").partition(f"\f{' '.join(command)}\n")
    return rest.partition("\f")[0] if found else None


def format_pages(pages: Mapping[str, str]) -> str:
    """The text of help_pages.txt from the help of each command, by its words (`topics create`)."""
    return "".join(f"\f{words}\n{text}" for words, text in pages.items())
