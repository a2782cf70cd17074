"""The cache folder for third-party software between test runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """A folder of the tests' own under the XDG cache home, outside of the source tree; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kctl-tests"
