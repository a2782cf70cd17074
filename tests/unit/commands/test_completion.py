"""Completion by the shell: kctl names what fits at the cursor, and real shells insert it as it is."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.commands.completion.command import SCRIPTS
from kctl.commands.completion.complete import complete
from kctl.commands.completion.words import divide, in_bash, is_harmless
from kctl.commands.frame.options.parameters import flags_of, is_argument, is_flag
from kctl.commands.frame.options.vocabulary import (
    Argument,
    Option,
    Values,
    Vocabulary,
    format_vocabulary,
    parse_vocabulary,
)
from kctl.commands.frame.root import NOUNS, all_commands, describe
from kctl.config.topic import TOPIC_PROPERTIES
from tests.peers.fork_server import ROOT
from tests.peers.forked_kctl import write_program
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.completing import Shell
from tests.unit.commands.conftest import Kctl

HOSTILE = (
    'it\'s "a" $HOME $(touch trap) `touch trap` $$',
    ";touch trap&touch trap|touch trap>trap<trap(x)",
    "*?[a]{b,c}#~\\",
    "!x",
    "=a:b,caf\u00e9",
    "end'",
    'end"',
)
NEVER = ("esc\x1b[2J", "new\nline", "tab\tx", "nul\0", "-option", "", "bidi\u202ex", "\ud800")
"""Names that no shell gets."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KCTL_COMPLETION_TIMEOUT", "60s")


def completed(line: str, shell: str = "zsh") -> list[str]:
    """What is offered for the end of a line of words without quotation marks."""
    kind, *lines = (complete([shell, *line.split(" ")[1:]]) or "words").splitlines()
    return [word.partition("\t")[0] for word in lines] if kind in {"words", "unfinished"} else [f"<{kind}>"]


def test_words_that_need_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", "127.0.0.1:1")
    formats = ["table", "plain", "json", "jsonl", "yaml", "csv"]
    for line, expected in (
        ("kctl ", list(NOUNS)),
        ("kctl topi", ["topics"]),
        ("kctl --vers", ["--version"]),
        ("kctl --format ", formats),
        ("kctl topics ", ["list", "describe", "offsets", "create", "alter", "delete", "set-replication"]),
        ("kctl metadata", []),  # earlier names are read and not offered
        ("kctl topics create orders --conf", ["--confirm"]),
        ("kctl --format json topics de", ["describe", "delete"]),
        ("kctl -b 127.0.0.1:9092 topics de", ["describe", "delete"]),
        ("kctl topics --format json de", ["describe", "delete"]),
        ("kctl topics -", ["--help"]),
        ("kctl topics create --part", ["--partitions"]),
        ("kctl topics create orders --format ", formats),
        ("kctl topics create --partitions ", []),
        ("kctl topics list --he", ["--header", "--help"]),
        ("kctl topics list --format=j", ["--format=json", "--format=jsonl"]),
        ("kctl topics list --format=", [f"--format={name}" for name in formats]),
        ("kctl topics list --command-config=x", ["<files>"]),
        ("kctl broker start --data-dir x", ["<directories>"]),
        ("kctl dump-log x", ["<files>"]),
        ("kctl completion ", ["bash", "zsh", "fish"]),
        ("kctl produce orders --compression-codec zs", ["zstd"]),
        ("kctl plan x", ["<files>"]),
        ("kctl -b here:1 reassign plan ", ["drain", "add", "replication-factor", "rebalance"]),
        ("kctl configs describe to", ["topic"]),
        ("kctl topics create x --set cleanup.p", ["cleanup.policy="]),
        ("kctl topics create x --set cleanup.policy=", [f"cleanup.policy={v}" for v in ("compact", "delete")]),
        ("kctl topics create x --set cleanup.policy=compact,d", ["cleanup.policy=compact,delete"]),
        ("kctl topics create x --set=preallocate=t", ["--set=preallocate=true"]),
        ("kctl topics alter x --delete-config cleanup.p", ["cleanup.policy"]),
        ("kctl configs alter topic x --set segment.jitter", ["segment.jitter.ms="]),
        ("kctl configs alter topic x --set retention.ms=", ["retention.ms=604800000"]),
        ("kctl configs alter broker 1 --set log.cleaner.thr", ["log.cleaner.threads="]),
        ("kctl configs alter broker 1 --set zookeeper.co", []),  # cannot be changed there
        ("kctl configs alter user alice --set producer", ["producer_byte_rate="]),
        ("kctl broker start --override zookeeper.connection", ["zookeeper.connection.timeout.ms="]),
        ("kctl broker start --override ssl.keystore.password=", []),
        ("kctl acls add --operation alter_", []),
        ("kctl acls add --operation alter", ["alter", "alterconfigs"]),
        ("kctl nonsense ", []),
        ("kctl topics nonsense ", []),
        ("kctl topics list x ", []),
        ("kctl topics/../x list ", []),
    ):
        assert completed(line) == expected, line
    assert completed("kctl topics create x --set ") == sorted(f"{name}=" for name in TOPIC_PROPERTIES)


