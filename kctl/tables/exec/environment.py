"""Checks the packages of an executor.  Imports only the standard library, so that it can report missing ones."""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Sequence
from importlib import import_module

REQUIRED = ("numpy", "pyarrow", "crc32c", "lz4", "cramjam")


def problem(packages: Sequence[str] = ()) -> str:
    """Why tasks cannot run in this process, with host, Python and packages; empty if they can.

    `packages` are those that the tasks need beside REQUIRED.  They are imported, because an installed package may lack
    a library of its own or be for another Python.
    """
    missing: list[str] = []
    broken = ""
    for name in (*REQUIRED, *packages):
        try:
            import_module(name)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                missing.append(name)
            else:
                broken = broken or f"cannot import {name} ({type(error).__name__}: {error})"
    if not missing and not broken:
        return ""
    complaints = [f"lacks {', '.join(missing)}" if missing else "", broken]
    return (
        f"on host {socket.gethostname()}, {sys.executable} (Python {platform.python_version()}) "
        f"{' and '.join(filter(None, complaints))}: install them there, or set PYSPARK_PYTHON to a Python that has them"
    )
