"""The target of an export: a folder, or a URL of an object store."""

from __future__ import annotations

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kctl.errors import KctlError, UsageError
from kctl.tables.exec.targets.files import DiskFiles, Files

STORE_SCHEMES = ("s3", "gs", "az")
OLDEST_VERSIONS = {"deltalake": (1, 6), "obstore": (0, 12), "pyiceberg": (0, 12)}
"""As in pyproject.toml.  With earlier versions of two of them, records would be exported again or look lost: deltalake
leaves the offsets out of commits that append, and obstore opens other files than those of a folder in a bucket."""
PYARROW_WITH_VARIANTS = 22
"""Version 21 refuses files with the logical type VARIANT."""


class PackageMissing(KctlError):
    """An optional package that the export needs is not installed."""


def parse_target(text: str) -> str:
    """Return the absolute path of a folder, or a URL without a final slash.  Raises UsageError."""
    if not text or "\0" in text:
        raise UsageError("the target is not a folder")
    path = text.removeprefix("file://")
    if "://" not in path:
        folder = Path(path).absolute()
        existing = next(
            candidate for candidate in (folder, *folder.parents) if candidate.exists() or candidate.is_symlink()
        )
        if not existing.is_dir():
            raise UsageError(f"{existing} is not a folder")
        return str(folder)
    schemes = ", ".join(f"{scheme}://" for scheme in STORE_SCHEMES)
    try:
        url = urlsplit(path)
        _ = url.port
    except ValueError as error:
        raise UsageError(f"'{text}' is not a URL: {error}") from None
    if "@" in url.netloc:
        raise UsageError("a URL with a user name or a password is refused: set credentials in the environment")
    if url.scheme not in STORE_SCHEMES:
        raise UsageError(f"'{text}' is neither a folder nor a URL of an object store ({schemes})")
    if url.query or url.fragment:
        raise UsageError(f"'{text}' has a query or a fragment; write {url.scheme}://BUCKET/PATH")
    parts = url.path.strip("/").split("/")
    # Stores and their libraries decode %2e, and resolve the segment then.
    names = unquote(url.path.strip("/")).replace("\\", "/").split("/")
    if not url.netloc or "" in names or {".", ".."} & set(names):
        raise UsageError(f"'{text}' is not a target; write {url.scheme}://BUCKET/PATH with a path that is not empty")
    return f"{url.scheme}://{url.netloc}/{'/'.join(parts)}"


def is_object_store(target: str) -> bool:
    """Return whether the target is in an object store."""
    return "://" in target


def require_package(package: str, *, extra: str) -> None:
    """Raise PackageMissing without the package, or with a version of it that is too old."""
    if find_spec(package) is None:
        raise PackageMissing(f"{package} missing: pip install 'kctl-kafka[{extra}]'")
    oldest, installed = OLDEST_VERSIONS[package], version(package)
    if tuple(int(number) for number in re.findall(r"\d+", installed)[:2]) < oldest:
        raise PackageMissing(
            f"{package} {installed} is too old, {'.'.join(map(str, oldest))} or later is needed: "
            f"pip install --upgrade {package}"
        )


def require_arrow() -> None:
    """Raise PackageMissing without the packages that read and write files."""
    for package in ("pyarrow", "numpy"):
        if find_spec(package) is None:
            raise PackageMissing(f"{package} missing: pip install 'kctl-kafka[export]'")


def require_variants() -> None:
    """Raise PackageMissing without a pyarrow that reads files with variants."""
    require_arrow()
    if int(version("pyarrow").partition(".")[0]) < PYARROW_WITH_VARIANTS:
        raise PackageMissing(
            f"variants need pyarrow {PYARROW_WITH_VARIANTS} or later, and {version('pyarrow')} is installed: "
            "pip install --upgrade pyarrow"
        )


def open_files(target: str) -> Files:
    """Return the files of a target.  Raises PackageMissing, and StoreFailed for invalid settings of the store."""
    if not is_object_store(target):
        return DiskFiles(Path(target))
    require_package("obstore", extra="objectstore")
    from kctl.tables.exec.targets.object_files import ObjectFiles  # noqa: PLC0415 - needs an optional package

    return ObjectFiles(target)
