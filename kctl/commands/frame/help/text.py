"""Help as plain text: examples first, exit statuses last.  See `help_pages` for where typer lays out help instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kctl.commands.frame.exit_status import MEANINGS
from kctl.commands.frame.options.parameters import (
    Parameter,
    flags_of,
    help_of,
    is_argument,
    is_flag,
    metavar_of,
    repeats,
)

WIDTH = 80
NAME_COLUMN_MAX = 34


def write_command_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the help of one command to click's `formatter`."""
    summary, _, description = str(command.help or "").partition("\n\n")
    formatter.write_usage(ctx.command_path, " ".join(usage_pieces(command)))
    _write_text(formatter, summary)
    _write_examples(formatter, command)
    if description:
        _write_text(formatter, description)
    for title, params in panels(command.params).items():
        _write_table(formatter, title, [(parameter_column(param), help_of(param)) for param in params])
    write_exit_statuses(formatter)


def write_group_help(group: Any, ctx: Any, formatter: Any, members: Iterable[tuple[str, str]], title: str) -> None:
    """Write the help of a noun, or of the program, to click's `formatter`."""
    formatter.write_usage(ctx.command_path, group.subcommand_metavar)
    _write_text(formatter, str(group.help or ""))
    _write_table(formatter, title, members)
    _write_examples(formatter, group)


def write_exit_statuses(formatter: Any) -> None:
    """Write the table of exit statuses."""
    _write_table(formatter, "Exit status", [(str(int(status)), meaning) for status, meaning in MEANINGS.items()])


def examples(*lines: str) -> str:
    """Return the epilog of a command: its examples under a heading, as paragraphs, which typer keeps apart."""
    return "\n\n".join(["Examples:", *lines])


def examples_of(command: Any) -> list[str]:
    """Return the lines that `examples` joined."""
    return str(command.epilog or "").split("\n\n")[1:]


def summary_of(command: Any) -> str:
    """Return the first paragraph of a command's help."""
    return " ".join(str(command.help or "").partition("\n\n")[0].split())


def panels(params: Iterable[Parameter]) -> dict[str, list[Parameter]]:
    """Return the parameters by the title under which help lists them."""
    found: dict[str, list[Parameter]] = {}
    for param in params:
        title = param.rich_help_panel or ("Arguments" if is_argument(param) else "Options")
        found.setdefault(title, []).append(param)
    return found


def usage_pieces(command: Any) -> list[str]:
    """Return the usage line after the name of the command: arguments, then [OPTIONS]."""
    arguments = [param for param in command.params if is_argument(param)]
    return [
        *(word if argument.required else f"[{word}]" for argument in arguments for word in [_argument(argument)]),
        "[OPTIONS]",
    ]


def parameter_column(param: Parameter) -> str:
    """`--partitions N`, `-n, --max-records N`, or the metavar of an argument."""
    if is_argument(param):
        return _argument(param)
    names = ", ".join(flags_of(param))
    return names if is_flag(param) else f"{names} {metavar_of(param)}"


def _argument(param: Parameter) -> str:
    return metavar_of(param) + ("..." if repeats(param) else "")


def _write_examples(formatter: Any, command: Any) -> None:
    if examples_of(command):
        with formatter.section("Examples"):
            for example in examples_of(command):
                formatter.write(f"  {example}\n")


def _write_text(formatter: Any, text: str) -> None:
    formatter.write_paragraph()
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            formatter.write_paragraph()
        formatter.write_text(paragraph)


def _write_table(formatter: Any, title: str, rows: Iterable[tuple[str, str]]) -> None:
    with formatter.section(title):
        formatter.write_dl(list(rows), col_max=NAME_COLUMN_MAX)
