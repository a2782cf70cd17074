"""The table of known attacks in docs/security.md names tests that exist and that name the vulnerability."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.rows import for_rows

ROOT = Path(__file__).parents[2]
CVE = re.compile(r"CVE-\d{4}-\d+")
TEST = re.compile(r"`(tests/[^`]+)`")


def rows() -> list[tuple[list[str], list[str]]]:
    """The vulnerabilities of each row, and its tests; none for a row without one."""
    text = (ROOT / "docs/security.md").read_text()
    section = text.partition("## Known attacks on Kafka and ZooKeeper")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| CVE")]
    return [(CVE.findall(row[0]), TEST.findall(row[3])) for row in cells]


def docstring_of(test: str) -> str:
    """The docstring of path::function; fails if there is no such function."""
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return ast.get_docstring(function) or ""


def test_the_table_has_every_vulnerability_once() -> None:
    listed = [cve for cves, _ in rows() for cve in cves]
    assert len(listed) == len(set(listed)) > 20


@for_rows("cves, tests", [row for row in rows() if row[1]])
def test_the_named_tests_exist_and_name_the_vulnerabilities(cves: list[str], tests: list[str]) -> None:
    named = [set(CVE.findall(docstring_of(test))) for test in tests]
    assert set(cves) <= set().union(*named)
    assert all(words & set(cves) for words in named)
