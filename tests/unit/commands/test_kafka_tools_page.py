"""docs/kafka-tools.md has every option of Kafka's tools, and the commands and options of kctl that it names exist."""

from __future__ import annotations

import re

import pytest

from docs.reference.generate import NONE, equivalent_row, kafka_options, kctl_equivalents
from kctl.commands.frame.options.parameters import cluster_options, flags_of, output_options, query_options
from kctl.commands.frame.root import all_commands

_COMMANDS = re.compile(r"`(kctl [^`]+)`")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def flags_by_command() -> dict[str, set[str]]:
    """The options of each command; a noun has those of all its verbs, and `NOUN VERB` those of all commands."""
    common = {flag for param in (*cluster_options(), *output_options(), *query_options()) for flag in flags_of(param)}
    found = {"": {"--version"}, "NOUN VERB": common | {"--help"}}
    for noun, verbs in all_commands().items():
        for verb, command in verbs.items():
            flags = {flag for param in command.own_params for flag in flags_of(param)} | common
            found[f"{noun} {verb}"] = flags
            found.setdefault(noun, set()).update(flags)
    return found


TEXTS = kctl_equivalents()
FLAGS = flags_by_command()


def problems_of(line: str) -> list[str]:
    """The command of a line, or those of its options, that do not exist."""
    words = line.split()[1:]
    names = [word for word in words[:2] if not word.startswith("-")]
    command = next((" ".join(names[:length]) for length in (2, 1) if " ".join(names[:length]) in FLAGS), None)
    if command is None:
        return [line]
    return [flag for flag in _FLAG.findall(line) if flag not in FLAGS[command]]


def test_every_option_has_a_row_and_every_row_an_option() -> None:
    rows = {option: equivalent_row(option.tool, option.option) for option in kafka_options()}
    assert [option for option, row in rows.items() if row is None] == []
    assert set(TEXTS) == set(rows.values())


def test_named_commands_and_options_exist() -> None:
    problems = {
        row: [problem for line in lines_in(text) for problem in problems_of(line)] for row, text in TEXTS.items()
    }
    assert {row: found for row, found in problems.items() if found} == {}


def lines_in(text: str) -> list[str]:
    """The command lines in a row; an option in the remark, outside of backticks, is of the command before it."""
    lines: list[str] = _COMMANDS.findall(text)
    if not text.startswith(NONE):
        command, _, remark = text.partition("; ")
        assert command.startswith("kctl ")
        name = _FLAG.split(command)[0]
        lines += [command, *(f"{name} {flag}" for flag in _FLAG.findall(re.sub(r"`[^`]*`", "", remark)))]
    return lines


@pytest.mark.parametrize("line", ["kctl topic list", "kctl topics list --zookeeper", "kctl groups --no-such"])
def test_what_does_not_exist_is_found(line: str) -> None:
    assert problems_of(line) != []
