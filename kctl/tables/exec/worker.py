"""Entry point of a Spark task.  Imports only the standard library, so that it can report missing packages."""

from __future__ import annotations

import pickle
from pathlib import Path

from kctl.tables.exec.environment import problem
from kctl.tables.exec.outcome import Failure, FileOutcome


def run_pickled(pickled: bytes, progress_directory: str) -> FileOutcome:
    """Runs a pickled FileTask; missing packages are an outcome too."""
    if text := problem():
        return FileOutcome(failure=Failure.FAILED, message=text)
    from kctl.tables.exec.file_task import FileTask  # noqa: PLC0415 - after the check
    from kctl.tables.exec.progress import progress_file  # noqa: PLC0415
    from kctl.tables.exec.task import export_file  # noqa: PLC0415 - imports numpy and pyarrow

    task = pickle.loads(pickled)  # noqa: S301 - our own driver made it
    assert isinstance(task, FileTask)
    with progress_file(Path(progress_directory), task.path) as report:
        return export_file(task, report=report)
