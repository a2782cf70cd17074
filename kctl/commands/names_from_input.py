"""`-` in a list of names: the names are read from standard input, one per line.

A topic or group can have the name `-`: it is written `+-`, and further `+` before it are part of the name.
"""

from __future__ import annotations

from kctl.commands.parameters import Parameter, completes, is_argument, metavar_of, repeats
from kctl.errors import UsageError
from kctl.input_files import STANDARD_INPUT, read_input
from kctl.limits import NAMES_FROM_INPUT_MAX


def takes_names(param: Parameter) -> bool:
    """True for an argument that takes any number of names, which are not those of files."""
    return is_argument(param) and repeats(param) and not completes(param) and not metavar_of(param).startswith("T:P")


def with_names_from_input(names: list[str] | None) -> list[str] | None:
    """The names, with those of standard input in place of `-`.  Raises UsageError and OSError."""
    if not names or STANDARD_INPUT not in names:
        return names if names is None else [_literal(name) for name in names]
    if names.count(STANDARD_INPUT) > 1:
        raise UsageError("- is given twice; standard input can be read once")
    position = names.index(STANDARD_INPUT)
    before, after = names[:position], names[position + 1 :]
    return [*map(_literal, before), *_names_from_input(), *map(_literal, after)]


def _literal(name: str) -> str:
    """The name that an argument other than `-` gives."""
    return name[1:] if name.startswith("+") and name.lstrip("+") == STANDARD_INPUT else name


def _names_from_input() -> list[str]:
    """The lines without surrounding spaces, except empty ones.  Raises UsageError if there are none."""
    try:
        lines = read_input(STANDARD_INPUT).decode().splitlines()
    except UnicodeDecodeError:
        raise UsageError("- reads names from standard input, which is not UTF-8") from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise UsageError("- reads names from standard input, which has none")
    if len(names) > NAMES_FROM_INPUT_MAX:
        raise UsageError(f"- reads names from standard input, which has more than {NAMES_FROM_INPUT_MAX:,}")
    return names
