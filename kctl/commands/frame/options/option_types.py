"""The types of options: each reads the text of its option once, and keeps it for messages and help.

    window: Annotated[Duration, typer.Option("--window", parser=Duration, help="...")] = Duration("5m")

An integer has its range in `typer.Option(min=1, max=100)`, and a choice is a Literal.  A value of these types is read
when typer reads the command line, and a mistake names the option: `LocalCommand` adds its name to the UsageError.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, ClassVar, Self

import typer

from kctl.admin.topics.offsets import OffsetSpec
from kctl.commands.frame.options.values import (
    Condition,
    parse_condition,
    parse_duration_ms,
    parse_offset,
    parse_pair,
    parse_partitions,
    parse_rate,
    parse_size,
    parse_time_ms,
)
from kctl.errors import UsageError
from kctl.output.quantities import property_value

_moment_ms: ContextVar[int] = ContextVar("moment_ms", default=0)


def set_moment(now_ms: int) -> None:
    """Begin a command line: the times on it are relative to this moment."""
    _moment_ms.set(now_ms)


def moment_ms() -> int:
    """Return the time to which `now` and `-1h` on the command line refer, in ms since 1970; 0 for a default."""
    return _moment_ms.get()


class _Number(int):
    """An integer that keeps the text which it was read from."""

    metavar: ClassVar[str]
    text: str
    """For messages and help; `str` of the value is the number."""

    def __new__(cls, text: str | Self) -> Self:
        """Read the text; a value that is read already stays as it is.  Raises UsageError."""
        if isinstance(text, cls):
            return text
        number = super().__new__(cls, cls.read(str(text)))
        number.text = str(text)
        return number

    @staticmethod
    def read(text: str) -> int:
        """Return the number in the text.  Raises UsageError."""
        raise NotImplementedError

    @classmethod
    def within(cls, least: str, most: str | None = None) -> Callable[[str | Self], Self]:
        """Return the parser of an option whose values have a range: `parser=Duration.within("100ms", "1h")`."""
        low, high = cls(least), None if most is None else cls(most)
        limits = f"at least {least}" if most is None else f"between {least} and {most}"

        def parse(text: str | Self) -> Self:
            value = cls(text)
            if value < low or (high is not None and value > high):
                raise UsageError(f"must be {limits}, not '{value.text}'")
            return value

        parse.metavar = cls.metavar  # type: ignore[attr-defined]  # help has it
        return parse


class Duration(_Number):
    """A length of time, in ms."""

    metavar = "DURATION"
    read = staticmethod(parse_duration_ms)


class SignedDuration(_Number):
    """A length of time, in ms, which is negative with a sign, as in Kafka's tools."""

    metavar = "DURATION"

    @staticmethod
    def read(text: str) -> int:
        """Return the milliseconds.  Raises UsageError."""
        return parse_duration_ms(text, may_be_negative=True)


class Time(_Number):
    """A time, in ms since 1970."""

    metavar = "TIME"

    @staticmethod
    def read(text: str) -> int:
        """Return the milliseconds.  Raises UsageError."""
        return parse_time_ms(text, now_ms=moment_ms())


class Size(_Number):
    """A number of bytes."""

    metavar = "SIZE"
    read = staticmethod(parse_size)


class Rate(_Number):
    """A number of bytes per second."""

    metavar = "BYTES_PER_S"
    read = staticmethod(parse_rate)


class Offset(OffsetSpec):
    """Where to start or stop in a partition."""

    metavar: ClassVar[str] = "OFFSET"
    text: str

    def __new__(cls, text: str | Self) -> Self:
        """Read the text; a value that is read already stays as it is.  Raises UsageError."""
        if isinstance(text, cls):
            return text
        offset = super().__new__(cls, *parse_offset(str(text), now_ms=moment_ms()))
        offset.text = str(text)
        return offset

    def __str__(self) -> str:
        return self.text


class Partitions(tuple[int, ...]):
    """Numbers of partitions, ascending."""

    metavar: ClassVar[str] = "N,N-N"
    __slots__ = ()

    def __new__(cls, text: str | Self) -> Self:
        """Read the text; a value that is read already stays as it is.  Raises UsageError."""
        return text if isinstance(text, cls) else super().__new__(cls, parse_partitions(str(text)) or ())

    def __str__(self) -> str:
        return ",".join(map(str, self))


class Pair(tuple[str, str]):
    """A name and its value, which may contain `=`; the option may be repeated."""

    metavar: ClassVar[str] = "NAME=VALUE"
    __slots__ = ()

    def __new__(cls, text: str | Self) -> Self:
        """Read the text; a value that is read already stays as it is.  Raises UsageError."""
        return text if isinstance(text, cls) else super().__new__(cls, parse_pair(str(text)))


class Property(Pair):
    """A property and its value, which may have a unit: `retention.ms=7d`, `segment.bytes=1 GiB`."""

    __slots__ = ()

    def __new__(cls, text: str | Self) -> Self:
        """Read the text; a value that is read already stays as it is.  Raises UsageError."""
        if isinstance(text, cls):
            return text
        name, value = parse_pair(str(text))
        return tuple.__new__(cls, (name, property_value(name, value)))


PropertiesToSet = Annotated[
    list[Property] | None,
    typer.Option("--set", parser=Property, help="Set a property, such as retention.ms=7d or segment.bytes=1GiB."),
]


def list_of(partitions: Partitions | None) -> list[int] | None:
    """Return the numbers as a list; None for all partitions."""
    return None if partitions is None else list(partitions)


def any_text(text: str) -> str:
    """Return the parser of an option whose value may be empty: `typer.Option(parser=any_text)`."""
    return text


LagCondition = Annotated[
    Condition | None,
    typer.Option(
        "--lag",
        metavar="CONDITION",
        parser=parse_condition,
        help="Only rows with this lag, such as '>1000' in records or '>5m' in time.",
    ),
]
