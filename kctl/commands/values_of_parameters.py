"""Checks the values of options and arguments before typer converts them, with kctl's error texts.

Every command line is checked, so that no command has to check an option for emptiness, for UTF-8 or for the range of
its number.
"""

from __future__ import annotations

from kctl.commands.parameters import Parameter, choices_of, completes, name_of, number_range
from kctl.errors import UsageError
from kctl.integers import parse_integer


def any_text(text: str) -> str:
    """The parser of an option whose value may be empty: `typer.Option(parser=any_text)`."""
    return text


def check(param: Parameter, given: object) -> None:
    """Check the values of a parameter.  Raises UsageError."""
    for text in given if isinstance(given, (list, tuple)) else [given]:
        if isinstance(text, str):
            _check_text(param, text)


def _check_text(param: Parameter, text: str) -> None:
    name = name_of(param)
    choices = choices_of(param)
    if choices and text not in choices:
        raise UsageError(f"invalid value for {name}: '{text}' is not one of {', '.join(choices)}.")
    if not text and getattr(param.type, "func", None) is not any_text:
        raise UsageError(f"{name} is empty; is a shell variable not set?")
    bounds = number_range(param)
    if bounds:
        parse_integer(text, name, low=bounds[0], high=bounds[1])
    if not completes(param):
        _check_unicode(text, name)


def _check_unicode(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not valid UTF-8: {text!a}") from None
