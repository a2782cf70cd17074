"""Writing Python source: what the two compilers share.

A generated function is a list of lines and the objects that they name.  Its source goes to `linecache`, so that
tracebacks and debuggers show it.
"""

from __future__ import annotations

import copy
import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kctl.protocol.message import Definition, Field


class Source:
    """One function being written."""

    def __init__(self, name: str, definition: Definition, version: int, variant: str = "") -> None:
        """`variant` tells functions of one name, definition and version apart in tracebacks."""
        self.name = name
        self.filename = f"<{name} {definition.name} v{version}{variant}>"
        self.lines: list[str] = []
        self._depth = 0
        self._namespace: dict[str, Any] = {}
        self._counter = 0

    def line(self, text: str) -> None:
        """Add one line at the current indentation."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indent what is written inside, under `header`."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, stem: str) -> str:
        """A name not used so far."""
        self._counter += 1
        return f"{stem}{self._counter}"

    def constant(self, value: Any, stem: str) -> str:
        """The name under which the function finds `value`."""
        for name, known in self._namespace.items():
            if known is value:
                return name
        name = stem if stem not in self._namespace else self.variable(f"{stem}_")
        self._namespace[name] = value
        return name

    def packer(self, method: str, codes: str) -> str:
        """The name of `struct.Struct(">" + codes).method`."""
        stem = f"{method}_{codes}".replace("?", "z")
        if stem not in self._namespace:
            self._namespace[stem] = getattr(struct.Struct(">" + codes), method)
        return stem

    def literal(self, value: Any) -> str:
        """An expression for a default; lists and structs are made anew by each evaluation."""
        if hasattr(value, "__definition__"):
            default = self.constant(value, f"default_{type(value).__name__}")
            return f"{self.constant(copy.deepcopy, 'deepcopy')}({default})"
        if value is None or isinstance(value, int | str | bytes | list | float):
            return repr(value)
        return self.constant(value, type(value).__name__.upper())

    def text(self) -> str:
        """The whole source."""
        return "\n".join(self.lines) + "\n"

    def function(self) -> Callable[..., Any]:
        """Compile what was written and register it for tracebacks."""
        text = self.text()
        linecache.cache[self.filename] = (len(text), None, text.splitlines(keepends=True), self.filename)
        exec(compile(text, self.filename, "exec"), self._namespace)  # noqa: S102 - the text comes from our definitions
        made: Callable[..., Any] = self._namespace[self.name]
        return made


def fields_of(definition: Definition, version: int) -> tuple[list[Field], list[Field], list[Field]]:
    """(fields in order, tagged fields by tag, fields that the version lacks)."""
    present = [field for field in definition.fields if version in field.versions]
    absent = [field for field in definition.fields if version not in field.versions]
    tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
    return [field for field in present if field.tag is None], tagged, absent
