"""Names that a shell completes: commands store what they have listed, and completion reads it without a connection."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.commands.completion.names import completions, matching
from kctl.commands.frame.name_cache import (
    NAME_CACHE_AGE_MAX_S,
    NAME_CACHE_FILES_MAX,
    NAME_CACHE_NAMES_MAX,
    cluster_key,
    is_harmless,
    store_names,
    stored_names,
)
from tests.peers.forked_kctl import ROOT
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.commands.completing import in_bash, in_zsh
from tests.unit.commands.conftest import Kctl

KEY = cluster_key("a:1", None, None)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "cache" / "kctl" / "names"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `kctl`, for PATH."""
    program = tmp_path / "programs" / "kctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kctl "$@"\n')
    program.chmod(0o755)
    return program.parent


def completed(kind: str, word: str, line: str) -> list[str]:
    return completions([kind, word, line]).splitlines()


def test_list_stores_names_in_a_private_file(kctl: Kctl, cluster: FakeCluster, folder: Path) -> None:
    for name in ("orders", "payments"):
        cluster.create(name)
    kctl("topics list")
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert completed("topics", "or", "kctl topics describe or") == ["orders"]
    assert completed("topics", "", "kctl topics describe ") == ["orders", "payments"]
    kctl("cluster describe")
    assert completed("brokers", "", "kctl reassign plan drain ") == ["0", "1"]
    assert completed("groups", "", "kctl groups describe ") == []


