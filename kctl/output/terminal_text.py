"""Escapes untrusted text for terminals, and measures its display width.  Pure.

Escapes characters that a terminal interprets or does not show: controls (Unicode categories Cc and Cf: C0, C1, DEL,
bidirectional marks and overrides, zero-width characters), line and paragraph separators, and surrogates, which
represent bytes that are not UTF-8.  `str.isprintable` is false for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

CONTROLS = (
    "\x00-\x1f\x7f-\x9f"
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
    "\u2028\u2029"
    "\ud800-\udfff"
)
"""Categories Cc, Cf, Zl, Zp and Cs as a character class, because calls of unicodedata per character are slow."""
_CONTROL = re.compile(f"[{CONTROLS}]")
_CONTROL_OR_BACKSLASH = re.compile(f"[{CONTROLS}\\\\]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"}


def escape(text: str) -> str:
    """Escape text for one line of a message; backslashes are kept."""
    return text if text.isprintable() else _CONTROL.sub(_escaped, text)


def escape_cell(text: str) -> str:
    """Escape text for one cell; backslashes are doubled, so that the escaping is reversible."""
    return text if text.isprintable() and "\\" not in text else _CONTROL_OR_BACKSLASH.sub(_escaped, text)


def escape_lines(text: str) -> str:
    """Escape text of several lines; line feeds and tabs are kept."""
    return text if text.isprintable() else _CONTROL.sub(_escaped_within_lines, text)


def escape_json(text: str) -> str:
    """Escape an encoded JSON document inside its strings; its value stays the same.

    The encoder has escaped what is below U+0020, so that of ASCII only DEL is left: `isprintable` looks up each
    character, which takes longer than to encode them.
    """
    if (text.isascii() and "\x7f" not in text) or text.isprintable():
        return text
    return _CONTROL.sub(_escaped_in_json, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is not UTF-8, as the surrogateescape handler decodes it
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped_within_lines(match: re.Match[str]) -> str:
    return match[0] if match[0] in "\n\t" else _escaped(match)


def _escaped_in_json(match: re.Match[str]) -> str:
    if match[0] == "\n":
        return "\n"  # between tokens; within strings the encoder has escaped it
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index : index + 2].hex()}" for index in range(0, len(units), 2))


def display_width(text: str) -> int:
    """Return the columns of escaped text on a terminal: wide characters take two, combining characters none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - plain, json and jsonl do without rich

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Truncate escaped text to `width` columns, with an ellipsis if something is cut off."""
    if display_width(text) <= width:
        return text
    taken, left = [], width - 3
    for character in text:
        left -= display_width(character)
        if left < 0:
            break
        taken.append(character)
    return "".join(taken) + "..."[: max(width, 0)]


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Pad text with blanks to `width` columns, on the left if `right` is set."""
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


_WORD = re.compile(r"[^ ,]*,* *")


def words_of(text: str) -> list[str]:
    """Split text where a line may be broken: after blanks and commas."""
    return [word for word in _WORD.findall(text) if word]


def word_width(text: str) -> int:
    """Return the columns of the longest piece of `words_of`."""
    return max((display_width(word.rstrip(" ")) for word in words_of(text)), default=0)


def wrap(text: str, width: int) -> list[str]:
    """Wrap text into lines of at most `width` columns; a longer word gets a line of its own."""
    if display_width(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in words_of(text):
        if line and display_width(line) + display_width(word.rstrip(" ")) > width:
            lines.append(line.rstrip(" "))
            line = ""
        line += word
    return [*lines, line.rstrip(" ")]


Paint = Callable[[int, str], str]
"""Adds colours to the text of the column with the given index."""
