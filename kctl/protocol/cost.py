"""The cost of decoding a message, which grows with the objects in it.  kctl.limits has the reasons."""

from __future__ import annotations

from kctl.errors import MalformedRequest
from kctl.protocol.definition import FIXED_FORMATS, Field, definition_of

LONG_STRING_BYTES = 255
BYTES_PER_COST = {"string": 64, "bytes": 256}
"""Bytes per unit of cost, for strings and opaque bytes longer than LONG_STRING_BYTES."""
ARRAY_NUMBER_COST = 4
"""Cost of a number in an array of numbers: a partition or broker id, which handlers look up."""
OBJECT_COST = 8
"""Cost of a struct, a string or an array."""
COST_PER_BYTE_MAX = OBJECT_COST + 1
"""Maximum cost of an array element per byte; a small enough request is therefore within its bound."""


class CostExceeded(MalformedRequest):
    """A message costs more than its bound to decode."""


def cost_of(field: Field, version: int) -> int:
    """Return the cost of decoding a field without the elements of its arrays."""
    if field.struct is not None:
        fields = (inner for inner in definition_of(field.struct).fields if version in inner.versions)
        return OBJECT_COST + sum(cost_of(inner, version) for inner in fields if inner.tag is None)
    return 1 if field.kind in FIXED_FORMATS and field.kind != "uuid" else OBJECT_COST


def element_cost(element: Field, version: int) -> int:
    """Return the cost of decoding an array element without the elements of its own arrays."""
    cost = cost_of(element, version)
    return ARRAY_NUMBER_COST if cost == 1 else cost
