"""The zip with kctl's own code for executors: protocol, records, client and what runs in the tasks.

Its name holds a hash of its content, so executors that keep files between jobs never mix versions.  What is not Python
code of ours (numpy, pyarrow, crc32c, lz4, cramjam) cannot travel in a zip and has to be installed where executors run.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import kctl

SHIPPED = (
    *("__init__.py", "addresses.py", "errors.py", "integers.py", "limits.py", "model.py"),
    *("protocol", "records", "client", "spark/__init__.py", "spark/exec"),
)
"""Paths inside the package: what the tasks import, without console, server and commands."""

_EPOCH = (1980, 1, 1, 0, 0, 0)


def build_package(directory: Path) -> Path:
    """Write the zip into `directory`; the same code gives the same bytes and the same name."""
    root = Path(kctl.__file__).parent
    sources = [(path.relative_to(root.parent).as_posix(), path.read_bytes()) for path in sorted(_sources(root))]
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
