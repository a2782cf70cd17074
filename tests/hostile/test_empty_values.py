"""Empty option values, as from an unset shell variable, are refused before anything is done."""

from __future__ import annotations

from kctl.commands.frame.command import LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.options.parameters import (
    Parameter,
    choices_of,
    is_argument,
    is_flag,
    name_of,
    number_range,
)
from kctl.commands.frame.root import all_commands
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.conftest import kctl as kctl  # noqa: PLC0414 - a fixture

MAY_BE_EMPTY = {("produce", "key"), ("produce", "null_marker"), ("consume", "null_marker"), ("dump-log", "key")}
"""Keys can be empty, and an empty line can represent null."""


def parameters() -> list[tuple[str, LocalCommand, Parameter]]:
    return [
        (noun, command, parameter)
        for noun, verbs in all_commands().items()
        for command in verbs.values()
        for parameter in command.params
        if not is_flag(parameter) and (command.name, parameter.name) not in MAY_BE_EMPTY
    ]


def valid_text(parameter: Parameter) -> str:
    if choices := choices_of(parameter):
        return choices[0]
    return "1" if number_range(parameter) or parameter.type.name in {"int", "int range"} else "x"


@for_rows("noun, command, tried", parameters)
def test_every_option_and_argument_refuses_an_empty_text(
    kctl: Kctl, noun: str, command: LocalCommand, tried: Parameter
) -> None:
    words = [noun] if noun == command.name else [noun, command.name]
    positional = []
    for parameter in command.own_params:
        if is_argument(parameter):
            if parameter is tried or parameter.required:
                positional.append("" if parameter is tried else valid_text(parameter))
        elif parameter.required and parameter is not tried:
            words.append(f"{parameter.opts[0]}={valid_text(parameter)}")
    if not is_argument(tried):
        words.append(f"{name_of(tried)}=")
    ran = kctl("", *words, "--", *positional)
    assert ran.status == ExitStatus.USAGE
    expected = "is not one of" if choices_of(tried) else f"{name_of(tried)} is empty; is a shell variable not set?"
    assert expected in ran.err


@for_rows(
    "line, words",
    [
        ("topics list --bootstrap-server :9092", "':9092' is not an address"),
        ("topics list --bootstrap-server []:9092", "'[]:9092' is not an address"),
        ("topics list --bootstrap-server ,", "names no host"),
        ("broker zookeeper-ls / --zookeeper :2181", "':2181' is not an address"),
        ("broker zookeeper-ls / --zookeeper a..b:2181/kafka", "'a..b:2181' is not an address"),
        ("broker zookeeper-ls / --zookeeper /kafka", "names no host"),
        ("broker zookeeper-ls / --zookeeper @", "is given with a user or a password (@)"),
        ("broker zookeeper-ls / --zookeeper a?b", "'a?b' is not an address"),
        ("topics create x --set =1", "--set: '=1' is not NAME=VALUE"),
        ("configs alter topic x --set =1", "--set: '=1' is not NAME=VALUE"),
        ("produce x --header =1", "--header: '=1' is not NAME=VALUE"),
        ("groups reset-offsets x --topic :0 --to-earliest --dry-run", "names no topic"),
        ("transactions abort :0 --start-offset 1", "is not a partition"),
        ("topics create x --replica-assignment 1:,2", "a broker in '1:,2'"),
    ],
)
def test_empty_parts_of_a_text_are_refused(kctl: Kctl, line: str, words: str) -> None:
    ran = kctl(line)
    assert (ran.status, words in ran.err) == (ExitStatus.USAGE, True), ran.err


def test_a_blank_name_of_a_property_is_refused(kctl: Kctl) -> None:
    ran = kctl("topics create x --set", " =1")
    assert (ran.status, "--set: ' =1' is not NAME=VALUE" in ran.err) == (ExitStatus.USAGE, True)


def test_an_argument_that_is_not_utf8_is_refused(kctl: Kctl) -> None:
    """As Python decodes it on the command line."""
    ran = kctl("topics describe", "\udcff")
    assert (ran.status, "TOPIC is not valid UTF-8" in ran.err) == (ExitStatus.USAGE, True)
