"""Completion scripts and the reference are up to date with the commands, and the scripts work."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.reference.generate import schemas
from kctl.commands.completion.scripts import script_for
from kctl.commands.frame.documentation import cli_reference, man_pages
from kctl.commands.frame.help import summary_of
from kctl.commands.frame.help_pages import PAGE_COLUMNS, PATH, page_for
from kctl.commands.frame.lazy_group import load
from kctl.commands.frame.parameters import flags_of, help_of
from kctl.commands.frame.root import NOUNS, all_commands, help_pages, help_text
from kctl.commands.frame.shown import shown_by
from kctl.output.console import columns_of
from tests.unit.commands.completing import in_bash
from tests.unit.commands.conftest import Kctl

ROOT = Path(__file__).parent.parent.parent.parent
SCRIPTS = {"bash": "kctl.bash", "zsh": "_kctl", "fish": "kctl.fish"}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_completion_script_is_up_to_date(kctl: Kctl, shell: str) -> None:
    text = (ROOT / "completions" / SCRIPTS[shell]).read_text()
    assert text == script_for(shell, all_commands()), "run ./dev completions"
    assert kctl(f"completion {shell}").out == text


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_shell_itself_understands_the_script(shell: str) -> None:
    """Runs fish if it is installed; another test checks all words without it."""
    text = (ROOT / "completions" / SCRIPTS[shell]).read_text()
    for verbs in all_commands().values():
        for command in verbs.values():
            flags = [flag for param in command.params for flag in flags_of(param)]
            assert all(flag.lstrip("-") in text for flag in flags)
    if shutil.which(shell):
        subprocess.run([shell, "-n", ROOT / "completions" / SCRIPTS[shell]], check=True)


def test_zsh_takes_the_script_from_source() -> None:
    """Runs zsh if it is installed."""
    script = ROOT / "completions" / SCRIPTS["zsh"]
    assert "compdef _kctl kctl" in script.read_text()
    if shutil.which("zsh"):
        line = f"autoload -Uz compinit; compinit -D -u; source {script}; print $_comps[kctl]"
        ran = subprocess.run(["zsh", "-f", "-c", line], capture_output=True, text=True, check=True)
        assert (ran.stdout, ran.stderr) == ("_kctl\n", "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kctl ", set(NOUNS)),
        ("kctl topi", {"topics"}),
        ("kctl --format ", {"table", "plain", "json", "jsonl", "yaml", "csv"}),
        ("kctl topics ", {"list", "describe", "create", "alter", "delete"}),
        ("kctl --format json topics de", {"describe", "delete"}),
        ("kctl topics create --part", {"--partitions"}),
        ("kctl topics create orders --format ", {"table", "plain", "json", "jsonl", "yaml", "csv"}),
        ("kctl topics create --partitions ", set()),
        ("kctl topics list --he", {"--header", "--help"}),
        ("kctl completion ", {"bash", "zsh", "fish"}),
        ("kctl produce orders --codec zs", {"zstd"}),
        ("kctl dump-log pyp", {"pyproject.toml"}),
        ("kctl -b 127.0.0.1:9092 topics de", {"describe", "delete"}),
        ("kctl topics list --format=j", {"json", "jsonl"}),
        ("kctl topics list --format=", {"table", "plain", "json", "jsonl", "yaml", "csv"}),
        ("kctl topics list --command-config=pyp", {"pyproject.toml"}),
    ],
)
def test_bash_completes(line: str, expected: set[str]) -> None:
    assert set(in_bash(line)) == expected


def test_fish_tells_a_noun_from_a_verb_of_the_same_name() -> None:
    """Runs fish if it is installed.  `kctl plan` takes a file, `kctl reassign plan` does not."""
    script = ROOT / "completions" / SCRIPTS["fish"]
    assert "__kctl_in plan' -F" in script.read_text()
    assert "__kctl_in reassign plan' -a 'drain" in script.read_text()
    if shutil.which("fish"):
        line = f"source {script}; complete -C 'kctl -b here:1 reassign plan '"
        ran = subprocess.run(["fish", "-c", line], capture_output=True, text=True, check=True, cwd=ROOT)
        assert set(ran.stdout.split()) == {"drain", "add", "replication-factor", "rebalance"}


def test_man_pages_are_up_to_date() -> None:
    folder = ROOT / "packaging" / "man"
    assert {one.name: one.read_text() for one in folder.glob("*.1")} == man_pages(all_commands()), "run ./dev docs"


def test_man_pages_have_each_command_and_option() -> None:
    pages = man_pages(all_commands())
    for noun, verbs in all_commands().items():
        text = pages[f"kctl-{noun}.1"].replace("\\-", "-")
        for verb, command in verbs.items():
            assert f".B kctl {noun}" + ("" if noun == verb else f" {verb}") in text
            assert all(flag in text for param in command.own_params for flag in flags_of(param)), (noun, verb)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_finds_nothing_wrong_in_the_man_pages() -> None:
    pages = sorted((ROOT / "packaging" / "man").glob("*.1"))
    ran = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", *pages], capture_output=True, text=True, check=True)
    assert ran.stderr == ""


WITHOUT_ROWS = {
    "acls export", "broker start", "broker stop", "completion", "groups export", "mcp", "metrics serve",
    "zookeeper start",
}  # fmt: skip


def test_schemas_of_the_output_are_as_ever() -> None:
    """A difference is a change of what scripts depend on: members may be added, but neither renamed nor removed."""
    folder = ROOT / "tests" / "golden" / "schemas"
    assert {f"tests/golden/schemas/{one.name}": one.read_text() for one in folder.glob("*.json")} == schemas(), (
        "run ./dev docs and look at the difference"
    )


def test_every_command_that_shows_rows_has_a_schema() -> None:
    """A new command declares its rows with `shows` or `shows_one`, or is added to WITHOUT_ROWS."""
    found = {
        noun if noun == verb else f"{noun} {verb}"
        for noun, verbs in all_commands().items()
        for verb, command in verbs.items()
        if shown_by(command.callback) is None
    }
    assert found == WITHOUT_ROWS


def test_columns_of_every_row_can_be_read() -> None:
    """An annotation may name what its module imports for type checkers only, and `after` a field that is no column."""
    all_commands()
    rows = {
        item
        for name, module in list(sys.modules.items())
        if name.startswith(("kctl.commands.", "kctl.tables.", "kctl.admin."))
        for item in vars(module).values()
        if isinstance(item, type)
        and hasattr(item, "_fields")
        and any(word in str(item.__annotations__) for word in ("Column(", "JSON_ONLY", "ErrorName"))
    }
    assert len(rows) > 70
    for row in rows:
        columns = columns_of(row)
        names = [column.name for column in columns]
        assert len(set(names)) == len(columns) > 0, row
        assert "error" not in names or names[-2:] == ["error", "message"], row


def test_schema_is_printed_without_arguments(kctl: Kctl) -> None:
    for name in ("topics-list", "topics-describe", "consume", "export", "copy", "dump-log"):
        words = name if name == "dump-log" else name.replace("-", " ")
        ran = kctl(f"{words} --schema")
        assert (ran.status, ran.out) == (0, (ROOT / "tests" / "golden" / "schemas" / f"{name}.json").read_text())


def test_jsonl_schema_describes_one_line(kctl: Kctl) -> None:
    schema = kctl("topics list --schema --format jsonl").document
    assert schema["$ref"] == "#/$defs/TopicRow"
    assert "items" not in schema


def test_command_without_rows_has_no_schema(kctl: Kctl) -> None:
    ran = kctl("broker stop --schema")
    assert (ran.status, ran.out) == (2, "")


def test_reference_is_up_to_date() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert text == cli_reference(all_commands()), "run ./dev docs"


def test_help_pages_are_up_to_date() -> None:
    assert Path(PATH).read_text(encoding="utf-8") == help_pages(), "run ./dev docs"


def test_help_page_is_found_by_the_name_of_a_command() -> None:
    for noun, verbs in all_commands().items():
        for verb, command in verbs.items():
            name = [noun] if noun == verb else [noun, verb]
            text = help_text(" ".join(name), command)
            assert page_for([*name, "--help"], columns=None) == page_for([*name, "-h"], columns=None) == text
        assert page_for([noun, "--help"], columns=None)
    for line in ([], ["topics"], ["topics", "create"], ["no", "such", "--help"], ["topics create", "x", "--help"]):
        assert page_for(line, columns=None) is None, line


@pytest.mark.parametrize(
    ("line", "page"), [("help", []), ("help topics", ["topics"]), ("topics --no-color --help", ["topics"])]
)
def test_help_page_equals_the_help_that_typer_writes(kctl: Kctl, line: str, page: list[str]) -> None:
    assert kctl(line).out == page_for([*page, "--help"], columns=None)


def test_help_page_is_served_on_terminals_that_are_wide_enough() -> None:
    page = page_for(["topics", "create", "--help"], columns=None)
    assert page is not None
    assert page_for(["topics", "create", "--help"], columns=PAGE_COLUMNS) == page
    assert page_for(["topics", "create", "--help"], columns=PAGE_COLUMNS - 1) is None
    styled = page_for(["topics", "create", "--help"], columns=PAGE_COLUMNS, with_styles=True)
    assert styled is not None
    assert "\x1b[1mUsage:\x1b[0m kctl topics create" in styled
    assert styled.replace("\x1b[1m", "").replace("\x1b[0m", "") == page


def test_summary_of_a_noun_is_its_own_help() -> None:
    for noun, member in NOUNS.items():
        assert summary_of(load(member)) == member.summary, noun


def test_every_command_has_help_and_examples_and_fits_the_screen() -> None:
    for noun, verbs in all_commands().items():
        for verb, command in verbs.items():
            assert summary_of(command).endswith("."), command.name
            assert command.epilog, command.name
            assert all(parameter.help.endswith(".") for parameter in command.params), command.name
            for parameter in command.params:
                sentences = [one.strip(". ").lower() for one in help_of(parameter).split("  ")]
                assert len(set(sentences)) == len(sentences), (command.name, parameter.name)
                reported = [one for one in sentences if "repeat" in one or one.startswith("default:")]
                assert len(reported) == len({one[:7] for one in reported}), (
                    f"{command.name} {parameter.name}: {reported}"
                )
            texts = [command.help, command.epilog, *(param.help for param in command.params)]
            assert not any(re.search(r"\[[a-z#/@]", text) for text in texts), "rich takes this for markup"
            text = help_text(noun if noun == verb else f"{noun} {verb}", command)
            assert max(map(len, text.splitlines())) <= 120, command.name
