"""Why typer is capped, and when the cap can be removed: docs/decisions/command-line-start.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PIP_TIMEOUT_S = 120
CODE = """
import sys
import typer

app = typer.Typer()

@app.command()
def hello(count: int = 1) -> None: ...

typer.main.get_command(app).main([], standalone_mode=False)
print("pydantic" in sys.modules)
"""


def test_installed_typer_starts_without_pydantic() -> None:
    assert imports_pydantic([]) is False


@pytest.mark.matrix
def test_newest_typer_still_imports_pydantic(tmp_path: Path) -> None:
    """When this fails, remove the cap on typer in pyproject.toml, measure, and remove this module."""
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--target", str(tmp_path)]
    pip = [sys.executable, "-m", "pip", "install", *options, "typer"]
    ran = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=PIP_TIMEOUT_S)
    if ran.returncode:
        pytest.skip("the newest typer cannot be fetched")
    assert imports_pydantic([str(tmp_path)]) is True


def imports_pydantic(path: list[str]) -> bool:
    code = f"import sys; sys.path[:0] = {path!r}\n{CODE}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.strip() == "True"
