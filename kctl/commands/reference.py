"""docs/reference/cli.md, made from the same declarations and by the same words as --help."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.commands.catalog import NOUNS
from kctl.commands.declaration import Group
from kctl.commands.exit_status import MEANINGS
from kctl.commands.help import command_help, option_column, parameter_help, usage
from kctl.commands.options import CLUSTER_OPTIONS, OUTPUT_OPTIONS

INTRODUCTION = """\
# Command line

<!-- Made by `./dev docs` from the declarations of the commands: change those. -->

    kctl NOUN [VERB] [ARGUMENTS] [OPTIONS]

`kctl NOUN --help` and `kctl NOUN VERB --help` print what stands here.  Options may stand anywhere in the line.

## What holds for every command

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


def cli_reference(groups: Mapping[str, Group]) -> str:
    """The whole page."""
    lines = [INTRODUCTION, "## Exit status", "", "| status | meaning |", "|---|---|"]
    lines += [f"| {int(status)} | {meaning} |" for status, meaning in MEANINGS.items()]
    lines += ["", "A reader that closes the pipe early (`kctl consume orders | head`) is no error.", ""]
    for title, options in (("Cluster options", CLUSTER_OPTIONS), ("Output options", OUTPUT_OPTIONS)):
        lines += [f"## {title}", "", "| option | meaning |", "|---|---|"]
        lines += [f"| `{_cell(option_column(option))}` | {_cell(parameter_help(option))} |" for option in options]
        lines.append("")
    lines += ["## Commands", "", "| command | what it does |", "|---|---|"]
    for group in groups.values():
        for command in group.commands.values():
            name = usage(group, command).removesuffix(" [OPTIONS]")
            lines.append(f"| `{_cell(name)}` | {_cell(command.summary)} |")
    for noun, group in groups.items():
        lines += ["", f"## kctl {noun}", "", NOUNS[noun][1]]
        for command in group.commands.values():
            if not group.is_verb:
                lines += ["", f"### kctl {noun} {command.name}"]
            lines += ["", "```text", _without_common_parts(command_help(group, command)), "```"]
    return "\n".join([*lines, ""])


def _without_common_parts(text: str) -> str:
    """Help without the options and statuses that stand at the top of the page."""
    for title in ("Cluster options:", "Output options:", "Exit status:"):
        text = text.partition(f"\n{title}\n")[0]
    return text.strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
