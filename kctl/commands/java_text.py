"""Texts as Java counts and pads them: in UTF-16 units, of which some characters take two.  Pure."""

from __future__ import annotations


def java_length(text: str) -> int:
    """String.length."""
    return len(text) + sum(character > "\uffff" for character in text)


def padded(text: object, width: int) -> str:
    """What `%-<width>s` of java.util.Formatter gives."""
    whole = str(text)
    return whole + " " * (width - java_length(whole))
