"""Regular expressions of RE2 for names of topics."""

from __future__ import annotations

import random
import re

import pytest

from kctl.regex.automaton import (
    REGEX_PLACES_MAX,
    Matcher,
)
from kctl.regex.syntax import REGEX_CHARACTERS_MAX, InvalidRegex
from kctl.server.coordination.consumer_groups.topic_names import find_topics
from kctl.system.steps import run_at_once
from tests.property.examples import share_of
from tests.rows import for_rows

ATOMS = (
    *("a", "b", ".", "[ab]", "[^a]", r"\.", r"\d", r"\w", r"\W", r"\b", r"\B", "^", "$", "[a-z0]", "(?:ab)", "(a|b)"),
    *("-", "_", r"[\w.]", r"[-a]", r"\Aa?", r"\x61", r"[\x2d-\x39]"),
)
REPEATS = ("*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?", "??", "{1,2}?")


def random_expression(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if depth == 0 or kind < 0.4:
        return chance.choice(ATOMS)
    inner = random_expression(chance, depth - 1)
    if kind < 0.6:
        return inner + random_expression(chance, depth - 1)
    if kind < 0.75:
        return f"(?:{inner}|{random_expression(chance, depth - 1)})"
    return f"(?:{inner}){chance.choice(REPEATS)}"


def test_expressions_that_python_knows_match_as_in_python() -> None:
    chance = random.Random(3)
    names = ["".join(chance.choice("ab.-A0_") for _ in range(chance.randrange(1, 9))) for _ in range(40)]
    for _ in range(share_of(900)):
        expression = random_expression(chance, 4)
        compiled, matcher = re.compile(expression), Matcher(expression)
        for name in chance.sample(names, 10):
            assert matcher.matches(name) == (compiled.fullmatch(name) is not None), (expression, name)


@for_rows(
    "expression, names, others",
    [
        (r"(?i)Orders\..*", ["orders.a", "ORDERS."], ["order.a"]),
        (r"(?i:o)rders", ["Orders", "orders"], ["ORDERS"]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"\Qa.b\E+", ["a.bb"], ["a.ba.b"]),
        (r"(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        (r"[[:alpha:]]+[[:^digit:]]", ["ab", "a."], ["a1", "1a"]),
        (r"\p{Lu}\pN[\P{L}]", ["A1.", "Z00"], ["a1.", "A1b"]),
        (r"\p{Greek}|\p{^Latin}", ["1", "."], ["a"]),
        (r"a{,2}|a{b|x{1", [], ["a", "aa"]),
        (r"[]a-]+", ["a-"], ["b"]),
        (r"\141\x{62}", ["ab"], ["b"]),
        (r"a\C", ["a.", "ab"], ["a"]),
        ("ü|a", ["a"], ["u"]),
        ("", [], ["a"]),
        (r"(?U)a+(?s-i)b$", ["aab"], ["ab1"]),
    ],
)
def test_syntax_of_re2(expression: str, names: list[str], others: list[str]) -> None:
    matcher = Matcher(expression)
    assert [name for name in names + others if matcher.matches(name)] == names


@for_rows(
    "expression, message",
    [
        ("([", "missing closing ]"),
        ("(a", "missing closing )"),
        ("a)", "unexpected )"),
        ("a**", "invalid nested repetition operator"),
        ("a++", "invalid nested repetition operator"),
        ("*a", "missing argument to repetition operator"),
        ("{2}", "missing argument to repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("a{2,1}", "invalid repeat count"),
        ("[b-a]", "invalid character class range"),
        ("[[:none:]]", "invalid character class range"),
        (r"\p{None}", "invalid character class range"),
        (r"\p{L", "invalid character class range"),
        ("\\", "trailing backslash at end of expression"),
        ("[\\", "trailing backslash at end of expression"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\x{110000}", "invalid escape sequence"),
        (r"\y", "invalid escape sequence"),
        ("a(?=b)", "invalid or unsupported Perl syntax"),
        ("(?<!a)b", "invalid or unsupported Perl syntax"),
        ("(?z)", "invalid or unsupported Perl syntax"),
        ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
        ("(?P<>a)", "invalid named capture"),
        ("(" * 200 + ")" * 200, "expression nests too deeply"),
        ("a" * (REGEX_CHARACTERS_MAX + 1), f"expression has more than {REGEX_CHARACTERS_MAX} characters"),
        ("(a{100}){100}", f"expression is larger than {REGEX_PLACES_MAX} characters"),
    ],
)
def test_what_is_not_an_expression_of_re2_is_named(expression: str, message: str) -> None:
    with pytest.raises(InvalidRegex, match=re.escape(message)):
        Matcher(expression)


def test_work_grows_with_the_length_of_the_name_and_has_a_bound() -> None:
    matcher = Matcher("(a|a)*(a|b)*a(a|b){300}")
    matcher.matches("ab" * 60)
    short = matcher.work
    matcher.matches("ba" * 120)
    assert matcher.work < 10 * short
    names = [f"a{number}" for number in range(500)]
    found = run_at_once(find_topics(["a(.|..)*1", "a.*"], names, work_max=5_000))
    assert found == {"a(.|..)*1": frozenset(), "a.*": frozenset()}, "all that may be done was done"
    assert run_at_once(find_topics(["a.*", "(", "b"], names)) == {"a.*": frozenset(names), "(": set(), "b": set()}
