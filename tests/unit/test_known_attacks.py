"""The table of known attacks in docs/security.md names tests that exist and that name the vulnerability."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CVE = re.compile(r"CVE-\d{4}-\d+")


def rows() -> list[tuple[list[str], str]]:
    """The vulnerabilities of each row, and its test; "" for a row without one."""
    text = (ROOT / "docs/security.md").read_text()
    section = text.partition("## Known attacks on Kafka and ZooKeeper")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| CVE")]
    return [(CVE.findall(row[0]), row[3].strip().strip("`")) for row in cells]


def docstring_of(test: str) -> str:
    """The docstring of path::function; fails if there is no such function."""
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return ast.get_docstring(function) or ""


def test_the_table_has_every_vulnerability_once() -> None:
    listed = [cve for cves, _ in rows() for cve in cves]
    assert len(listed) == len(set(listed)) > 20


@pytest.mark.parametrize(("cves", "test"), [row for row in rows() if row[1]], ids=lambda value: str(value)[:40])
def test_the_named_test_exists_and_names_the_vulnerability(cves: list[str], test: str) -> None:
    docstring = docstring_of(test)
    assert [cve for cve in cves if cve not in docstring] == []
