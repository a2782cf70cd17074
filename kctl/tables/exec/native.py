"""Compiled modules for executors, which Python cannot import from the zip that contains kctl's code.

The zip has those of the driver's Python.  They are unpacked beside it, in the folder of the Spark application, once for
all processes of an executor.  Where they cannot be loaded, records are found with numpy instead.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import kctl.records.compiled

FOLDER = "native"
"""In the zip: modules of kctl.records.compiled in `records`, and the packages that they import."""


def use_compiled_modules(archive: Path) -> bool:
    """Import the compiled record walk of a zip; False, and nothing is changed, if it cannot be loaded here."""
    before = set(sys.modules)
    try:
        folder = _unpacked(archive)
    except (OSError, zipfile.BadZipFile):
        return False
    packages, modules = str(folder), str(folder / "records")
    sys.path.insert(0, packages)
    kctl.records.compiled.__path__.insert(0, modules)
    try:
        found = importlib.import_module("kctl.records.compiled.walk")
    except ImportError:  # of another Python or system
        found = None
    sys.path.remove(packages)
    if found is not None and str(found.__file__).startswith(modules):
        return True
    kctl.records.compiled.__path__.remove(modules)
    for name in set(sys.modules) - before:
        if name.startswith(("kctl.records.compiled.", "librt")):
            del sys.modules[name]
    return False


def _unpacked(archive: Path) -> Path:
    """Return the folder with the compiled modules of the zip.  Raises OSError and BadZipFile."""
    archive = archive.absolute()  # Spark names it relative to the folder of the application
    target = archive.with_name(f"{archive.name}.{FOLDER}")
    if target.is_dir():
        return target
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=archive.parent))
    try:
        with zipfile.ZipFile(archive) as file:
            file.extractall(scratch, [name for name in file.namelist() if name.startswith(f"{FOLDER}/")])
        with contextlib.suppress(OSError):  # another process was first
            os.rename(scratch / FOLDER, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not target.is_dir():
        raise FileNotFoundError(target)
    return target
