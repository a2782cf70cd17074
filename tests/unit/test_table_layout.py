"""Tables fit into the terminal, and no word or name is ever broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.output.table import TableLayout
from kctl.output.terminal_text import display_width, words_of

CELL = st.text(st.sampled_from("abc-, 日é"), min_size=1, max_size=30).filter(lambda text: text == text.strip(" "))


def bare(_: int, text: str) -> str:
    return text


def laid_out(
    titles: list[str], rows: list[list[str]], wraps: list[bool], width: int | None, *, is_complete: bool = True
) -> list[str]:
    layout = TableLayout(titles, rows, numeric=[False] * len(titles), wraps=wraps, width=width, is_complete=is_complete)
    return [*layout.head(bare), *(line for row in rows for line in layout.row(row, bare))]


@given(st.data(), st.integers(1, 5), st.integers(10, 90) | st.none(), st.booleans())
def test_no_line_is_wider_than_the_terminal_unless_one_name_is(
    data: st.DataObject, count: int, width: int | None, is_complete: bool
) -> None:
    titles = [f"COLUMN-{number}" for number in range(count)]
    rows = data.draw(st.lists(st.lists(CELL, min_size=count, max_size=count), min_size=1, max_size=4))
    wraps = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    lines = laid_out(titles, rows, wraps, width, is_complete=is_complete)
    words = {word.rstrip(" ") for row in rows for cell in row for word in words_of(cell)}
    assert [word for word in words if word != "-" and word not in "\n".join(lines)] == []
    if width is not None:
        assert all(display_width(line) <= width or line.strip(" ") in words for line in lines)


def test_a_file_or_pipe_gets_every_row_on_one_line() -> None:
    assert laid_out(["A", "B"], [["x" * 500, "y z"]], [False, True], None) == [
        "A" + " " * 501 + "B",
        "x" * 500 + "  y z",
    ]


def test_empty_columns_are_dropped_first() -> None:
    assert laid_out(["GROUP", "MEMBER-ID", "LAG"], [["billing", "-", "3"]], [False] * 3, 15) == [
        "GROUP    LAG",
        "billing  3",
    ]


def test_rows_that_do_not_fit_become_blocks() -> None:
    rows = [["billing", "member-1", "3"], ["audit", "member-2", "4"]]
    assert laid_out(["GROUP", "MEMBER-ID", "LAG"], rows, [False] * 3, 20) == [
        "GROUP      billing",
        "MEMBER-ID  member-1",
        "LAG        3",
        "",
        "GROUP      audit",
        "MEMBER-ID  member-2",
        "LAG        4",
    ]


def test_a_value_that_does_not_fit_beside_its_title_goes_below_it() -> None:
    assert laid_out(["GROUP", "MEMBER-ID"], [["billing", "m" * 17]], [False] * 2, 20) == [
        "GROUP      billing",
        "MEMBER-ID",
        "  " + "m" * 17,
    ]


def test_wide_characters_are_counted_as_the_terminal_draws_them() -> None:
    lines = laid_out(["NAME", "N"], [["日本", "1"], ["ab", "2"]], [False] * 2, 80)
    assert lines == ["NAME  N", "日本  1", "ab    2"]


@pytest.mark.parametrize("width", [40, 80])
def test_prose_wraps_between_words_in_what_the_names_leave(width: int) -> None:
    lines = laid_out(
        ["ID", "MESSAGE"], [["x" * 20, "the broker is not the controller of this cluster"]], [False, True], width
    )
    assert max(map(display_width, lines)) <= width
    assert lines[0].split() == ["ID", "MESSAGE"]


def test_later_rows_use_the_full_width_for_prose() -> None:
    layout = TableLayout(
        ["N", "VALUE"], [["1", "a"]], numeric=[True, False], wraps=[False, True], width=40, is_complete=False
    )
    assert list(layout.row(["2", "five words of some length here"], bare)) == ["2  five words of some length here"]


@pytest.mark.parametrize(
    ("width", "titles", "left_out"),
    [
        (None, ["GROUP", "STATE", "LAG", "VERDICT"], []),
        (26, ["GROUP", "STATE", "LAG", "VERDICT"], []),
        (25, ["GROUP", "LAG", "VERDICT"], ["STATE"]),
        (18, ["GROUP", "VERDICT"], ["STATE", "LAG"]),
    ],
)
def test_columns_are_left_out_in_their_order_until_the_rows_fit(
    width: int | None, titles: list[str], left_out: list[str]
) -> None:
    rows = [["a", "Empty", "10", "OK"], ["b", "Empty", "1", "OK"]]
    layout = TableLayout(
        ["GROUP", "STATE", "LAG", "VERDICT"],
        rows,
        numeric=[False] * 4,
        wraps=[False] * 4,
        width=width,
        is_complete=True,
        drop_order=[0, 1, 2, 0],
    )
    assert [line.split() for line in layout.head(bare)] == [titles]
    assert layout.left_out == left_out


def test_blocks_have_all_columns_where_too_few_may_be_left_out() -> None:
    layout = TableLayout(
        ["GROUP", "LAG", "VERDICT"],
        [["a", "10", "OK"]],
        numeric=[False] * 3,
        wraps=[False] * 3,
        width=12,
        is_complete=True,
        drop_order=[0, 1, 0],
    )
    assert [line.split()[0] for line in layout.row(["a", "10", "OK"], bare)] == ["GROUP", "LAG", "VERDICT"]
    assert layout.left_out == []


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_block_has_a_rare_column_only_where_it_is_not_empty(*, is_complete: bool) -> None:
    rows = [["a" * 30, "-", "-"], ["b" * 30, "-", "NOT_CONTROLLER"]]
    layout = TableLayout(
        ["NAME", "VALUE", "ERROR"],
        rows,
        numeric=[False] * 3,
        wraps=[False] * 3,
        width=40,
        is_complete=is_complete,
        rare=[False, False, True],
    )
    assert [[line.split() for line in layout.row(row, bare)] for row in rows] == [
        [["NAME", "a" * 30], *([] if is_complete else [["VALUE", "-"]])],
        [[], ["NAME", "b" * 30], *([] if is_complete else [["VALUE", "-"]]), ["ERROR", "NOT_CONTROLLER"]],
    ]
