"""The error of an executor without a required package names host, Python and packages."""

from __future__ import annotations

import pickle
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.tables.engines.package import build_package
from kctl.tables.exec.worker import problem


def test_installed_packages_are_no_problem() -> None:
    assert problem() == ""


def test_a_python_without_packages_names_host_python_and_packages(tmp_path: Path) -> None:
    """-S: without site-packages, as in an empty environment."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from kctl.tables.exec.worker import run_pickled\n"
        "print(run_pickled(b'unpickling this would fail', sys.argv[1]).message)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(build_package(tmp_path))]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert output.startswith(
        f"on host {socket.gethostname()}, {sys.executable} (Python {platform.python_version()}) lacks"
    )
    assert "numpy, pyarrow, crc32c, lz4, cramjam" in output
    assert "PYSPARK_PYTHON" in output


def test_a_package_that_cannot_be_imported_is_named_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed packages may lack a library, or a package that they need."""
    (tmp_path / "broken_library.py").write_text("raise ImportError('libarrow.so.2600: cannot open shared object file')")
    (tmp_path / "needs_another.py").write_text("import not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    for name, error in (
        ("broken_library", "ImportError: libarrow.so.2600: cannot open shared object file"),
        ("needs_another", "ModuleNotFoundError: No module named 'not_installed'"),
    ):
        assert f"cannot import {name} ({error})" in problem([name])
    assert " lacks not_installed.codec and cannot import broken_library" in problem(
        ["not_installed.codec", "broken_library"]
    )


def test_an_outcome_can_be_read_where_nothing_is_installed(tmp_path: Path) -> None:
    """On the driver: the classes of outcomes require no packages."""
    from kctl.tables.exec.outcome import FileOutcome  # noqa: PLC0415 - beside its pickle

    code = "import sys, pickle; sys.path.insert(0, sys.argv[1]); pickle.load(sys.stdin.buffer)"
    command = [sys.executable, "-I", "-S", "-c", code, str(build_package(tmp_path))]
    subprocess.run(command, input=pickle.dumps(FileOutcome()), check=True, capture_output=True, timeout=60)
