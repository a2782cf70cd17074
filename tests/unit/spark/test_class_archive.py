"""Location and use of the archive of Java classes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kctl.tables.engines.submission import archive_path, use_option


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_an_archive_is_used_once_it_is_there() -> None:
    assert not use_option()
    path = archive_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"classes")
    assert use_option() == f"-XX:SharedArchiveFile={path}"


def test_a_pyspark_in_another_folder_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM would not use the archive, whose jars have other paths or times."""
    before = archive_path()
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    jars.with_name("__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    elsewhere = archive_path()
    assert elsewhere != before
    os.utime(jars, ns=(0, 0))
    assert archive_path() not in {before, elsewhere}
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert archive_path() not in {before, elsewhere}


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive_path()
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert archive_path() != before
