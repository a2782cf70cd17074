"""What `./dev release` decides: which interpreters it uses, and what the archive for containers has.

tests/integration/test_installation.py builds and installs the distributions.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    """The script; `packaging` is the name of another project's package, too."""
    spec = importlib.util.spec_from_file_location("kctl_release", ROOT / "packaging/release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_interpreter_is_used_only_if_it_has_the_version(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name, program in (
        (f"python{version}", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
        ("python3.98", "#!/bin/sh\nexit 127\n"),
        ("python3.99", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
    ):
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release.interpreter(version) == tmp_path / f"python{version}"
    assert release.interpreter("3.98") is None  # as a shim of pyenv for a version that is not selected
    assert release.interpreter("3.99") is None  # another version


def test_the_archive_for_containers_has_what_the_containerfile_copies(release: ModuleType, tmp_path: Path) -> None:
    text = (ROOT / "packaging/container/Containerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for name in line.split()}
    assert {"kctl", "pyproject.toml"} <= copied
    source = tmp_path / "source"
    files = {f"{name}/file" if (ROOT / name).is_dir() else name for name in copied}
    files.add("packaging/container/Containerfile")
    for name in (*files, "not-copied"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    release.pack_for_containers(source, tmp_path / "context.tar.gz")
    with tarfile.open(tmp_path / "context.tar.gz") as archive:
        assert {member.name for member in archive if member.isfile()} == files


def test_python_versions_are_those_that_the_package_declares(release: ModuleType) -> None:
    declared = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert tuple(declared) == release.VERSIONS
