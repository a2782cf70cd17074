"""Compares the properties of two resources.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Difference(NamedTuple):
    """A property that differs.  A side that lacks it has None and a false `is_here` or `is_there`."""

    property: str
    here: str | None
    there: str | None
    is_here: bool
    is_there: bool


def config_differences(
    here: Mapping[str, str | None], there: Mapping[str, str | None], names: Iterable[str] | None = None
) -> list[Difference]:
    """The properties, all or only `names`, with different values, sorted.

    Two sensitive values count as equal, because neither is known.  Elements of a list are compared in their order.
    """
    chosen = here.keys() | there.keys() if names is None else set(names)
    return [
        Difference(name, here.get(name), there.get(name), name in here, name in there)
        for name in sorted(chosen)
        if (name in here) != (name in there) or here.get(name) != there.get(name)
    ]