def test_names_are_those_of_the_cluster_that_the_line_selects(
    kctl: Kctl, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "payments", "__consumer_offsets"):
        cluster.create(name)
    for group in ("team:billing", "team:audit", *NEVER[:-1]):
        cluster.groups[group] = FakeGroup()
    for line, expected in (
        ("kctl topics describe ", ["orders", "payments"]),
        ("kctl topics describe _", ["__consumer_offsets"]),
        ("kctl consume pay", ["payments"]),
        ("kctl groups history g --topic=or", ["--topic=orders"]),
        ("kctl configs describe topic pa", ["payments"]),
        ("kctl configs describe broker ", ["0", "1"]),
        ("kctl configs describe group team:", ["team:audit", "team:billing"]),
        ("kctl cluster roll --brokers 0,", ["0,0", "0,1"]),
        ("kctl groups describe ", ["team:audit", "team:billing"]),
        ("kctl copy a b --groups team:audit,team:b", ["team:audit,team:billing"]),
    ):
        assert completed(line) == expected, line
    monkeypatch.delenv("KCTL_BOOTSTRAP_SERVER")
    kctl(f"profile add dev --bootstrap-server {cluster.bootstrap}")
    for options in (
        "--profile dev", "--profile=dev", f"-b {cluster.bootstrap}", f"-b{cluster.bootstrap}",
        f"--bootstrap-server={cluster.bootstrap}",
    ):  # fmt: skip
        assert completed(f"kctl {options} topics describe or") == ["orders"], options
        assert completed(f"kctl topics describe {options} or") == ["orders"], options
    assert completed("kctl copy --from-profile dev or") == ["orders"]
    assert completed("kctl topics list --profile d") == ["dev"]
    assert completed("kctl topics describe --profile nonsense ") == []
    kctl("profile use dev")
    assert completed("kctl topics describe or") == ["orders"]


