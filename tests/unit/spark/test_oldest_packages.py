"""Packages of exports that are older than the distribution allows; pip does not replace one that is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from kctl.tables.exec.targets.target import OLDEST_VERSIONS, PackageMissing, require_package

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.mark.parametrize("package", OLDEST_VERSIONS)
def test_a_package_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """With deltalake 1.5, the records of each batch but the first were there again after the next run."""
    major, minor = OLDEST_VERSIONS[package]
    project = tomllib.loads(PROJECT.read_text())["project"]
    (extra,) = (
        name
        for name, texts in project["optional-dependencies"].items()
        if any(re.fullmatch(rf"{package}(\[.*\])?>={major}\.{minor}", text) for text in texts)
    )
    require_package(package, extra=extra)
    for version, is_refused in ((f"{major}.{minor - 1}.9", True), (f"{major}.{minor}.0rc1", False)):
        metadata = tmp_path / version / f"{package}-{version}.dist-info/METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path / version))
        if is_refused:
            with pytest.raises(PackageMissing, match=rf"{package} {version} is too old, {major}\.{minor} or later"):
                require_package(package, extra=extra)
        else:
            require_package(package, extra=extra)
