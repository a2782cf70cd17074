"""Builds the zip with kctl's code for executors: protocol, records, client and tasks.

Its name contains a hash of its contents, so executors that cache files never mix versions.  Other packages (numpy,
pyarrow, crc32c, lz4, cramjam) contain compiled code and must be installed on the executors.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import kctl

SHIPPED = (
    *("__init__.py", "addresses.py", "errors.py", "integers.py", "limits.py", "model.py", "operating_system.py"),
    "quantities.py",
    *("protocol", "records", "client", "spark/__init__.py", "spark/exec"),
)
"""Paths inside the package: what the tasks import, without console, server and commands."""

_EPOCH = (1980, 1, 1, 0, 0, 0)


def build_package(directory: Path) -> Path:
    """Writes the zip into `directory`; the same code gives the same bytes and name."""
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
