"""What an executor must have installed.  Imports nothing but the standard library, so it can say what is missing."""

from __future__ import annotations

import platform
import socket
import sys
from importlib.util import find_spec

REQUIRED = ("numpy", "pyarrow", "crc32c", "lz4", "cramjam")


def problem() -> str:
    """Why tasks cannot run in this process, with host, Python and packages; empty when they can."""
    missing = [name for name in REQUIRED if find_spec(name) is None]
    if not missing:
        return ""
    return (
        f"on host {socket.gethostname()}, {sys.executable} (Python {platform.python_version()}) lacks "
        f"{', '.join(missing)}: install them there, or set PYSPARK_PYTHON to a Python that has them"
    )
