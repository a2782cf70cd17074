"""Properties of a parameter of a typer command, for help, completion scripts, the reference and checks.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Parameter = Any
"""A TyperOption or TyperArgument; the module of their base class depends on the version of typer."""


def is_argument(param: Parameter) -> bool:
    """True for a positional parameter."""
    return bool(param.param_type_name == "argument")


def is_flag(param: Parameter) -> bool:
    """True for an option without a value."""
    return bool(getattr(param, "is_flag", False))


def flags_of(param: Parameter) -> tuple[str, ...]:
    """`-n`, `--max-records`; empty for an argument."""
    return () if is_argument(param) else tuple(sorted(param.opts, key=lambda flag: flag.startswith("--")))


def choices_of(param: Parameter) -> tuple[str, ...]:
    """The values that a parameter is limited to; empty when it is not."""
    return tuple(getattr(param.type, "choices", ()))


def number_range(param: Parameter) -> tuple[int, int] | None:
    """The least and greatest value of an integer; None for other types."""
    low, high = getattr(param.type, "min", None), getattr(param.type, "max", None)
    return None if low is None or high is None else (low, high)


def words_of(params: Iterable[Parameter], values: Mapping[str, Any]) -> list[str]:
    """The words of a command line with these values by name; parameters with their default are left out."""
    words: list[str] = []
    for param in params:
        value = values.get(str(param.name))
        if value is None or (not is_argument(param) and value == param.default):
            continue
        if is_flag(param):
            words += flags_of(param)[-1:] if value else []
            continue
        for one in value if isinstance(value, (list, tuple)) else (value,):
            words += [str(one)] if is_argument(param) else [flags_of(param)[-1], str(one)]
    return words


def repeats(param: Parameter) -> bool:
    """True if it may be given more than once."""
    return bool(param.nargs == -1 or getattr(param, "multiple", False))


def metavar_of(param: Parameter) -> str:
    """The placeholder of the value in help."""
    if param.metavar:
        return str(param.metavar)
    if choices_of(param):
        return "|".join(choices_of(param))
    if is_argument(param):
        return str(param.name).upper()
    return "N" if number_range(param) else "TEXT"


def completes(param: Parameter) -> str:
    """ "file" or "directory" if a shell should complete paths, as the metavar implies; else empty."""
    return {"FILE": "file", "FILE[,...]": "file", "DIR": "directory"}.get(metavar_of(param), "")


_NAMES = {
    "TOPIC": "topics",
    "TOPIC[:N,N-N]": "topics",
    "TOPIC:PARTITION": "topics",
    "SRC": "topics",
    "DST": "topics",
    "GROUP": "groups",
    "GROUP[,...]": "groups",
    "BROKER": "brokers",
    "USER": "users",
    "TRANSACTIONAL_ID": "transactions",
    "PROFILE": "profiles",
}
"""Kinds of names by the metavar."""


def completes_names(param: Parameter) -> str:
    """The kind of names that a shell completes (kctl.commands.name_cache); "resources" depends on the type before."""
    if choices_of(param):
        return ""
    if param.name in {"broker", "brokers", "to_brokers"}:
        return "brokers"
    if param.name == "names" and metavar_of(param) == "NAME":
        return "resources"
    return _NAMES.get(metavar_of(param), "")


def name_of(param: Parameter) -> str:
    """The name in error messages: the longest flag, or the metavar of an argument."""
    return metavar_of(param) if is_argument(param) else max(param.opts, key=len)


def help_of(param: Parameter) -> str:
    """Its help, whether it is required or repeatable, and its default."""
    text = str(param.help)
    if param.required and not is_argument(param):
        text += "  Required."
    if repeats(param) and not is_argument(param):
        text += "  May be repeated."
    if not is_flag(param) and not repeats(param) and param.default not in {None, ""}:
        text += f"  Default: {param.default}."
    return text
