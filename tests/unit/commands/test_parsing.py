"""The quick reader of command lines never disagrees with typer: it gives the same values or leaves the line to it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.commands.declaration import Argument, Command, Group, Option
from kctl.commands.exit_status import ExitStatus
from kctl.commands.invocation import Invocation
from kctl.commands.parsing import parse
from kctl.commands.typer_app import build, invoke
from kctl.errors import UsageError

app = Group("things", "Made for this test.")


@app.command("make", cluster=True)
def make(
    run: Invocation,
    name: Annotated[str, Argument("Its name.")],
    more: Annotated[list[str] | None, Argument("More names.")] = None,
    *,
    count: Annotated[int | None, Option("--count", "-n", help="How many.", minimum=-9)] = None,
    share: Annotated[float, Option("--share", help="How much.")] = 0.5,
    tag: Annotated[list[str] | None, Option("--tag", help="A tag.", may_be_empty=True)] = None,
    size: Annotated[str, Option("--size", choices=("small", "large"), help="How big.")] = "small",
    force: Annotated[bool, Option("--force", "-f", help="Regardless.")] = False,
) -> ExitStatus:
    """Make things."""
    return ExitStatus.DONE


def typer_values(words: list[str]) -> dict[str, Any] | None:
    """What typer reads, or None when it complains."""
    read: list[dict[str, Any]] = []

    def keep(_: Command, values: dict[str, Any]) -> int:
        read.append(values)
        return 0

    try:
        invoke(build(app, keep), ["make", *words], program="kctl things")
    except UsageError:
        return None
    return read[0] if read else None


def plain(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """An option that was not repeated at all may be None or an empty list; commands treat them alike."""
    return None if values is None else {name: value if value != [] else None for name, value in values.items()}


def quick_values(words: list[str]) -> dict[str, Any] | None:
    return parse(app.commands["make"], words)


@pytest.mark.parametrize(
    "line",
    [
        "one",
        "one two three",
        "one --count 3 --tag a --tag b=c --force",
        "--size large one -n 4 -f",
        "--size=large one --count=-4 --tag=",
        "one -- --two",
        "- one",
        "one --format json --bootstrap-server h:1 --quiet",
        "one --count 1 --count 2",
        "one --share 1.5",
    ],
)
def test_well_formed_line_is_read_at_once_and_as_typer_reads_it(line: str) -> None:
    quick = quick_values(line.split())
    assert quick is not None
    assert plain(quick) == plain(typer_values(line.split()))


@pytest.mark.parametrize(
    "line",
    ["", "--count 3", "one --count x", "one --count", "one --nope", "one --size huge", "one --force=yes", "one -n4",
     "one --coun 3", "one --format xml", "one --tag --force"],
)  # fmt: skip
def test_any_other_line_is_left_to_typer(line: str) -> None:
    assert quick_values(line.split()) is None


WORDS = st.sampled_from([
    *("one", "two", "-", "--", "-n", "--count", "--count=2", "3", "-3", "x", "--tag", "--tag=t", "--force", "-f"),
    "-nf",
    *("--size", "--size=small", "large", "--share", "0.25", "--format", "json", "--quiet", "--nope", ""),
])  # fmt: skip


@given(st.lists(WORDS, max_size=7))
def test_quick_reader_never_disagrees_with_typer(words: list[str]) -> None:
    quick = quick_values(words)
    if quick is not None:
        assert plain(quick) == plain(typer_values(words))


def test_a_commands_own_flag_hides_the_common_one() -> None:
    group = Group("letters", "Made for this test.")

    @group.command("send")
    def send(run: Invocation, *, letter_head: Annotated[str | None, Option("--header", help="Top.")] = None) -> int:
        """Send."""
        return 0

    values = parse(group.commands["send"], ["--header", "a=b"])
    assert values is not None
    assert values["letter_head"] == "a=b"
    assert "header" not in values
