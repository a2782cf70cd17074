"""`./dev test` runs every test once."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("dev", str(ROOT / "dev"))
    spec = importlib.util.spec_from_loader("dev", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def is_selected(file: str, arguments: list[str]) -> bool:
    """Whether pytest with these arguments runs the file."""

    def is_at_or_below(path: str) -> bool:
        return file == path or file.startswith(f"{path}/")

    ignored = [word.removeprefix("--ignore=") for word in arguments if word.startswith("--ignore=")]
    return any(is_at_or_below(word) for word in arguments) and not any(map(is_at_or_below, ignored))


def test_each_test_file_is_in_one_part(dev: ModuleType) -> None:
    parts = list(dev.parts(dev.PARTS_OF_THE_TESTS))
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert files
    assert {file: sum(is_selected(file, part) for part in parts) for file in files} == dict.fromkeys(files, 1)


@pytest.mark.parametrize("name", ["PARTS_OF_THE_TESTS", "PARTS_OF_THE_FAST_TESTS"])
def test_paths_of_parts_exist(dev: ModuleType, name: str) -> None:
    paths = [path for part in getattr(dev, name) for path in part]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_downloads_need_no_package_that_is_not_installed_yet(dev: ModuleType) -> None:
    """They run beside the installation."""
    program = f"import {', '.join(dev.TEST_DOWNLOADS)}"
    ran = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
