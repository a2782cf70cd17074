"""The page about exports has the figures of benchmarks/README.md, which are measured and entered there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def rows(heading: str) -> dict[str, list[list[str]]]:
    """The cells of the tables below a heading of benchmarks/README.md, by the first cell, without brackets."""
    text = (ROOT / "benchmarks" / "README.md").read_text().split(f"\n### {heading}\n")[1].split("\n### ")[0]
    found: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            first, *cells = (cell.strip(" []") for cell in line.strip("|").split("|"))
            found.setdefault(first, []).append(cells)
    return found


def paragraph(beginning: str) -> str:
    """A paragraph of the page, on one line."""
    text = (ROOT / "docs" / "tables" / "index.md").read_text()
    return " ".join(text[text.index(beginning) :].split("\n\n")[0].split())


def test_the_ratios_to_the_connector_are_those_of_the_benchmarks() -> None:
    found = paragraph("`python -m benchmarks.export --spark --connector`")
    pattern = (
        r"`kctl export` was (.+?) \(1 KB values\) and (.+?) \(100 B\).*`kctl export --engine spark` (.+?) and (.+?),"
    )
    documented = re.search(pattern, found)
    assert documented
    local, spark = rows("Exports")["to the connector"]
    assert list(documented.groups()) == [*local[:2], *spark[:2]]


def test_the_ratios_of_the_decoder_are_those_of_the_benchmarks() -> None:
    found = paragraph("`python -m benchmarks.spark_decode`")
    pattern = (
        r"It was (.+?) times .* 100-byte values, (.+?) times with lz4, (.+?) times for 1 KB values and (.+?) times"
    )
    documented = re.search(pattern, found)
    assert documented
    table = rows("Exports")
    measured = [table[values][0][0] for values in ("100 B", "100 B, lz4", "1 KB", "1 KB, lz4")]
    assert list(documented.groups()) == measured
