"""docs/reference/cli.md, generated from the typer commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kctl.commands.exit_status import MEANINGS
from kctl.commands.help import examples_of, panels, parameter_column, usage_pieces
from kctl.commands.lazy_group import summary_of
from kctl.commands.options import CLUSTER_PANEL, OUTPUT_PANEL, cluster_options, output_options
from kctl.commands.parameters import Parameter, help_of
from kctl.commands.root import NOUNS

INTRODUCTION = """\
# Command line

<!-- Written by `./dev docs` from the commands: change those. -->

    kctl NOUN [VERB] [ARGUMENTS] [OPTIONS]

`kctl NOUN --help` and `kctl NOUN VERB --help` print what this page says.  Options may stand anywhere in the line.

## Rules for every command

- Data goes to stdout, everything else to stderr.
- `--format table` is the default on a terminal, `plain` everywhere else.  `table` is for people and may change;
  `plain`, `json` and `jsonl` are for programs: columns and fields are added, but neither renamed nor removed.
- `plain` has one row per line and tabs between columns, and no line of titles unless `--header` is given.  Null and
  empty lists are `-`, an empty text is `""`; texts that look like these two are `\\x2d` and `\\x22\\x22`.  Headers of
  records are `name=value` joined by commas, `name` alone where the value is null; commas within are `\\x2c`.
- Names, keys, values and messages never act on the terminal.  Controls, invisible format characters, line separators
  and bytes that are not UTF-8 are escaped: in `table` and `plain` as `\\t`, `\\n`, `\\xNN`, `\\uNNNN` or `\\UNNNNNNNN`,
  and a backslash as `\\\\`; in `json` and `jsonl` as `\\uNNNN`.  `--compat` and `kctl zookeeper get` write the bytes as
  they are, except on a terminal.
- A table fits the terminal: cells wrap between words, and rows that do not fit become blocks of one line per column.
  In a pipe or file, lines have no limit.
- `json` is exactly one document, also when the command fails:
  `{"error": {"code": ..., "message": ..., "retryable": ...}}`.  An empty list is `[]`.  `jsonl` is one object per line.
- Rows about items that can fail one by one end with `error`, the bare name of a Kafka error, and `message`.  Both are
  empty on success.  Any row with an error makes the exit status 1.
- Times are shown as RFC 3339 in UTC, and in JSON also as milliseconds since the epoch; times that are given without a
  zone are UTC.
- What destroys something asks first.  Without a terminal it refuses, with exit status 5, unless `--yes` is given.
- Settings count in this order: option, environment (`KCTL_BOOTSTRAP_SERVER`, `KCTL_COMMAND_CONFIG`), the file of
  `--command-config`, default.
"""


def cli_reference(commands: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page, from the commands by noun and verb."""
    lines = [INTRODUCTION, "## Exit status", "", "| status | meaning |", "|---|---|"]
    lines += [f"| {int(status)} | {meaning} |" for status, meaning in MEANINGS.items()]
    lines += ["", "A reader that closes the pipe early (`kctl consume orders | head`) is not an error.", ""]
    lines += _options(2, CLUSTER_PANEL, cluster_options()) + _options(2, OUTPUT_PANEL, output_options())
    lines += ["## Commands", "", "| command | what it does |", "|---|---|"]
    for noun, verbs in commands.items():
        for verb, command in verbs.items():
            lines.append(
                f"| [`{_name(noun, verb)}`](#{_name(noun, verb).replace(' ', '-')}) | {_cell(summary_of(command))} |"
            )
    for noun, verbs in commands.items():
        if noun not in verbs:
            lines += ["", f"## kctl {noun}", "", str(NOUNS[noun].summary)]
        for verb, command in verbs.items():
            lines += ["", f"{'##' if noun in verbs else '###'} {_name(noun, verb)}", "", *_command(noun, verb, command)]
    return "\n".join([*lines, ""])


def _command(noun: str, verb: str, command: Any) -> list[str]:
    summary, _, description = str(command.help).partition("\n\n")
    lines = ["```console", " ".join([f"$ {_name(noun, verb)}", *usage_pieces(command)]), "```", "", _prose(summary)]
    if description:
        lines += ["", _prose(description)]
    lines += ["", "```console", *(f"$ {example}" for example in examples_of(command)), "```"]
    for title, params in panels(command.own_params).items():
        lines += ["", *_options(4, title, params)[2:-1]]
    return lines


def _options(level: int, title: str, params: list[Parameter]) -> list[str]:
    head = "argument" if title == "Arguments" else "option"
    lines = [f"{'#' * level} {title}", "", f"| {head} | meaning |", "|---|---|"]
    return [*lines, *(f"| `{_cell(parameter_column(one))}` | {_cell(help_of(one))} |" for one in params), ""]


def _name(noun: str, verb: str) -> str:
    return f"kctl {noun}" if noun == verb else f"kctl {noun} {verb}"


def _prose(text: str) -> str:
    """Text of help as Markdown: names in angle brackets and asterisks stay literal."""
    return text.replace("<", "\\<").replace("*", "\\*").replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
