"""Numbers and their nouns in messages: 1 record, 2 records."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.output.quantities import counted

ROOT = Path(__file__).parents[3]
PACKAGES = ("admin", "client", "commands", "spark")
NOUNS = (
    "ACLs|acls|batches|brokers|bytes|changes|commits|connections|entries|errors|files|fields|groups|items|leaders|lines|"
    "members|messages|moves|offsets|partitions|phases|properties|quotas|ranges|records|replicas|requests|"
    "rows|rounds|seconds|segments|tables|tokens|topics|transactions|tries|users|values|warnings"
)
PLURAL = re.compile(rf" (?!has |topics create )(?:[a-z]+ )?(?:{NOUNS})\b")


def fixed_plurals(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each f-string that puts a plural after a number that may be 1.

    Constants, whose names are in capitals, are limits above 1; a rate such as `{rate:,} bytes/s` is a unit.
    """
    for string in ast.walk(ast.parse(source)):
        if not isinstance(string, ast.JoinedStr):
            continue
        for value, text in zip(string.values, string.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            names = [node.id if isinstance(node, ast.Name) else "" for node in ast.walk(value.value)]
            names += [node.attr for node in ast.walk(value.value) if isinstance(node, ast.Attribute)]
            words = str(text.value)
            is_constant = any(name.isupper() for name in names)
            if PLURAL.match(words) and not re.match(r" \w+/s\b", words) and not is_constant:
                yield string.lineno, ast.unparse(string)


def modules() -> list[Path]:
    return [
        path for package in PACKAGES for path in (ROOT / "kctl" / package).rglob("*.py") if "compat" not in path.parts
    ]


@pytest.mark.long
def test_no_message_has_a_plural_after_a_number_that_may_be_one() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in modules()
        for line, text in fixed_plurals(path.read_text())
    ]
    assert found == [], "use kctl.output.quantities.counted"


def test_the_search_finds_a_fixed_plural() -> None:
    assert [line for line, _ in fixed_plurals('x = 1\nf"{x:,} records of {len(y)} more topics"\nf"{x} bytes/s"')] == [
        2,
        2,
    ]


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (0, "record", None, "0 records"),
        (1, "record", None, "1 record"),
        (2_000, "record", None, "2,000 records"),
        (1, "batch", "batches", "1 batch"),
        (2, "batch", "batches", "2 batches"),
    ],
)
def test_counted(number: int, noun: str, plural: str | None, text: str) -> None:
    assert counted(number, noun, plural) == text
