"""Types of Kafka's client properties: each checks a text as Kafka's ConfigDef does, and returns its value.  Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from kctl.errors import UsageError
from kctl.output.quantities import INT16_MAX, INT32_MAX, INT64_MAX, parse_integer
from kctl.records.compression import LEVELS, Codec

Parse = Callable[[str], Any]
"""The value of a text.  Raises UsageError."""

BY_DURATION = "by_duration:"
_ISO_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60
_NANO_DIGITS = 9


def integer(low: int = -INT32_MAX - 1) -> Parse:
    """Kafka's INT."""
    return lambda text: parse_integer(text, "the value", low=low, high=INT32_MAX)


def level(codec: Codec) -> Parse:
    """Return a compression level; None for -1 of gzip, which is the default.  KIP-390."""
    lowest, highest = LEVELS[codec]

    def parse(text: str) -> int | None:
        if codec is Codec.GZIP and text.strip() == "-1":
            return None
        return parse_integer(text, "the value", low=lowest, high=highest)

    return parse


def long_integer(low: int = -INT64_MAX - 1) -> Parse:
    """Kafka's LONG."""
    return lambda text: parse_integer(text, "the value", low=low, high=INT64_MAX)


def short_integer(high: int = INT16_MAX) -> Parse:
    """Kafka's SHORT from 0 to `high`."""
    return lambda text: parse_integer(text, "the value", low=0, high=high)


def decimal(low: float = -math.inf, high: float = math.inf) -> Parse:
    """Kafka's DOUBLE."""

    def parse(text: str) -> float:
        try:
            number = float(text) if text.isascii() and "_" not in text else math.nan
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            raise UsageError(
                "the value is a number" if low == -math.inf else f"the value is a number from {low} to {high}"
            )
        return number

    return parse


def text(value: str) -> str:
    """Kafka's STRING, PASSWORD and CLASS."""
    return value


def non_empty(value: str) -> str:
    """Return a STRING that must not be empty."""
    if not value:
        raise UsageError("must not be empty")
    return value


def names(value: str) -> tuple[str, ...]:
    """Kafka's LIST."""
    return tuple(name for name in (part.strip() for part in value.split(",")) if name)


def switch(value: str) -> bool:
    """Kafka's BOOLEAN."""
    if value.lower() not in {"true", "false"}:
        raise UsageError("use true or false")
    return value.lower() == "true"


def one_of(*values: str, ignores_case: bool = False) -> Parse:
    """One of these words; the result is as they are written here."""

    def parse(value: str) -> str:
        for word in values:
            if value == word or (ignores_case and value.lower() == word.lower()):
                return word
        raise UsageError(f"use {', '.join(values[:-1])} or {values[-1]}" if len(values) > 1 else f"use {values[0]}")

    return parse


def only(accepted: Mapping[str, Any], parse: Parse, remedy: str) -> Parse:
    """Return a type of which kctl implements these values only; `remedy` is in the error for others that are valid in
    Kafka.

    The names of Java classes are compared without their packages.
    """

    def parse_accepted(value: str) -> Any:
        parse(value)
        simple = value.rpartition(".")[2] if parse is text else value
        if simple.lower() not in {name.lower() for name in accepted}:
            raise UsageError(remedy)
        return next(meaning for name, meaning in accepted.items() if name.lower() == simple.lower())

    return parse_accepted


def refused(remedy: str, parse: Parse = text) -> Parse:
    """Return a property that kctl does not implement, so that only an empty value is accepted."""

    def parse_refused(value: str) -> None:
        if value:
            parse(value)
            raise UsageError(remedy)

    return parse_refused


def acks(value: str) -> str:
    """Return the producer's acks; -1 is all."""
    return "all" if one_of("all", "-1", "0", "1")(value) == "-1" else value


def offset_reset(value: str) -> str:
    """Return the consumer's auto.offset.reset, with the durations of KIP-1106."""
    if value[: len(BY_DURATION)].lower() == BY_DURATION:
        iso_duration_ms(value[len(BY_DURATION) :])
        return BY_DURATION + value[len(BY_DURATION) :]
    return str(one_of("latest", "earliest", "none", f"{BY_DURATION}PnDTnHnMn.nS", ignores_case=False)(value))


def iso_duration_ms(value: str) -> int:
    """Return the milliseconds of a duration as java.time.Duration reads it, such as PT1H30M or P1D.

    Raises UsageError.
    """
    found = _ISO_DURATION.fullmatch(value)
    if found is None or not any(found[part] for part in (2, 4, 5, 6)) or (found[3] or "x").upper() == "T":
        raise UsageError(f"'{value}' is not a duration such as PT1H30M or P1D")
    days, hours, minutes, seconds = (int(found[part] or 0) for part in (2, 4, 5, 6))
    sign = -1 if (found[6] or "").startswith("-") else 1
    nanos = sign * int((found[7] or "").ljust(_NANO_DIGITS, "0"))
    whole_s = days * _DAY_S + hours * _HOUR_S + minutes * _MINUTE_S + seconds
    total_ms = (whole_s * 1000 + nanos // 1_000_000) * (-1 if found[1] == "-" else 1)
    if not 0 <= total_ms <= INT64_MAX:
        raise UsageError(f"the duration '{value}' must not be negative" if total_ms < 0 else f"'{value}' is too long")
    return total_ms
