"""The types of the rows and documents that a command shows: the source of `--schema`.

    @app.command("list", cls=ClusterCommand, epilog=examples("kctl topics list"))
    @shows(TopicRow)
    def list_topics(ctx: typer.Context) -> ExitStatus:

A type that takes long to import is named by a text: `@shows("kctl.commands.consume.reading:RecordItem")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

RowType = Any
"""A NamedTuple class, or `module:Name` of one."""
Function = TypeVar("Function", bound=Callable[..., Any])


class Shown(NamedTuple):
    """The output of a command with json and yaml, and that of one line of jsonl."""

    rows: tuple[RowType, ...]
    """Each row is of one of these types."""
    is_list: bool
    lines: tuple[RowType, ...]
    """Each line of jsonl is of one of these types."""
    instead: RowType | None = None
    """The type of the one object that some options show instead of a list."""


def shows(*rows: RowType, instead: RowType | None = None) -> Callable[[Function], Function]:
    """Declare that a command shows a list of rows of these types, or with some options `instead` one object."""
    return _declare(Shown(rows, True, rows if instead is None else (*rows, instead), instead))


def shows_one(*rows: RowType, lines: RowType | None = None) -> Callable[[Function], Function]:
    """Declare that a command shows one object of one of these types; with jsonl, rows of the type `lines` if given."""
    return _declare(Shown(rows, False, rows if lines is None else (lines,)))


def shown_by(function: object) -> Shown | None:
    """Return the declared rows of the function of a command; None if it shows no rows."""
    found = getattr(function, "kctl_shown", None)
    return found if isinstance(found, Shown) else None


def _declare(shown: Shown) -> Callable[[Function], Function]:
    def declare(function: Function) -> Function:
        function.kctl_shown = shown  # type: ignore[attr-defined]  # typer copies it to the command's callback
        return function

    return declare
