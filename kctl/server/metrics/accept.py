"""Orders the formats that an Accept header names by the client's preference.  RFC 9110, 12.5.1.  Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

OPENMETRICS = "application/openmetrics-text"
TEXT = "text/plain"
_OWN = (TEXT, OPENMETRICS)
"""In the order in which they are offered to a client that accepts any type."""
_QUALITY = "q"


class _Range(NamedTuple):
    media_type: str
    parameters: tuple[str, ...]
    """All but the quality, as in the header."""
    quality: float


def preferences(accept: str) -> list[str]:
    """The media types with their parameters, such as a version, most preferred first; those refused are left out.

    Types of the same quality stay in the order of the header.  A wildcard stands for the types that it covers and the
    header does not name.
    """
    ranges = list(_ranges(accept))
    named = {each.media_type for each in ranges}
    found: list[str] = []
    for each in sorted(ranges, key=lambda one: -one.quality):
        if each.quality <= 0:
            continue
        if each.media_type.endswith("/*"):
            found += [own for own in _OWN if own not in named and _covers(each.media_type, own)]
        elif each.media_type in _OWN:
            found.append(";".join((each.media_type, *each.parameters)))
    return found


def _ranges(accept: str) -> Iterator[_Range]:
    for item in accept.split(","):
        media_type, *parameters = [part.strip() for part in item.split(";")]
        if not media_type:
            continue
        quality, others = 1.0, []
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == _QUALITY:
                quality = _quality(value)
            elif parameter:
                others.append(parameter)
        yield _Range(media_type.lower(), tuple(others), quality)


def _quality(text: str) -> float:
    """The number; 1, which is the default, for what is none."""
    try:
        value = float(text)
    except ValueError:
        return 1.0
    return 1.0 if math.isnan(value) else min(max(value, 0.0), 1.0)


def _covers(wildcard: str, media_type: str) -> bool:
    return wildcard == "*/*" or media_type.startswith(wildcard.removesuffix("*"))
