"""Checks the values of options and arguments before typer converts them, with kctl's error texts.

Every command line is checked, so that no command has to check an option for emptiness, for UTF-8 or for the range of
its number, and that an error in a size, a duration, a time or an offset names the option.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kctl.commands.parameters import Parameter, choices_of, completes, metavar_of, name_of, number_range
from kctl.errors import UsageError
from kctl.integers import parse_integer

_SIGNED = "--by-duration"
"""The option whose duration may be negative, as in Kafka's tool."""


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
    read = _reader(metavar_of(param), name)
    if read is not None:
        try:
            read(text)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None


def _check_unicode(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not valid UTF-8: {text!a}") from None


def _reader(metavar: str, name: str) -> Callable[[str], object] | None:
    """The function that reads such a value and raises UsageError; None if its command reads it."""
    from kctl.commands import times, values  # noqa: PLC0415 - few options have such values

    now_ms = round(time.time() * 1000)
    match metavar:
        case "SIZE":
            return values.parse_size
        case "BYTES_PER_S":
            return values.parse_rate
        case "DURATION" | "[DURATION]":
            return lambda text: times.parse_duration_ms(text, may_be_negative=name == _SIGNED)
        case "TIME":
            return lambda text: times.parse_time_ms(text, now_ms=now_ms)
        case "OFFSET":
            return lambda text: values.parse_offset(text, now_ms=now_ms)
        case "N,N-N":
            return values.parse_partitions
    return None
