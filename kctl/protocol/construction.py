"""Constructors of messages that are made for each request.

A call of a class with keywords makes a dictionary of them and takes several times as long as a call of a function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from kctl.protocol.definition import definition_of
from kctl.protocol.source import Source

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
