"""Checks the packages of an executor.  Imports only the standard library, so that it can report missing ones."""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec

REQUIRED = ("numpy", "pyarrow", "crc32c", "lz4", "cramjam")


def problem(packages: Sequence[str] = ()) -> str:
    """Why tasks cannot run in this process, with host, Python and packages; empty if they can.

    `packages` are those that the tasks need beside REQUIRED.
    """
    missing = [name for name in (*REQUIRED, *packages) if _is_missing(name)]
    if not missing:
        return ""
    return (
        f"on host {socket.gethostname()}, {sys.executable} (Python {platform.python_version()}) lacks "
        f"{', '.join(missing)}: install them there, or set PYSPARK_PYTHON to a Python that has them"
    )


def _is_missing(name: str) -> bool:
    try:
        return find_spec(name) is None
    except ModuleNotFoundError:  # the parent of a package is missing
        return True
