"""The cache folder for third-party software between test runs."""

from __future__ import annotations

import os
from pathlib import Path

XDG_CACHE_HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
"""Read at import: tests set the variable for kctl."""


def cache_folder() -> Path:
    """A folder of the tests' own under the XDG cache home, outside of the source tree; it may not exist yet."""
    return XDG_CACHE_HOME / "kctl-tests"


def mypy_cache() -> Path:
    """What mypy has found about files, in any folder: it compares their contents, also in a fresh clone."""
    return cache_folder() / "mypy"
