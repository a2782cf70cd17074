"""What is generated from the commands when the distribution is built, and by `./dev docs`: man pages, the reference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kctl.commands.frame.exit_status import MEANINGS
from kctl.commands.frame.help.text import examples_of, panels, parameter_column, summary_of, usage_pieces
from kctl.commands.frame.options.parameters import (
    CLUSTER_PANEL,
    OUTPUT_PANEL,
    QUERY_PANEL,
    Parameter,
    cluster_options,
    flags_of,
    help_of,
    output_options,
    query_options,
)
from kctl.commands.frame.root import NOUNS, all_commands, app

# Man pages: one for the program and one for each noun.


ENVIRONMENT = {
    "KCTL_BOOTSTRAP_SERVER": "Brokers to connect to first, where --bootstrap-server is not given.",
    "KCTL_COMMAND_CONFIG": "Properties file with client settings, where --command-config is not given.",
    "NO_COLOR": "If it is set and not empty, no colours.",
    "COLUMNS": "Width of a terminal, instead of the width that it reports.",
    "XDG_STATE_HOME": "Folder of the backups of committed offsets, by default ~/.local/state.",
}
_ESCAPES = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})
_CODE = re.compile(r"`([^`]+)`")


def man_pages(commands: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the text of each page by the name of its file, from the commands by noun and verb."""
    pages = {"kctl.1": _page(_program())}
    for noun, verbs in commands.items():
        pages[f"kctl-{noun}.1"] = _page(_noun(noun, verbs))
    return pages


def write_man_pages(folder: Path) -> None:
    """Write all man pages into a folder, which is made if it does not exist.  Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in man_pages(all_commands()).items():
        (folder / name).write_text(text, encoding="utf-8")


def _page(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _head(name: str, summary: str) -> Iterator[str]:
    yield f'.TH "{_text(name.upper())}" "1" "" "kctl" "kctl"'
    yield ".SH NAME"
    yield f"{_text(name)} \\- {_text(summary.removesuffix('.'))}"


def _program() -> Iterator[str]:
    summary, _, description = str(app.info.help).partition("\n\n")
    yield from _head("kctl", summary)
    yield from (".SH SYNOPSIS", f".B kctl\n{_text('NOUN [VERB] [ARGUMENTS] [OPTIONS]')}")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(description)
    yield ".SH COMMANDS"
    for noun, member in NOUNS.items():
        yield from _tagged(f".BR {_text(f'kctl-{noun}')} (1)", str(member.summary))
    yield ".SH OPTIONS"
    yield "Every command has the output options, every command that connects to a cluster the cluster options,"
    yield "and every command that lists something the options of lists."
    for title, params in panels([*cluster_options(), *output_options(), *query_options()]).items():
        yield from _options(title, params)
    yield from _tail(dict.fromkeys(f"kctl-{noun}" for noun in NOUNS))


def _noun(noun: str, verbs: Mapping[str, Any]) -> Iterator[str]:
    yield from _head(f"kctl-{noun}", str(NOUNS[noun].summary))
    yield ".SH SYNOPSIS"
    for number, (verb, command) in enumerate(verbs.items()):
        if number:
            yield ".br"
        yield f".B {_text(_name(noun, verb))}"
        yield _text(" ".join(usage_pieces(command)))
    for verb, command in verbs.items():
        yield f'.SH "{_text(_name(noun, verb).upper())}"'
        yield from _paragraphs(summary_of(command))
        _, _, description = str(command.help or "").partition("\n\n")
        yield from _paragraphs(description)
        for title, params in panels(command.own_params).items():
            yield from _options(title, params)
        if examples_of(command):
            yield ".SS Examples"
            yield ".nf"
            yield from (f"{_text(example)}" for example in examples_of(command))
            yield ".fi"
    yield from _tail(["kctl"])


def _tail(see_also: Iterable[str]) -> Iterator[str]:
    yield '.SH "EXIT STATUS"'
    for status, meaning in MEANINGS.items():
        yield from _tagged(f".B {int(status)}", f"{meaning[:1].upper()}{meaning[1:]}.")
    yield ".SH ENVIRONMENT"
    for name, meaning in ENVIRONMENT.items():
        yield from _tagged(f".B {name}", meaning)
    yield '.SH "SEE ALSO"'
    *names, last = see_also
    yield from (f".BR {_text(name)} (1)," for name in names)
    yield f".BR {_text(last)} (1)"


def _options(title: str, params: Iterable[Parameter]) -> Iterator[str]:
    yield f'.SS "{_text(title)}"'
    for param in params:
        column = parameter_column(param)
        flags = ", ".join(flags_of(param))
        value = column.removeprefix(flags).strip()
        tag = f'.BI "{_text(flags)} " "{_text(value)}"' if flags else f'.I "{_text(value)}"'
        yield from _tagged(tag, help_of(param))


def _tagged(tag: str, text: str) -> Iterator[str]:
    yield from (".TP", tag, _text(text))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in filter(None, text.split("\n\n")):
        yield ".PP"
        pieces = _CODE.split(" ".join(paragraph.split()))
        yield "".join(f"\\fB{_text(piece)}\\fR" if number % 2 else _text(piece) for number, piece in enumerate(pieces))


def _name(noun: str, verb: str) -> str:
    return f"kctl {noun}" if noun == verb else f"kctl {noun} {verb}"


def _text(text: str) -> str:
    """Return the text for roff, with leading dots and quotation marks escaped."""
    escaped = text.translate(_ESCAPES)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


# The reference of the command line, cli.md.


INTRODUCTION = """\
# Command line