def test_an_error_completes_nothing_and_writes_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cluster that does not respond, too: the time for completion ends it although --timeout is longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("KCTL_COMPLETION_TIMEOUT", "50ms")
        assert completed(f"kctl -b {address} --timeout 5m topics describe ") == []
    (tmp_path / "broken.properties").write_text("security.protocol=NONSENSE\npassword=hunter2\n")
    assert completed(f"kctl topics describe --command-config {tmp_path}/broken.properties ") == []
    assert completed("kctl topics describe -b : ") == []
    monkeypatch.setenv("KCTL_COMPLETION_TIMEOUT", "nonsense")
    assert completed("kctl topics describe ") == []
    (tmp_path / "config" / "kctl").mkdir(parents=True)
    (tmp_path / "config" / "kctl" / "profiles.json").write_text("nonsense")
    assert completed("kctl topics list --profile ") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_shells_insert_what_kctl_names(name: str, cluster: FakeCluster, tmp_path: Path) -> None:
    """Each line is typed in the real shell, which then shows the words that it has understood."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    cluster.create("orders")
    trap = ROOT / "trap"
    for number, group in enumerate(HOSTILE):
        cluster.groups[f"g{number:02}{group}"] = FakeGroup()
    cluster.groups["q'u\"o te"] = FakeGroup()
    cluster.groups["q'u$x"] = FakeGroup()
    for group in NEVER[:-1]:
        cluster.groups[f"never{group}"] = FakeGroup()
    path = f"{write_program(tmp_path / 'programs')}:{os.environ['PATH']}"
    with Shell(name, {**os.environ, "PATH": path}, tmp_path) as shell:
        for typed, expected in (
            ("kctl topi\tdesc\tord\t", ["topics", "describe", "orders"]),
            ("kctl topics list --format=y\t", ["topics", "list", "--format=yaml"]),
            ("kctl -b 127.0.0.1:1 topics cre\tx", ["-b", "127.0.0.1:1", "topics", "create", "x"]),
            ("kctl topics create x --set compression.t\tsn\t",
             ["topics", "create", "x", "--set", "compression.type=snappy"]),
            ("kctl topics list --command-config=pypr\t", ["topics", "list", "--command-config=pyproject.toml"]),
            ("kctl dump-log pypr\t", ["dump-log", "pyproject.toml"]),
            ("kctl 'topics' describe \"ord\t", ["topics", "describe", "orders"]),
            ("kctl topics describe 'ord\t", ["topics", "describe", "orders"]),
            ("kctl groups describe never\t", ["groups", "describe", "never"]),
            *((f"kctl groups describe g{number:02}\t", ["groups", "describe", f"g{number:02}{group}"])
              for number, group in enumerate(HOSTILE)),
            *((f"kctl groups describe 'g{number:02}\t", ["groups", "describe", f"g{number:02}{group}"])
              for number, group in enumerate(HOSTILE) if "'" in group),
        ):  # fmt: skip
            assert shell.run(typed) == expected, typed
        if name == "bash":
            assert shell.run("kctl topics de\x1b*") == ["topics", "delete", "describe"]
            assert shell.run("kctl groups describe 'q'\\''u$\t") == ["groups", "describe", "q'u$x"]
            for number, group in enumerate(HOSTILE):
                if set("$\\\"'").intersection(group):
                    assert shell.run(f'kctl groups describe "g{number:02}\t')[-1] == f"g{number:02}{group}"
            assert shell.run("echo x | X=1 kctl topi\t") == ["topics"]
    assert not trap.exists()


def test_what_bash_replaces_is_completed() -> None:
    """bash divides words at : and =, leaves a backslash with which all names go on, and may be told to divide less."""
    for line, replaced, name, expected in (
        ("kctl groups describe team:b", "b", "team:billing", "billing"),
        ("kctl groups describe team:b", "team:b", "team:billing", "team:billing"),
        ("kctl groups describe --topic=", "", "--topic=x", "x"),
        ("kctl groups describe my\\", "my\\", "my topic", "my\\ topic"),
        ("kctl groups describe 'my t", "my t", "my topic", "my topic"),
        ("kctl groups describe a", "other", "abc", None),
    ):
        assert in_bash([name], divide(line)[-1], replaced) == ([] if expected is None else [expected]), line


@pytest.mark.long
def test_shells_understand_the_scripts_and_kctl_prints_them(kctl: Kctl) -> None:
    for shell, name in SCRIPTS.items():
        path = ROOT / "completions" / name
        assert kctl(f"completion {shell}").out == path.read_text()
        assert len(path.read_text().splitlines()) < 60
        if shutil.which(shell):
            subprocess.run([shell, "-n", path], check=True)
    if shutil.which("zsh"):
        line = f"autoload -Uz compinit; compinit -D -u; source {ROOT}/completions/_kctl; print $_comps[kctl]"
        ran = subprocess.run(["zsh", "-f", "-c", line], capture_output=True, text=True, check=True)
        assert (ran.stdout, ran.stderr) == ("_kctl\n", "")


def test_every_option_of_every_command_completes() -> None:
    for noun, verbs in all_commands().items():
        for verb, command in verbs.items():
            described = describe(noun if noun == verb else f"{noun} {verb}")
            assert described is not None
            vocabulary = parse_vocabulary(described.words)
            assert format_vocabulary(vocabulary) == described.words
            options = [param for param in command.params if not is_argument(param)]
            assert [option.flags for option in vocabulary.options] == [flags_of(param) for param in options]
            assert [option.values is None for option in vocabulary.options] == [*map(is_flag, options)]
            assert len(vocabulary.arguments) == len(command.params) - len(options)


@given(st.text(st.characters(exclude_categories=["C"])), st.sampled_from(["", "'"]))
def test_bash_gets_back_the_name_that_it_inserts(name: str, quote: str) -> None:
    """shlex divides words as a POSIX shell does, without the expansions of one."""
    if not is_harmless(name):
        return
    inserted = in_bash([name], divide(f"kctl groups describe {quote}")[-1], "")
    closing = "" if inserted[0].endswith(quote) else quote  # as bash adds it
    assert shlex.split(f"{quote}{inserted[0]}{closing}") == [name]


@given(st.lists(st.text()), st.text())
def test_completion_of_any_line_ends_without_an_error(words: list[str], line: str) -> None:
    assert complete(words) == "" or words[0] in {"bash", "zsh", "fish"}
    assert complete(["bash", "", f"kctl {line}"]).splitlines()[0] in {"words", "unfinished", "files", "directories"}
    assert all(word.raw in line for word in divide(line))
    assert not any(map(is_harmless, NEVER))


def test_vocabulary_is_read_as_it_was_written() -> None:
    vocabulary = Vocabulary(
        (("list", "List topics."),),
        (Option(("-n", "--number"), Values(), "A number."), Option(("--all",), None, "All.")),
        (Argument(Values("choices", ("a", "b")), repeats=False), Argument(Values("groups", is_list=True), True)),
    )
    assert parse_vocabulary(format_vocabulary(vocabulary)) == vocabulary
    with pytest.raises(ValueError, match="vocabulary"):
        parse_vocabulary("nonsense")


@pytest.mark.long
def test_completion_without_names_imports_neither_typer_nor_the_client() -> None:
    code = (
        "import sys; from kctl.cli import main; main(['__complete', 'zsh', 'topics', 'create', '--par']);"
        "print([name for name in ('typer', 'click', 'rich', 'asyncio', 'json', 'kctl.client') if name in sys.modules])"
    )
    for _ in range(2):  # The first time describes the commands.
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.splitlines()[-1] == "[]"
