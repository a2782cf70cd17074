"""What is generated from the commands: help, man pages, schemas."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from docs.reference.generate import schemas
from kctl.commands.frame.help.command_cache import COMMAND_CACHE_FILES_MAX, Described, read_described
from kctl.commands.frame.help.documentation import man_pages, write_man_pages
from kctl.commands.frame.help.help_pages import PAGE_COLUMNS, described, page_for
from kctl.commands.frame.help.text import summary_of
from kctl.commands.frame.lazy_group import load
from kctl.commands.frame.options.parameters import flags_of, help_of
from kctl.commands.frame.output.shown import shown_by
from kctl.commands.frame.root import NOUNS, all_commands, help_text
from kctl.output.console import columns_of
from tests.unit.commands.conftest import Kctl

ROOT = Path(__file__).parent.parent.parent.parent


def test_man_pages_have_each_command_and_option() -> None:
    pages = man_pages(all_commands())
    for noun, verbs in all_commands().items():
        text = pages[f"kctl-{noun}.1"].replace("\\-", "-")
        for verb, command in verbs.items():
            assert f".B kctl {noun}" + ("" if noun == verb else f" {verb}") in text
            assert all(flag in text for param in command.own_params for flag in flags_of(param)), (noun, verb)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_finds_nothing_wrong_in_the_man_pages(tmp_path: Path) -> None:
    write_man_pages(tmp_path)
    pages = sorted(tmp_path.glob("*.1"))
    assert [page.name for page in pages] == sorted(["kctl.1", *(f"kctl-{noun}.1" for noun in NOUNS)])
    ran = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", *pages], capture_output=True, text=True, check=True)
    assert ran.stderr == ""


WITHOUT_ROWS = {
    "acls export", "broker stop", "completion", "groups export", "mcp", "metrics serve",
    "broker zookeeper-start",
}  # fmt: skip


def test_schemas_of_the_output_are_as_ever() -> None:
    """A difference is a change of what scripts depend on: members may be added, but neither renamed nor removed."""
    folder = ROOT / "tests" / "golden" / "schemas"
    assert {f"tests/golden/schemas/{path.name}": path.read_text() for path in folder.glob("*.json")} == schemas(), (
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


@pytest.mark.long
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
                sentences = [word.strip(". ").lower() for word in help_of(parameter).split("  ")]
                assert len(set(sentences)) == len(sentences), (command.name, parameter.name)
                reported = [
                    sentence for sentence in sentences if "repeat" in sentence or sentence.startswith("default:")
                ]
                assert len(reported) == len({row[:7] for row in reported}), (
                    f"{command.name} {parameter.name}: {reported}"
                )
            texts = [command.help, command.epilog, *(param.help for param in command.params)]
            assert not any(re.search(r"\[[a-z#/@]", text) for text in texts), "rich takes this for markup"
            text = help_text(noun if noun == verb else f"{noun} {verb}", command)
            assert max(map(len, text.splitlines())) <= 120, command.name


# Help is made once and then read from a file of the user.


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for descriptions of commands."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kctl" / "commands"


def test_description_is_read_from_a_private_file(cache: Path) -> None:
    made = described("topics create")
    (file,) = cache.iterdir()
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(cache.stat().st_mode)) == (0o600, 0o700)
    file.write_text(file.read_text().replace("Create topics", "CREATE TOPICS"))
    read = described("topics create")
    assert made is not None
    assert read == Described(*(text.replace("Create topics", "CREATE TOPICS") for text in made))
    for name in ("nonsense", "topics nonsense", "topics create x", "../../topics", "plan plan"):
        assert described(name) is None, name
    assert list(cache.iterdir()) == [file]


def test_description_is_made_again_when_a_source_file_has_changed(cache: Path) -> None:
    made = described("topics list")
    (file,) = cache.iterdir()
    (source,) = (line for line in file.read_text().splitlines() if line.endswith("/kctl/commands/topics/list.py"))
    time_ns, size, path = source.split(" ", 2)
    for changed in (f"1 {size} {path}", f"{time_ns} 1 {path}", f"{time_ns} {size} {path}.old"):
        file.write_text(file.read_text().replace(source, changed).replace("List topics", "OLD"))
        assert read_described("topics list") is None, changed
        assert described("topics list") == made
        assert source in file.read_text()


def test_description_that_another_user_could_have_written_is_not_read(cache: Path, tmp_path: Path) -> None:
    made = described("topics list")
    (file,) = cache.iterdir()
    text = file.read_text()
    for path, mode in ((file, 0o622), (cache, 0o777), (cache, 0o720), (cache.parent, 0o722)):
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode)
        assert read_described("topics list") is None, (path, mode)
        assert described("topics list") == made
        path.chmod(before)
    for damaged in ("", "nonsense", text.partition("\f")[0], text.replace("cpython", "other", 1)):
        file.write_text(damaged)
        assert read_described("topics list") is None, damaged
    file.write_bytes(b"\xff" + text.encode())
    assert read_described("topics list") is None
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text(text)
    assert read_described("topics list") is None
    if os.geteuid() == 0:
        file.unlink()
        file.write_text(text)
        os.chown(file, 12345, 12345)
        assert read_described("topics list") is None


def test_cache_that_cannot_be_written_is_no_error(kctl: Kctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (str(tmp_path / "file"), "relative", f"{tmp_path}/\udcff"):
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        ran = kctl("topics list --help")
        assert (ran.status, ran.err) == (0, "")
        assert ran.out.startswith("Usage: kctl topics list")
    assert not Path("relative").exists()


def test_number_of_stored_descriptions_is_bounded(cache: Path) -> None:
    described("topics list")
    for number in range(COMMAND_CACHE_FILES_MAX + 5):
        (cache / f"old-{number}").write_text("")
        os.utime(cache / f"old-{number}", (number, number))
    described("topics create")
    names = {entry.name for entry in cache.iterdir()}
    assert len(names) == COMMAND_CACHE_FILES_MAX
    assert "old-0" not in names
    assert sum("-topics." in name for name in names) == 2