def test_names_of_each_cluster_and_profile_are_kept_apart(
    kctl: Kctl, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KCTL_BOOTSTRAP_SERVER")
    cluster.create("orders")
    kctl(f"profile add dev --bootstrap-server {cluster.bootstrap}")
    kctl("topics list --profile dev")
    assert completed("topics", "", "kctl topics describe --profile dev ") == ["orders"]
    assert completed("topics", "", "kctl topics describe --profile=dev ") == ["orders"]
    assert completed("topics", "", "kctl topics describe --profile prod ") == []
    assert completed("topics", "", "kctl topics describe ") == []
    assert completed("topics", "", "kctl topics describe --bootstrap-server b:1 ") == []
    kctl("profile use dev")
    assert completed("topics", "", "kctl topics describe ") == ["orders"]
    assert completed("profiles", "d", "kctl topics list --profile d") == ["dev"]


def test_names_expire(folder: Path) -> None:
    now_s = time.time()
    store_names(os.environ, "topics", KEY, ["orders"], now_s=now_s)
    assert stored_names(os.environ, "topics", KEY, now_s=now_s + 1) == ["orders"]
    assert stored_names(os.environ, "topics", KEY, now_s=now_s + NAME_CACHE_AGE_MAX_S + 1) == []


def test_unchanged_names_are_not_written_again(folder: Path) -> None:
    now_s = time.time()
    store_names(os.environ, "topics", KEY, ["orders"], now_s=now_s)
    (first,) = [entry.inode() for entry in os.scandir(folder)]
    store_names(os.environ, "topics", KEY, ["orders"], now_s=now_s)
    assert [entry.inode() for entry in os.scandir(folder)] == [first]
    store_names(os.environ, "topics", KEY, ["orders", "new"], now_s=now_s)
    assert stored_names(os.environ, "topics", KEY, now_s=now_s) == ["new", "orders"]


def test_number_of_names_and_files_is_bounded(folder: Path) -> None:
    now_s = time.time()
    store_names(os.environ, "topics", KEY, (f"t{i:06}" for i in range(NAME_CACHE_NAMES_MAX + 5)), now_s=now_s)
    assert len(stored_names(os.environ, "topics", KEY, now_s=now_s)) == NAME_CACHE_NAMES_MAX
    for number in range(NAME_CACHE_FILES_MAX + 5):
        store_names(os.environ, "groups", cluster_key(f"a:{number}", None, None), ["g"], now_s=now_s)
    assert len(list(folder.iterdir())) == NAME_CACHE_FILES_MAX


def test_cache_that_cannot_be_written_is_no_error(
    kctl: Kctl, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cluster.create("orders")
    ran = kctl("topics list")
    assert (ran.status, ran.err) == (0, "")


HOSTILE = (
    "$(touch x)",
    "`touch x`",
    "a;touch x",
    "--yes",
    "-h",
    "a b",
    "a'b",
    'a"b',
    "a\nb",
    "*",
    "~",
    "\x1b[2J",
    "",
    "ü",
)


@for_rows("name", HOSTILE)
def test_name_that_a_shell_could_interpret_is_not_stored(name: str) -> None:
    assert not is_harmless(name)
    store_names(os.environ, "groups", KEY, [name, "good"], now_s=time.time())
    assert stored_names(os.environ, "groups", KEY, now_s=time.time()) == ["good"]


@given(st.text())
def test_harmless_names_mean_themselves_in_a_shell(name: str) -> None:
    special = set(" \t\n\\\"'`$&|;<>()[]{}*?!#~=^")
    if is_harmless(name):
        assert not special.intersection(name)
        assert not name.startswith("-")
        assert name.isascii()
        assert name.isprintable()


def test_bash_completes_names_and_never_runs_them(environment: dict[str, str], tmp_path: Path, folder: Path) -> None:
    """Even a file that another program has filled with shell code has no effect."""
    now_s = time.time()
    key = cluster_key(None, None, None)
    store_names(os.environ, "topics", key, ["orders", "orders-dlq", "payments"], now_s=now_s)
    (file,) = folder.iterdir()
    trap = tmp_path / "trap"
    file.write_text(file.read_text() + f"$(touch {trap})\n`touch {trap}`\norders;touch {trap}\n")
    assert in_bash("kctl topics describe or", environment) == ["orders", "orders-dlq"]
    assert in_bash("kctl topics describe ", environment) == ["orders", "orders-dlq", "payments"]
    assert in_bash("kctl consume pay", environment) == ["payments"]
    assert in_bash("kctl configs describe topic pa", environment) == ["payments"]
    assert in_bash("kctl configs describe to", environment) == ["topic"]
    assert in_bash("kctl groups history g --topic pa", environment) == ["payments"]
    assert in_bash("kctl topics describe $(touch", environment) == []
    assert not trap.exists()


@pytest.fixture
def environment(programs: Path) -> dict[str, str]:
    """With `kctl` on the PATH."""
    without = {name: value for name, value in os.environ.items() if name != "KCTL_BOOTSTRAP_SERVER"}
    return {**without, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def store(names: list[str], bootstrap: str | None = None) -> None:
    store_names(os.environ, "topics", cluster_key(bootstrap, None, None), names, now_s=time.time())


def test_bash_completes_names_in_words_that_it_divides(environment: dict[str, str]) -> None:
    """At colons and equals signs: addresses of brokers, names, and options with their value."""
    store(["orders"])
    store(["billing"], "here:1")
    assert in_bash("kctl groups history g --topic=or", environment) == ["orders"]
    for option in ("-b here:1", "-bhere:1", "--bootstrap-server here:1", "--bootstrap-server=here:1"):
        assert in_bash(f"kctl {option} topics describe ", environment) == ["billing"]


def test_zsh_completes_names_in_words_with_an_option(environment: dict[str, str]) -> None:
    """Runs zsh if it is installed."""
    store(["orders"])
    assert completed("topics", "or", "kctl groups history g --topic=or") == ["orders"]
    assert completed("topics", "--topic=or", "kctl groups history g --topic=or") == ["orders"]
    if shutil.which("zsh"):
        assert "kctl groups history g --topic=orders" in in_zsh(
            "kctl groups history g --topic=or", "orders", environment
        )
        in_zsh("kctl -b here:1 topics de", "describe", environment)


@pytest.mark.parametrize(
    ("word", "line", "expected"),
    [
        ("b", "kctl groups describe team:b", ["billing"]),
        ("team:b", "kctl groups describe team:b", ["team:billing"]),
        ("team:audit,team:b", "kctl copy a b --groups team:audit,team:b", ["team:audit,team:billing"]),
        ("x", "kctl groups describe x", []),
        ("", "kctl groups describe ", ["team:billing"]),
    ],
)
def test_word_that_bash_has_divided_at_a_colon_is_completed(word: str, line: str, expected: list[str]) -> None:
    assert matching(["team:billing"], word, line) == expected


@given(st.text(), st.text(), st.text())
def test_completion_never_fails(kind: str, word: str, line: str) -> None:
    assert completions([kind, word, line]) == "" or kind in {"topics", "groups"}
    assert completions([word]) == ""
    for name in matching(["orders", "a:b"], word, line):
        assert name == "" or is_harmless(name) or "," in word


def test_completion_imports_neither_typer_nor_the_client() -> None:
    code = (
        "import sys; from kctl.cli import main; main(['__names', 'topics', '', 'kctl topics describe ']);"
        "print([name for name in ('typer', 'click', 'rich', 'asyncio', 'kctl.client') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout == "[]\n"
