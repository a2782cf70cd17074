"""The man pages in packaging/man, generated from the typer commands: one for the program and one for each noun."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kctl.commands.exit_status import MEANINGS
from kctl.commands.help import examples_of, panels, parameter_column, summary_of, usage_pieces
from kctl.commands.options import cluster_options, output_options
from kctl.commands.parameters import Parameter, flags_of, help_of
from kctl.commands.query import query_options
from kctl.commands.root import NOUNS, app

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
    """The text of each page by the name of its file, from the commands by noun and verb."""
    pages = {"kctl.1": _page(_program())}
    for noun, verbs in commands.items():
        pages[f"kctl-{noun}.1"] = _page(_noun(noun, verbs))
    return pages


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
        yield "".join(f"\\fB{_text(one)}\\fR" if number % 2 else _text(one) for number, one in enumerate(pieces))


def _name(noun: str, verb: str) -> str:
    return f"kctl {noun}" if noun == verb else f"kctl {noun} {verb}"


def _text(text: str) -> str:
    """Text for roff, with leading dots and quotation marks escaped."""
    escaped = text.translate(_ESCAPES)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
