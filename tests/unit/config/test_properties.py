"""The syntax of .properties files, with the examples of java.util.Properties' documentation and the results of its
reader.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.config.properties import decode_properties, format_properties, parse_properties
from tests.rows import for_rows


@for_rows(
    "text, expected",
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t=\tb  ", {"a": "b  "}),
        ("  a=b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a=b=c", {"a": "b=c"}),
        ("# a=b\n! c=d\n\ne=f", {"e": "f"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b = c", {"a b": "c"}),
        ("a=\\tb\\n", {"a": "\tb\n"}),
        ("a=\\z", {"a": "z"}),
        ("a=\\u00e9", {"a": "é"}),
        ("a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        ("fruits = apple, \\\n   banana", {"fruits": "apple, banana"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=b\\", {"a": "b"}),
        ("", {}),
    ],
)
def test_reads_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_malformed_escape_is_reported_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 3: .*u12"):
        parse_properties("a=b\n\nc=\\u12")


def test_a_binary_file_is_no_file_of_properties() -> None:
    with pytest.raises(ValueError, match="line 2: a NUL character"):
        parse_properties("a=b\nc\0=d")


def test_a_file_is_utf8_or_else_latin1() -> None:
    assert decode_properties("ä".encode()) == "ä"
    assert decode_properties("ä".encode("iso-8859-1")) == "ä"
    assert decode_properties(b"\xef\xbb\xbfa=b") == "a=b"


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties
