"""Makes values of the texts of a command line, and refuses those that no command can mean.

Both readers of command lines end here, so that no command has to check an option for emptiness or for the range of its
number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from kctl.commands.declaration import Argument, Parameter
from kctl.errors import UsageError
from kctl.integers import parse_integer


def converted(parameters: Iterable[Parameter], values: dict[str, Any]) -> dict[str, Any]:
    """`values` by name with their texts made into what the parameters declare.  Raises UsageError."""
    made = dict(values)
    for parameter in parameters:
        value = values[parameter.name]
        if isinstance(value, str):
            made[parameter.name] = convert(parameter, value)
        elif isinstance(value, (list, tuple)):
            made[parameter.name] = [convert(parameter, text) for text in value]
    return made


def convert(parameter: Parameter, text: str) -> str | int | float:
    """The value that the text stands for.  Raises UsageError."""
    declared = parameter.declared
    name = name_of(parameter)
    if not text and not declared.may_be_empty:
        raise UsageError(f"{name} is empty; is a shell variable not set?")
    if parameter.type is int:
        return parse_integer(text, name, low=declared.minimum, high=declared.maximum)
    if parameter.type is float:
        return _number(text, name)
    if declared.complete not in {"file", "directory"}:
        _check_unicode(text, name)
    return text


def name_of(parameter: Parameter) -> str:
    """What the user knows it by."""
    declared = parameter.declared
    return parameter.metavar if isinstance(declared, Argument) else max(declared.names, key=len)


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or not text.isascii():
        raise UsageError(f"{name} is a number, not '{text}'")
    return number


def _check_unicode(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not valid UTF-8: {text!a}") from None
