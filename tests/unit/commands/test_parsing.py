"""Parsing of command lines by typer with kctl's checks, and refused command lines."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
import typer.main
from hypothesis import given
from hypothesis import strategies as st

from kctl.commands.frame.command import ClusterCommand, LocalCommand
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.help.text import examples
from kctl.commands.frame.options.option_types import any_text
from kctl.commands.frame.root import run_command
from kctl.errors import UsageError
from tests.rows import for_rows

app = typer.Typer(add_completion=False)
read: list[dict[str, Any]] = []


@app.command("make", cls=ClusterCommand, epilog=examples("kctl things make one"))
def make(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name.")],
    more: Annotated[list[str] | None, typer.Argument(help="More names.")] = None,
    *,
    count: Annotated[int | None, typer.Option("--count", "-n", help="How many.", min=-9, max=99)] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag.", parser=any_text)] = None,
    size: Annotated[Literal["small", "large"], typer.Option("--size", help="How big.")] = "small",
    force: Annotated[bool, typer.Option("--force", "-f", help="Regardless.")] = False,
) -> ExitStatus:
    """Make things."""
    own = {"name": name, "more": more, "count": count, "tag": tag, "size": size, "force": force}
    read.append({**own, **ctx.obj._given})
    return ExitStatus.DONE


def values(words: list[str]) -> dict[str, Any] | None:
    """The arguments of the command's function without defaults; None if the line is refused."""
    read.clear()
    try:
        run_command(typer.main.get_command(app), "kctl things make", words)
    except UsageError:
        return None
    given = read[0] if read else {}
    return {name: value for name, value in given.items() if value not in (None, [], ()) and value is not False}


@for_rows(
    "line, expected",
    [
        ("one", {}),
        ("one two three", {"more": ["two", "three"]}),
        ("one --count 3 --tag a --tag b=c --force", {"count": 3, "tag": ["a", "b=c"], "force": True}),
        ("--size large one -n 4 -f", {"size": "large", "count": 4, "force": True}),
        ("--size=large one --count=-4 --tag=", {"size": "large", "count": -4, "tag": [""]}),
        ("one --count -4", {"count": -4}),
        ("one -n4", {"count": 4}),
        ("one -- --two", {"more": ["--two"]}),
        ("- one", {"name": "-", "more": ["one"]}),
        (
            "one --format json --bootstrap-server h:1 --quiet",
            {"format_": "json", "bootstrap_server": "h:1", "quiet": True},
        ),
        ("one --count 1 --count 2", {"count": 2}),
    ],
)
def test_well_formed_line_is_read(line: str, expected: dict[str, Any]) -> None:
    assert values(line.split()) == {"name": "one", "size": "small", **expected}


@for_rows("line", ["", "--count 3", "one --count x", "one --count", "one --nope", "one --size huge", "one --force=yes",
     "one --coun 3", "one --format xml", "one --count 1_0", "one --count 100"])  # fmt: skip
def test_any_other_line_is_refused(line: str) -> None:
    assert values(line.split()) is None


WORDS = st.sampled_from([
    *("one", "two", "-", "--", "-n", "--count", "--count=2", "3", "-3", "x", "--tag", "--tag=t", "--force", "-f"),
    "-nf",
    *("--size", "--size=small", "large", "--format", "json", "--quiet", "--nope", ""),
])  # fmt: skip


@given(st.lists(WORDS, max_size=7))
def test_any_line_is_read_or_refused_with_a_usage_error(words: list[str]) -> None:
    found = values(words)
    assert found is None or found["name"]


def test_a_commands_own_flag_hides_the_common_one() -> None:
    letters = typer.Typer(add_completion=False)

    @letters.command("send", cls=LocalCommand)
    def send(
        ctx: typer.Context, *, letter_head: Annotated[str | None, typer.Option("--header", help="Top.")] = None
    ) -> int:
        """Send."""
        read.append({"letter_head": letter_head, **ctx.obj._given})
        return 0

    read.clear()
    run_command(typer.main.get_command(letters), "kctl letters send", ["--header", "a=b"])
    assert read[0]["letter_head"] == "a=b"
    assert "header" not in read[0]
