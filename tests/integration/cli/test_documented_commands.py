"""The commands of the README, of the first page and of the tutorials work as they are printed.

Each page is run by bash in a network namespace of its own, because its broker listens on port 9092.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.terminal_pictures import README_PICTURE, first_steps
from tests.peers.forked_kctl import write_program

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 240
NAMESPACE = ("unshare", "--net", "--")
CAN_MAKE_NAMESPACES = subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode == 0
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"`(\w+\.py)`[^`]*\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(
    not CAN_MAKE_NAMESPACES, reason="needs root, for a network namespace in which port 9092 is free"
)


class Example(NamedTuple):
    """A page with commands, and what their output has."""

    page: str
    shows: tuple[str, ...]
    not_run: tuple[str, ...] = ()
    """Lines that install kctl, which tests/integration/test_installation.py does."""


USUAL = (
    Example("README.md", ("broker serving on 127.0.0.1:9092", "first order"), ("pip install .",)),
    Example("docs/index.md", ("3 apples", "2 plums", "billing", '"topic":"orders"', "stopped the broker")),
    Example("docs/tutorials/test-with-it.md", ("2 passed",)),
)
MORE = (
    Example("docs/tutorials/administer-a-cluster.md", ("billing", "would be", "changed", "stopped")),
    Example("docs/tutorials/topics-to-tables.md", ("[('DE', 1000)]", "('FR', 500)", "equal")),
    Example("docs/tutorials/secure-it.md", ("User:alice", "allowed", "1 record to orders")),
)


def lines_of(example: Example) -> list[str]:
    """The command lines of the page, without their output."""
    blocks = _BLOCK.findall((ROOT / example.page).read_text(encoding="utf-8"))
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert set(example.not_run) <= set(lines)
    return [line for line in lines if line not in example.not_run]


def run(example: Example, folder: Path) -> str:
    """What is wrong with the page, with the output of its commands; empty if all of them succeed as printed."""
    folder.mkdir()
    for name, program in _PYTHON.findall((ROOT / example.page).read_text(encoding="utf-8")):
        (folder / name).write_text(program)
    stop = "trap '(kctl broker stop; kctl cluster stop) >/dev/null 2>&1 || true' EXIT"
    environment = {
        "HOME": str(folder),
        "PATH": f"{write_program(folder / 'bin')}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
    }
    ran = subprocess.run(
        [*NAMESPACE, "bash", "-e", "-o", "pipefail", "-c", "\n".join([stop, "ip link set lo up", *lines_of(example)])],
        cwd=folder, env=environment, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    missing = [text for text in example.shows if text not in ran.stdout]
    if ran.returncode == 0 and not missing:
        return ""
    return f"{example.page}: status {ran.returncode}, {missing} not shown\n{ran.stdout[-2000:]}"


@pytest.mark.parametrize("examples", [USUAL, pytest.param(MORE, marks=pytest.mark.matrix)], ids=["usual", "more"])
def test_commands_of_pages_work_as_printed(examples: Sequence[Example], tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(examples)) as pool:
        folders = [tmp_path / str(number) for number in range(len(examples))]
        problems = [problem for problem in pool.map(run, examples, folders) if problem]
    assert not problems, "\n".join(problems)


def test_picture_in_the_readme_is_what_the_commands_show() -> None:
    stored = (ROOT / "docs/pictures" / README_PICTURE).read_text(encoding="utf-8")
    assert f"docs/pictures/{README_PICTURE}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert text_of(first_steps()) == text_of(stored)


def text_of(picture: str) -> list[str]:
    """Return the texts in an SVG file."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture)
