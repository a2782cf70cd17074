"""The words of a command that a shell completes: members of a noun, options, arguments, and kinds of their values.

As text they are lines with tabs between the fields, so that completion needs neither typer nor json to read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Values(NamedTuple):
    """What completes the value of an option or argument."""

    kind: str = ""
    """`files`, `directories`, `choices`, or a kind of names such as `topics`; empty if nothing does."""
    choices: tuple[str, ...] = ()
    is_list: bool = False
    """True if commas separate values."""


class Option(NamedTuple):
    """An option of a command."""

    flags: tuple[str, ...]
    values: Values | None
    """None if it takes no value."""
    help: str


class Argument(NamedTuple):
    """An argument of a command."""

    values: Values
    repeats: bool


class Vocabulary(NamedTuple):
    """The words of a command, a noun, or the program."""

    members: tuple[tuple[str, str], ...] = ()
    """Nouns or verbs, each with its summary."""
    options: tuple[Option, ...] = ()
    arguments: tuple[Argument, ...] = ()


def format_vocabulary(vocabulary: Vocabulary) -> str:
    """Return the text that `parse_vocabulary` reads."""
    lines: list[Iterable[str]] = [("member", name, summary) for name, summary in vocabulary.members]
    lines += [
        ("option", " ".join(option.flags), "", "", "", option.help)
        if option.values is None
        else ("option", " ".join(option.flags), *_fields(option.values), option.help)
        for option in vocabulary.options
    ]
    lines += [
        ("argument", *_fields(argument.values), "repeats" if argument.repeats else "")
        for argument in vocabulary.arguments
    ]
    return "".join("\t".join(" ".join(field.split()) for field in line) + "\n" for line in lines)


def parse_vocabulary(text: str) -> Vocabulary:
    """Read the text of `format_vocabulary`.  Raises ValueError for another text."""
    members, options, arguments = [], [], []
    for line in text.splitlines():
        match line.split("\t"):
            case ["member", name, summary]:
                members.append((name, summary))
            case ["option", flags, "", _, _, help_]:
                options.append(Option(tuple(flags.split()), None, help_))
            case ["option", flags, *fields, help_]:
                options.append(Option(tuple(flags.split()), _values(fields), help_))
            case ["argument", *fields, repeats]:
                arguments.append(Argument(_values(fields), bool(repeats)))
            case _:
                raise ValueError(f"not a line of a vocabulary: {line!r}")
    return Vocabulary(tuple(members), tuple(options), tuple(arguments))


def _fields(values: Values) -> tuple[str, str, str]:
    return values.kind or "none", " ".join(values.choices), "list" if values.is_list else ""


def _values(fields: list[str]) -> Values:
    kind, choices, is_list = fields
    return Values("" if kind == "none" else kind, tuple(choices.split()), bool(is_list))
