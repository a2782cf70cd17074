"""Text of any origin made safe to print, and how many columns of a terminal it takes.  Pure.

Escaped are the characters that a terminal acts on or does not show: controls (Unicode categories Cc and Cf: C0, C1,
DEL, bidirectional marks and overrides, zero-width characters), line and paragraph separators, and surrogates, which
stand for bytes that are not UTF-8.  `str.isprintable` is false for every one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_CONTROLS = (
    "\x00-\x1f\x7f-\x9f"
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
    "\u2028\u2029"
    "\ud800-\udfff"
)
"""Cc, Cf, Zl and Zp, Cs: a character class, because asking unicodedata about each character would be slow."""
_CONTROL = re.compile(f"[{_CONTROLS}]")
_CONTROL_OR_BACKSLASH = re.compile(f"[{_CONTROLS}\\\\]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"}


def escape(text: str) -> str:
    """Text for one line of talk; backslashes stay."""
    return text if text.isprintable() else _CONTROL.sub(_escaped, text)


def escape_cell(text: str) -> str:
    """Text for one cell; backslashes are doubled, so that the original can be read back."""
    return text if text.isprintable() and "\\" not in text else _CONTROL_OR_BACKSLASH.sub(_escaped, text)


def escape_lines(text: str) -> str:
    """Text of several lines: line feeds and tabs stay."""
    return text if text.isprintable() else _CONTROL.sub(_escaped_within_lines, text)


def escape_json(text: str) -> str:
    """An encoded JSON document with the same value, whose strings hold none of these characters."""
    return text if text.isprintable() else _CONTROL.sub(_escaped_in_json, text)


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
    """Columns that escaped text takes on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - plain, json and jsonl do without rich

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """The beginning of escaped text that fits into `width` columns, with an ellipsis where something is missing."""
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
    """Text with blanks behind it, or in front of it with `right`, up to `width` columns."""
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


_WORD = re.compile(r"[^ ,]*,* *")


def words_of(text: str) -> list[str]:
    """Pieces between which a line may be broken: behind blanks and commas, so that no word or name is torn."""
    return [word for word in _WORD.findall(text) if word]


def word_width(text: str) -> int:
    """Columns of the longest piece."""
    return max((display_width(word.rstrip(" ")) for word in words_of(text)), default=0)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns where the words allow it; a longer word has a line of its own."""
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
"""Adds colours to the text of the column with that index."""
