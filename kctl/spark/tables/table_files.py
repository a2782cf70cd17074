"""Compares the data files that a table names with those in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kctl.spark.exec.files import Files
from kctl.spark.inventory import DamagedFile, Inventory
from kctl.spark.path_set import NO_PATHS, sized
from kctl.spark.tables.table import Table

DATA = "data"
"""The folder of a table with the files of exports, each batch in a folder of its own, and those of compactions."""


def has_exactly_its_files(files: Files, directory: str, table: Table) -> bool:
    """Whether the data folder of the table has the files of its last commit and no others.

    False if that is not known without reading the manifests of the table.
    """
    expected = table.file_set()
    if expected is None:
        return False
    prefix = f"{directory}/" if directory else ""
    found = files.sizes(f"{prefix}{DATA}")
    return NO_PATHS.plus(sized({path.removeprefix(prefix): size for path, size in found.items()})) == expected


def lost_files(files: Files, directory: str, table: Table, open_table: Callable[[str], Table]) -> Inventory:
    """Files of the state that was read last which do not exist or do not have the size that the table says.

    Another program may have replaced files since, and removed them.  So only what a second reading of the table names
    as well is missing.
    """
    if has_exactly_its_files(files, directory, table):
        return Inventory()
    found = _differences(files, directory, table.sizes())
    if found == Inventory():
        return found
    again = open_table(directory)
    sizes = again.sizes() if again.state() is not None else {}
    return _differences(files, directory, {path: size for path, size in table.sizes().items() if path in sizes})


def _differences(files: Files, directory: str, sizes: Mapping[str, int]) -> Inventory:
    """`sizes` are those of the table, by paths relative to it; files elsewhere are not looked for."""
    prefix = f"{directory}/" if directory else ""
    named = {f"{prefix}{path}": size for path, size in sizes.items() if "://" not in path and not path.startswith("/")}
    data = f"{prefix}{DATA}"
    is_usual = all(path.startswith(f"{data}/") for path in named)
    found = files.sizes(data if is_usual else directory) if named else {}
    return Inventory(
        missing=tuple((path, _batch(path, data)) for path in sorted(named.keys() - found.keys())),
        damaged=tuple(
            DamagedFile(path, _batch(path, data), size, found[path])
            for path, size in sorted(named.items())
            if found.get(path, size) != size
        ),
    )


def _batch(path: str, data: str) -> int | None:
    folder = path.removeprefix(f"{data}/").partition("/")[0]
    return int(folder) if folder.isdecimal() else None
