"""Checks the packages of an executor.  Imports only the standard library, so that it can report missing ones."""

from __future__ import annotations

import platform
import socket
import sys
from importlib.util import find_spec

REQUIRED = ("numpy", "pyarrow", "crc32c", "lz4", "cramjam")


def problem() -> str:
    """Why tasks cannot run in this process, with host, Python and packages; empty if they can."""
    missing = [name for name in REQUIRED if find_spec(name) is None]
    if not missing:
        return ""
    return (
        f"on host {socket.gethostname()}, {sys.executable} (Python {platform.python_version()}) lacks "
        f"{', '.join(missing)}: install them there, or set PYSPARK_PYTHON to a Python that has them"
    )
