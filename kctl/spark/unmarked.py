"""Finds the data files of a target in which no export has begun: copies of exports without their logs, or other files.

An export beside them would give readers of the folder their records twice, and the cleanup of tables could delete them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kctl.spark import layout
from kctl.spark.exec.files import Files

DEPTH_MAX = 5
"""A data file of a table is below its folder in data/BATCH, or in the folders of its partitions."""


def unmarked_files(files: Files, directories: Collection[str]) -> list[str]:
    """Paths of the data files in and below the directories; those whose names begin with `_` or `.` are skipped."""
    return sorted(path for directory in directories for path in _below(files, directory, 0))


def _below(files: Files, directory: str, depth: int) -> Iterator[str]:
    for name in files.names(directory):
        path = f"{directory}/{name}"
        if layout.is_data_file(name):
            yield path
        elif depth < DEPTH_MAX and not name.startswith(("_", ".")):
            yield from _below(files, path, depth + 1)
