"""The documentation: pages that texts name exist, pages are short, and links lead to the same page on the site.

`./dev check` builds the site, which finds dead links.
"""

from __future__ import annotations

import re
from pathlib import Path

from docs.site_pages import with_indented_items, with_site_links

ROOT = Path(__file__).parents[2]
LINES_MAX = 400
_NAMED_PAGE = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.md")


def test_pages_that_code_and_texts_name_exist() -> None:
    texts = [*(ROOT / "kctl").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    texts += [*(ROOT / "packaging").rglob("*.md"), *(ROOT / "tests").rglob("*.py")]
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts
        for name in _NAMED_PAGE.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    }
    assert missing == set()


def test_pages_have_at_most_400_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "packaging").rglob("*.md"), *ROOT.glob("*.md")]
    }
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_links_are_those_of_the_site() -> None:
    for source, uri, link, expected in (
        ("docs/lag.md", "lag.md", "[a](top.md#keys)", "[a](top.md#keys)"),
        ("docs/lag.md", "lag.md", "[a](../CONTRIBUTING.md#rules)", "[a](contributing.md#rules)"),
        ("CONTRIBUTING.md", "contributing.md", "[a](docs/lag.md)", "[a](lag.md)"),
        ("packaging/README.md", "packaging.md", "[a](../docs/tables/index.md)", "[a](tables/index.md)"),
        ("docs/tables/index.md", "tables/index.md", "![a](../pictures/top.svg)", "![a](../pictures/top.svg)"),
        ("docs/lag.md", "lag.md", "[code](../kctl/limits.py)", "code"),
        ("docs/lag.md", "lag.md", "[formats](formats)", "[formats](formats/index.md)"),
        ("docs/lag.md", "lag.md", "[a](missing.md)", "[a](missing.md)"),
        ("docs/lag.md", "lag.md", "[a](../missing.md)", "[a](../missing.md)"),
        ("docs/lag.md", "lag.md", "[a](https://example.com/x)", "[a](https://example.com/x)"),
        ("docs/lag.md", "lag.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
        ("docs/lag.md", "lag.md", "[a](reference/cli.md#kctl-top)", "[a](reference/commands/top.md#kctl-top)"),
        ("docs/lag.md", "lag.md", "[a](reference/cli.md#exit-status)", "[a](reference/cli.md#exit-status)"),
    ):
        assert with_site_links(link, source=source, uri=uri) == expected, link


def test_what_belongs_to_an_item_of_a_list_is_indented_by_four_columns() -> None:
    for text, expected in (
        ("1. a:\n\n   ```\n   code\n   ```\n2. b", "1. a:\n\n    ```\n    code\n    ```\n\n2. b"),
        ("- a\n  b\n\n  c\n\nd\n  e", "- a\n    b\n\n    c\n\nd\n  e"),
        ("a:\n- b\n- c", "a:\n\n- b\n- c"),
        ("- a\n  - b\n    c", "- a\n    - b\n      c"),
        ("```\n- a\n  b\n```\n", "```\n- a\n  b\n```"),
        ("- a\n\n```\n  b\n```", "- a\n\n```\n  b\n```"),
    ):
        assert with_indented_items(text) == expected, text
