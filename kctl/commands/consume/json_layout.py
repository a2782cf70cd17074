"""Indents the JSON of a value for a terminal, without changing its numbers, texts and order.  Pure."""

from __future__ import annotations

import json
import re

INDENTED_CHARACTERS_MAX = 4 << 20
"""Length of the longest indented document; a deeply nested one would be much longer than the value."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


def indented(text: str) -> str | None:
    """The document with a line per member and element; None if it is not JSON object or list, or too long."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > INDENTED_CHARACTERS_MAX:
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # ValueError also for integers of thousands of digits
        return None
    pieces: list[str] = []
    depth, length, before = 0, 0, ""
    for mark in _TOKEN.findall(text):
        if mark in "]}":
            depth -= 1
        is_new_line = before in ("[", "{", ",") or mark in "]}"
        if is_new_line and not (mark in "]}" and before in ("[", "{")):
            pieces.append("\n" + "  " * depth)
        pieces.append(": " if mark == ":" else mark)
        length += len(pieces[-1]) + 2 * depth
        if length > INDENTED_CHARACTERS_MAX:
            return None
        if mark in "[{":
            depth += 1
        before = mark
    return "".join(pieces)
