"""Reads well-formed command lines at once; anything else is None and goes to typer, which knows how to complain.

It accepts a strict subset of what typer accepts and gives the same values for it; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kctl.commands.conversion import converted
from kctl.commands.declaration import Argument, Command, Parameter
from kctl.commands.options import all_parameters, flags_of
from kctl.errors import UsageError


def parse(command: Command, words: Sequence[str]) -> dict[str, Any] | None:
    """The values of the command's parameters by name, or None when the line is not plainly right."""
    parameters = all_parameters(command)
    by_flag = {flag: parameter for parameter in parameters for flag in flags_of(parameter)}
    given: dict[str, list[str]] = {}
    positional: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            positional.extend(rest)
        elif not word.startswith("-") or word == "-":
            positional.append(word)
        else:
            flag, equals, value = word.partition("=")
            parameter = by_flag.get(flag)
            if parameter is None or (parameter.is_flag and equals):
                return None
            if not equals and not parameter.is_flag:
                following = next(rest, None)
                if following is None or (following.startswith("-") and following != "-"):
                    return None  # typer may read `-5` as a value; let it decide
                value = following
            given.setdefault(parameter.name, []).append(value)
    return _values(parameters, given) if _take_positional(parameters, positional, given) else None


def _take_positional(parameters: Sequence[Parameter], words: Sequence[str], given: dict[str, list[str]]) -> bool:
    """Hand `words` to the arguments in order; a repeating argument is the last and takes what is left."""
    remaining = list(words)
    for parameter in parameters:
        if not isinstance(parameter.declared, Argument) or not remaining:
            continue
        count = len(remaining) if parameter.repeats else 1
        given[parameter.name] = remaining[:count]
        del remaining[:count]
    return not remaining


def _values(parameters: Sequence[Parameter], given: dict[str, list[str]]) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    for parameter in parameters:
        texts = given.get(parameter.name)
        if texts is None:
            if parameter.required:
                return None
            values[parameter.name] = parameter.default
        elif parameter.is_flag:
            values[parameter.name] = True
        else:
            choices = parameter.declared.choices
            if choices and any(text not in choices for text in texts):
                return None
            values[parameter.name] = texts if parameter.repeats else texts[-1]
    try:
        return converted(parameters, values)
    except UsageError:
        return None
