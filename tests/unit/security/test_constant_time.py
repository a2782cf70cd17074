"""Secrets are compared by hmac.compare_digest only, checked in the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.rows import for_rows

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted(
    path
    for folder in ("kctl/security", "kctl/server/security/sasl", "kctl/server/security/tokens")
    for path in (ROOT / folder).glob("*.py")
)
SECRET = re.compile(
    r"password|secret|proof|signature|stored_key|server_key|client_key|nonce|hmac|digest", re.IGNORECASE
)
OPERATORS = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def compared_secrets(source: str) -> list[str]:
    """The comparisons by an operator with a name or attribute of a secret, outside a call of len; not constants."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(op, OPERATORS) for op in node.ops):
            for side in (node.left, *node.comparators):
                name = side.id if isinstance(side, ast.Name) else side.attr if isinstance(side, ast.Attribute) else ""
                if SECRET.search(name) and not name.isupper():
                    found.append(ast.unparse(node))
    return found


@for_rows("path", MODULES)
def test_secrets_are_never_compared_by_an_operator(path: Path) -> None:
    """CVE-2021-38153."""
    assert compared_secrets(path.read_text()) == []


def test_the_check_finds_comparisons() -> None:
    assert compared_secrets("a.password == b") == ["a.password == b"]
    assert compared_secrets("if x != stored_key: pass") == ["x != stored_key"]
    assert compared_secrets("len(proof) != 3 or hmac.compare_digest(a, b)") == []
