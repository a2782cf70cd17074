"""Entry point of a Spark task.  Imports only the standard library, so that it can report missing packages."""

from __future__ import annotations

import pickle
import platform
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from kctl.tables.exec.outcome import Failure, FileOutcome

REQUIRED = ("numpy", "pyarrow", "crc32c", "lz4", "cramjam")


def problem(packages: Sequence[str] = ()) -> str:
    """Return why tasks cannot run in this process, with host, Python and packages; empty if they can.

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


def run_pickled(pickled: bytes, progress_directory: str) -> FileOutcome:
    """Run a pickled FileTask; missing packages are an outcome too."""
    if text := problem():
        return FileOutcome(failure=Failure.FAILED, message=text)
    from kctl.tables.exec.file_task import FileTask  # noqa: PLC0415 - after the check
    from kctl.tables.exec.progress import progress_file  # noqa: PLC0415
    from kctl.tables.exec.task import export_file  # noqa: PLC0415 - imports numpy and pyarrow

    task = pickle.loads(pickled)  # noqa: S301 - our own driver made it
    assert isinstance(task, FileTask)
    with progress_file(Path(progress_directory), task.path) as report:
        return export_file(task, report=report)
