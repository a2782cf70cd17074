"""Help as plain text: examples first, exit statuses last.  See `help_pages` for where typer lays out help instead."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from kctl.commands.frame.exit_status import MEANINGS
from kctl.commands.frame.options.parameters import (
    CLUSTER_PANEL,
    OUTPUT_PANEL,
    QUERY_PANEL,
    Parameter,
    change_options,
    cluster_options,
    flags_of,
    help_of,
    is_argument,
    is_flag,
    metavar_of,
    output_options,
    query_options,
    repeats,
)

WIDTH = 80
COMMON_PANELS = {CLUSTER_PANEL: "--bootstrap-server", OUTPUT_PANEL: "--format", QUERY_PANEL: "--watch"}
"""Options that many commands have, by the title under which `kctl --help --all` lists them, with the best known."""
NAME_COLUMN_MAX = 34


def write_command_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the help of one command to click's `formatter`."""
    summary, _, description = str(command.help or "").partition("\n\n")
    formatter.write_usage(ctx.command_path, " ".join(usage_pieces(command)))
    _write_text(formatter, summary)
    _write_examples(formatter, command)
    if description:
        _write_text(formatter, description)
    common: list[str] = []
    for title, params in panels(command.params).items():
        own = [param for param in params if param not in common_options()]
        if len(own) < len(params):
            common.append(COMMON_PANELS[title])
        if own:
            write_parameters(formatter, title, own)
    formatter.write(f"\n{', '.join(common)} and others, exit statuses: kctl --help --all\n")


def write_group_help(group: Any, ctx: Any, formatter: Any, tables: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    """Write the help of a noun, or of the program, to click's `formatter`; `tables` are its members by title."""
    formatter.write_usage(ctx.command_path, group.subcommand_metavar)
    _write_text(formatter, str(group.help or ""))
    for title, members in tables.items():
        _write_table(formatter, title, members)
    _write_examples(formatter, group)


def write_first_page(formatter: Any, sections: Mapping[str, Iterable[str]]) -> None:
    """Write the help of the program on 15 lines: the nouns by the work that they are for."""
    formatter.write("Usage: kctl NOUN [VERB] [ARGUMENTS] [OPTIONS]\n\n")
    for title, nouns in sections.items():
        formatter.write(f"  {title:<14}{', '.join(nouns)}\n")
    formatter.write(
        "\nkctl NOUN --help       verbs of a noun           kctl doctor        what to do first\n"
        "kctl NOUN VERB --help  examples and options      kctl broker start  a broker of your own\n"
        "kctl --help --all      all commands, common options, exit statuses\n"
    )


@functools.cache
def common_options() -> list[Parameter]:
    """Return the options that help describes once for all commands."""
    return [*cluster_options(), *change_options(), *output_options(), *query_options()]


def write_common_options(formatter: Any) -> None:
    """Write the options that many commands have."""
    for title, params in panels(common_options()).items():
        write_parameters(formatter, title, params)


def write_parameters(formatter: Any, title: str, params: Iterable[Parameter]) -> None:
    """Write a table of options or arguments."""
    _write_table(formatter, title, [(parameter_column(param), help_of(param)) for param in params])


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
    """`--partitions N`, `-n, --max-messages N`, or the metavar of an argument."""
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
