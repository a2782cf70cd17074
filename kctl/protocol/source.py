"""Generates Python source; shared by the compilers of codecs and constructors.

A generated function consists of lines and the objects that they refer to.  Its source is added to `linecache`, so that
tracebacks and debuggers show it.
"""

from __future__ import annotations

import copy
import dataclasses
import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from kctl.protocol.definition import Definition, Field, definition_of


class Source:
    """A function that is being generated."""

    def __init__(self, name: str, definition: Definition, version: int | None = None, variant: str = "") -> None:
        """`variant` distinguishes functions of the same name, definition and version in tracebacks."""
        self.name = name
        self.filename = f"<{name} {definition.name}{'' if version is None else f' v{version}'}{variant}>"
        self.lines: list[str] = []
        self._depth = 0
        self._namespace: dict[str, Any] = {}
        self._counter = 0

    def line(self, text: str) -> None:
        """Add a line at the current indentation."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add `header` and indent the lines added inside of the context."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, stem: str) -> str:
        """Return a new variable name that starts with `stem`."""
        self._counter += 1
        return f"{stem}{self._counter}"

    def constant(self, value: Any, stem: str) -> str:
        """Return the name by which the generated function accesses `value`."""
        for name, known in self._namespace.items():
            if known is value:
                return name
        name = stem if stem not in self._namespace else self.variable(f"{stem}_")
        self._namespace[name] = value
        return name

    def packer(self, method: str, codes: str) -> str:
        """Return the name of `struct.Struct(">" + codes).method`."""
        stem = f"{method}_{codes}".replace("?", "z")
        if stem not in self._namespace:
            self._namespace[stem] = getattr(struct.Struct(">" + codes), method)
        return stem

    def literal(self, value: Any) -> str:
        """Return an expression for a default; lists and structs are created anew by each evaluation."""
        if hasattr(value, "__definition__"):
            default = self.constant(value, f"default_{type(value).__name__}")
            return f"{self.constant(copy.deepcopy, 'deepcopy')}({default})"
        if value is None or isinstance(value, int | str | bytes | list | float):
            return repr(value)
        return self.constant(value, type(value).__name__.upper())

    def text(self) -> str:
        """Return the source."""
        return "\n".join(self.lines) + "\n"

    def function(self) -> Callable[..., Any]:
        """Compile the source and register it for tracebacks."""
        text = self.text()
        linecache.cache[self.filename] = (len(text), None, text.splitlines(keepends=True), self.filename)
        exec(compile(text, self.filename, "exec"), self._namespace)  # noqa: S102 - the text comes from our definitions
        made: Callable[..., Any] = self._namespace[self.name]
        return made


def fields_of(definition: Definition, version: int) -> tuple[list[Field], list[Field], list[Field]]:
    """Return (fields in order, tagged fields by tag, fields that the version lacks)."""
    present = [field for field in definition.fields if version in field.versions]
    absent = [field for field in definition.fields if version not in field.versions]
    tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
    return [field for field in present if field.tag is None], tagged, absent


# Constructors of messages that are made for each request.
#
# A call of a class with keywords makes a dictionary of them and takes several times as long as a call of a function.


P = ParamSpec("P")
T = TypeVar("T")


def constructor(cls: Callable[P, T]) -> Callable[P, T]:
    """Return a function that makes messages of a class as the class itself does: same keywords, defaults and errors."""
    message: Any = cls
    definition = definition_of(message)
    source = Source("make", definition)
    absent = source.constant(dataclasses.MISSING, "absent")
    parameters, values = [], []
    for field in definition.fields:
        name = field.name
        if field.default is dataclasses.MISSING:
            parameters.append(name)
            values.append(name)
        elif field.default == [] or hasattr(field.default, "__definition__"):
            parameters.append(f"{name}={absent}")
            values.append(f"{source.literal(field.default)} if {name} is {absent} else {name}")
        else:
            parameters.append(f"{name}={source.literal(field.default)}")
            values.append(name)
    with source.block(f"def make({', '.join(('*', *parameters)) if parameters else ''}):"):
        source.line(f"o = {source.constant(object.__new__, 'new')}({source.constant(cls, definition.name)})")
        for field, value in zip(definition.fields, values, strict=True):
            source.line(f"o.{field.name} = {value}")
        source.line("return o")
    return cast("Callable[P, T]", source.function())
