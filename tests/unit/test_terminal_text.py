"""Escaping is complete by Unicode's own categories, and widths are those of a terminal."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.output.terminal_text import cut, display_width, escape, escape_cell, escape_json, escape_lines, words_of, wrap

UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
TEXT = st.text(st.characters(exclude_categories=()))


def is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in UNSAFE_CATEGORIES


@pytest.mark.long
def test_every_control_format_separator_and_surrogate_character_is_escaped() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    for made in (escape(every), escape_cell(every), escape_json(every).replace("\n", "")):
        assert [hex(ord(character)) for character in made if is_unsafe(character)] == []


def test_nothing_else_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        if unicodedata.category(one)[0] in "LMNPS" or one == " ":
            assert escape(one) == one


@given(TEXT)
def test_an_escaped_cell_can_be_read_back(text: str) -> None:
    r"""Bytes that are not UTF-8 are \xNN, as are C1 controls; every other character can be restored."""
    plain = "".join(character for character in text if not 0xDC80 <= ord(character) <= 0xDCFF)
    ascii_only = escape_cell(plain).encode("ascii", "backslashreplace")
    assert ascii_only.decode("unicode_escape") == plain


@given(TEXT)
def test_an_escaped_document_has_the_same_value(text: str) -> None:
    document = escape_json(json.dumps({text: [text]}, ensure_ascii=False, indent=1))
    assert json.loads(document) == {text: [text]}
    assert not any(is_unsafe(character) for character in document if character != "\n")


@given(TEXT)
def test_lines_keep_their_line_feeds_and_tabs_and_nothing_else(text: str) -> None:
    assert not any(is_unsafe(line) for line in escape_lines(text) if line not in "\n\t")


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本語", 6), ("e\u0301", 1), ("ｆｕｌｌ", 8), ("", 0)])
def test_wide_characters_take_two_columns_and_combining_ones_none(text: str, width: int) -> None:
    assert display_width(text) == width


@given(TEXT.map(escape), st.integers(3, 40))
def test_cut_text_fits(text: str, width: int) -> None:
    assert display_width(cut(text, width)) <= width


@given(TEXT.map(escape), st.integers(1, 40))
def test_wrapping_never_breaks_a_word_and_is_as_narrow_as_the_words_allow(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    words = {word.rstrip(" ") for word in words_of(text)}
    assert all(display_width(line) <= width or line in words for line in lines)
