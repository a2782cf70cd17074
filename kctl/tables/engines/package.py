"""Builds the zip with kctl's code for executors: protocol, records, client, security and tasks.

Its name contains a hash of its contents, so executors that cache files never mix versions.  The modules of
kctl.records.compiled, with what they import, are in it for executors that have the driver's Python and system
(kctl.tables.exec.native).  Other packages (numpy, pyarrow, crc32c, lz4, cramjam) must be installed on the executors.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import kctl
from kctl.records.compiled import walk_is_compiled
from kctl.tables.exec.native import FOLDER

SHIPPED = (
    *("__init__.py", "errors.py", "limits.py", "model.py", "protocol", "records", "client", "security"),
    *("admin/__init__.py", "admin/records/__init__.py", "admin/records/conditions.py", "admin/records/where.py"),
    *("config/__init__.py", "config/addresses.py", "output/__init__.py", "output/quantities.py"),
    *("system/__init__.py", "system/operating_system.py", "system/reference_cycles.py", "system/tls_sockets.py"),
    "system/user_files.py",
    *("tables/__init__.py", "tables/exec"),
)
"""Paths inside the package: what the tasks import, without console, server and commands."""

_EPOCH = (1980, 1, 1, 0, 0, 0)


def build_package(directory: Path) -> Path:
    """Write the zip into `directory`; the same code gives the same bytes and name."""
    root = Path(kctl.__file__).parent
    sources = [(path.relative_to(root.parent).as_posix(), path.read_bytes()) for path in sorted(_sources(root))]
    sources += [(name, path.read_bytes()) for name, path in sorted(_compiled(root))]
    digest = hashlib.sha256()
    for name, content in sources:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    target = directory / f"kctl-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sources:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return target


def _sources(root: Path) -> Iterator[Path]:
    for name in SHIPPED:
        path = root / name
        if path.is_dir():
            yield from path.rglob("*.py")
        else:
            yield path


def _compiled(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and paths of the compiled modules, and of those that they import."""
    if not walk_is_compiled():
        return
    importlib.import_module("kctl.records.compiled.walk")
    for path in (root / "records/compiled").iterdir():
        if path.name.endswith(EXTENSION_SUFFIXES[0]):
            yield f"{FOLDER}/records/{path.name}", path
    for name, module in sys.modules.items():
        package = name.partition(".")[0]
        if package in {"librt", "mypy_extensions"} and module.__file__:
            path = Path(module.__file__)
            yield "/".join((FOLDER, *name.split(".")[:-1], path.name)), path
