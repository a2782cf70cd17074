"""The build backend: setuptools, with the man pages, which are generated from the commands.

A source distribution contains them; a wheel that is built from a checkout generates them, too.  Both then need what
kctl itself depends on.  An editable installation has no man pages, and needs nothing more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]
_WRITE = (
    "from pathlib import Path; from kctl.commands.frame.help.documentation import write_man_pages as w; w(Path({!r}))"
)


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """PEP 517."""
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_dependencies()]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """PEP 517."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_dependencies()]


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """PEP 517."""
    _write_man_pages()
    return build_meta.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """PEP 517."""
    _write_man_pages()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def _is_source_distribution() -> bool:
    return Path("PKG-INFO").exists()


def _dependencies() -> list[str]:
    """Return what generating the man pages needs: the dependencies of kctl itself."""
    if _is_source_distribution():
        return []
    return list(tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"])


def _write_man_pages() -> None:
    if _is_source_distribution():
        return
    folder = Path("packaging", "man")
    for outdated in folder.glob("*.1"):
        outdated.unlink()
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", _WRITE.format(str(folder))], env=environment, check=True)
