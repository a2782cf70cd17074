"""The check of words finds what it should, and nothing in texts that are fine."""

from __future__ import annotations

from docs.words import empty_names, markdown_lines, phrases_in


def test_phrases_are_found_with_what_to_write_instead() -> None:
    for text, count in (
        ("The offset lives in a file, and the broker wants to read it.", 2),
        ("The first live in-sync replica becomes the leader.", 0),
        ("The name `talks to` is code.", 0),
        ("Partitions whose broker goes away.", 1),
        ("Members give up their partitions.", 0),
    ):
        assert len(list(phrases_in(text))) == count, text


def test_code_blocks_of_pages_are_not_prose() -> None:
    assert list(markdown_lines("a\n```\nb\n```\nc")) == [(1, "a"), (5, "c")]


def test_variables_named_after_nothing_are_found() -> None:
    for source, lines in (
        ("for one in rows:\n    pass", [1]),
        ("names = [each.name for each in rows]", [1]),
        ("pairs = {key: one for key, one in rows}", [1]),
        ("largest = max(rows, key=lambda one: one.size)", [1]),
        ("for row in rows:\n    one = row", []),
    ):
        assert empty_names(source) == lines, source