<!-- Generated from the commands in kctl/commands: change those. -->

    kctl NOUN [VERB] [ARGUMENTS] [OPTIONS]

`kctl NOUN --help` and `kctl NOUN VERB --help` print the same text.  Options may be anywhere on the command line.

## Rules for every command

- Data goes to stdout, everything else to stderr.
- `--format table` is the default on a terminal, `plain` everywhere else.  `table` is for people and may change; the
  others are for programs: columns and fields are added, but neither renamed nor removed.
  [Output for scripts](../output.md) describes the formats and what is stable.
- `plain` has one row per line and tabs between columns, and no line of titles unless `--header` is given.  Null and
  empty lists are `-`, an empty string is `""`; texts that look like these two are `\\x2d` and `\\x22\\x22`.  Headers of
  records are `name=value` joined by commas, `name` alone where the value is null; commas within are `\\x2c`.
- Names, keys, values and messages cannot control the terminal.  Control and invisible format characters, line
  separators and bytes that are not UTF-8 are escaped: in `table` and `plain` as `\\t`, `\\n`, `\\xNN`, `\\uNNNN` or
  `\\UNNNNNNNN`, and a backslash as `\\\\`; in `json`, `jsonl` and `yaml` as `\\uNNNN`.  `--compat` and
  `kctl broker zookeeper-get` write the bytes unchanged, except to a terminal.
- A table fits the terminal: cells wrap between words, and rows that do not fit become blocks of one line per column.
  In a pipe or file, the length of lines is not limited.
- `json` is exactly one document, also when the command fails:
  `{"error": {"code": ..., "message": ..., "retryable": ...}}`.  An empty list is `[]`.  `jsonl` is one object per line.
  `yaml` is the document of `json` as YAML.
- `csv` has the rows of `plain` as RFC 4180 describes, always with a header of the names in JSON.  Null is empty.
- Rows about items that can fail independently end with `error`, the name of a Kafka error, and `message`.  Both are
  empty on success.  The exit status is 1 if any row has an error.
- Times are shown as RFC 3339 in UTC, and in JSON also as milliseconds since the epoch; times that are given without a
  zone are UTC.
- Commands that delete or overwrite data ask for confirmation.  Without a terminal they require `--yes`, and exit with
  status 5 if it is missing.
- The precedence of settings is: option, environment (`KCTL_BOOTSTRAP_SERVER`, `KCTL_COMMAND_CONFIG`), the file of
  `--command-config`, default.
"""


def cli_reference(commands: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the whole page, from the commands by noun and verb."""
    lines = [INTRODUCTION, "## Exit status", "", "| status | meaning |", "|---|---|"]
    lines += [f"| {int(status)} | {meaning} |" for status, meaning in MEANINGS.items()]
    lines += ["", "A reader that closes the pipe early (`kctl consume orders | head`) is not an error.", ""]
    lines += _options_table(2, CLUSTER_PANEL, cluster_options()) + _options_table(2, OUTPUT_PANEL, output_options())
    lines += _options_table(2, QUERY_PANEL, query_options())
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
        lines += ["", *_options_table(4, title, params)[2:-1]]
    return lines


def _options_table(level: int, title: str, params: list[Parameter]) -> list[str]:
    head = "argument" if title == "Arguments" else "option"
    lines = [f"{'#' * level} {title}", "", f"| {head} | meaning |", "|---|---|"]
    return [*lines, *(f"| `{_cell(parameter_column(param))}` | {_cell(help_of(param))} |" for param in params), ""]


def _prose(text: str) -> str:
    """Return the text of help as Markdown: names in angle brackets and asterisks stay literal."""
    return text.replace("<", "\\<").replace("*", "\\*").replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
