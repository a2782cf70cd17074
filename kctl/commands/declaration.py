"""How a command says what it takes: plain functions whose annotated parameters are its arguments and options.

    topics = Group("topics", "Create, look at, change and delete topics.")

    @topics.command("create", cluster=True, examples=("kctl topics create orders --partitions 6",))
    def create(
        run: Invocation,
        name: Annotated[str, Argument("Name of the topic.")],
        *,
        partitions: Annotated[int | None, Option("--partitions", metavar="N", help="...")] = None,
    ) -> ExitStatus: ...

The shape is typer's, but nothing here imports typer, whose import costs more than a whole `kctl topics list`.  Two
readers understand a declaration: `parsing` takes well-formed command lines at once, `typer_app` hands the rest on.
Parameter types: str, int, float, bool (a flag), each `| None`, and list[str] (an option or argument that repeats).
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kctl.integers import INT32_MAX

F = TypeVar("F", bound=Callable[..., int])


class Argument:
    """A positional parameter.  Everything is as for Option."""

    __slots__ = ("choices", "complete", "help", "maximum", "may_be_empty", "metavar", "minimum")

    def __init__(
        self,
        help: str,  # noqa: A002 - typer's word
        *,
        metavar: str | None = None,
        choices: Sequence[str] = (),
        complete: str = "",
        minimum: int = 0,
        maximum: int = INT32_MAX,
        may_be_empty: bool = False,
    ) -> None:
        self.help = help
        self.metavar = metavar or ("|".join(choices) if choices else None)
        self.choices = tuple(choices)
        self.complete = complete
        self.minimum = minimum
        self.maximum = maximum
        self.may_be_empty = may_be_empty


class Option:
    """A parameter given by name.

    `complete` tells completion scripts what a value is: "file" or "directory".  `minimum` and `maximum` bound a number;
    an empty text is refused unless it `may_be_empty`.
    """

    __slots__ = ("choices", "complete", "help", "maximum", "may_be_empty", "metavar", "minimum", "names")

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002 - typer's word
        metavar: str | None = None,
        choices: Sequence[str] = (),
        complete: str = "",
        minimum: int = 0,
        maximum: int = INT32_MAX,
        may_be_empty: bool = False,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar or ("|".join(choices) if choices else None)
        self.choices = tuple(choices)
        self.complete = complete
        self.minimum = minimum
        self.maximum = maximum
        self.may_be_empty = may_be_empty


class Parameter:
    """One parameter of a command with everything known about it."""

    __slots__ = ("declared", "default", "name", "repeats", "required", "type")

    def __init__(
        self,
        name: str,
        declared: Argument | Option,
        type_: type,
        *,
        repeats: bool = False,
        required: bool = False,
        default: Any = None,
    ) -> None:
        self.name = name
        self.declared = declared
        self.type = type_
        self.repeats = repeats
        self.required = required
        self.default = default

    @property
    def is_flag(self) -> bool:
        return self.type is bool

    @property
    def metavar(self) -> str:
        """What stands for the value in help."""
        if self.declared.metavar:
            return self.declared.metavar
        return (
            self.name.upper() if isinstance(self.declared, Argument) else {int: "N", float: "X"}.get(self.type, "TEXT")
        )


class Command:
    """One verb: the function that does it and what help says about it."""

    __slots__ = ("_parameters", "cluster", "description", "examples", "function", "name", "summary")

    def __init__(self, name: str, function: Callable[..., int], *, cluster: bool, examples: Sequence[str]) -> None:
        self.name = name
        self.function = function
        self.cluster = cluster
        self.examples = tuple(examples)
        summary, _, description = (function.__doc__ or "").strip().partition("\n")
        self.summary = summary.strip()
        self.description = "\n".join(line.removeprefix("    ") for line in description.strip("\n").splitlines()).strip()
        self._parameters: tuple[Parameter, ...] | None = None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The command's own parameters, without those that every command takes."""
        if self._parameters is None:
            self._parameters = tuple(_parameters_of(self.function))
        return self._parameters


class Group:
    """One noun and its verbs.  A noun that is a verb itself (`kctl produce`) has a single command of the same name."""

    __slots__ = ("commands", "help", "name")

    def __init__(self, name: str, help: str) -> None:  # noqa: A002 - typer's word
        self.name = name
        self.help = help
        self.commands: dict[str, Command] = {}

    @property
    def is_verb(self) -> bool:
        return list(self.commands) == [self.name]

    def command(self, name: str, *, cluster: bool = False, examples: Sequence[str] = ()) -> Callable[[F], F]:
        """Register the decorated function as `name`; `cluster` adds the options that say which cluster to talk to."""

        def register(function: F) -> F:
            self.commands[name] = Command(name, function, cluster=cluster, examples=examples)
            return function

        return register


def _parameters_of(function: Callable[..., int]) -> list[Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    names = list(hints)[1:]  # the first parameter is the invocation
    defaults = dict(function.__kwdefaults__ or {})
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults.update(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
    parameters = []
    for name in names:
        kind, declared = typing.get_args(hints[name])
        type_, repeats = _value_type(kind)
        required = name not in defaults
        parameters.append(
            Parameter(name, declared, type_, repeats=repeats, required=required, default=defaults.get(name))
        )
    return parameters


def _value_type(hint: Any) -> tuple[type, bool]:
    """str | None -> (str, False); list[str] | None -> (str, True)."""
    choices = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) is list:
        return choices[0], True
    if choices:
        return _value_type(choices[0])
    return hint, False
