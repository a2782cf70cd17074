"""Files with the committed offsets of groups as they were before a command changed them, in a folder per cluster.

They are never overwritten.  The oldest ones are deleted when there are more than OFFSET_BACKUPS_MAX.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kctl.admin.offset_document import OffsetDocument, format_document, parse_document
from kctl.admin.rollback_files import write_new
from kctl.errors import UsageError
from kctl.input_files import read_regular
from kctl.limits import OFFSET_BACKUPS_MAX

_NAME = re.compile(r"offsets-[0-9T.]+Z(?:-[0-9]+)?\.json")
_NAMES_MAX = 1000


def save_backup(folder: Path, document: OffsetDocument) -> Path:
    """Writes a new file, deletes the oldest ones, and returns the path of the new one.  Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    text, stamp = format_document(document), re.sub(r"[-:]", "", document.created)
    for number in range(1, _NAMES_MAX):
        path = folder / f"offsets-{stamp}{'' if number == 1 else f'-{number:03}'}.json"
        try:
            write_new(path, text)
        except FileExistsError:
            continue
        _delete_oldest(folder, path)
        return path
    raise FileExistsError(f"{folder} has {_NAMES_MAX} backups of the same millisecond")


def backups_of(folder: Path, group: str) -> Iterator[tuple[Path, OffsetDocument]]:
    """The valid backups that contain the group, the latest first."""
    for path in reversed(_backups(folder)):
        try:
            document = parse_document(read_regular(str(path)).decode())
        except (OSError, UsageError, UnicodeDecodeError):
            continue  # Edited or incomplete; an older one may be valid.
        if group in document.groups:
            yield path, document


def _backups(folder: Path) -> list[Path]:
    """All backups in the order in which they were written."""
    try:
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: path.stem)


def _delete_oldest(folder: Path, new: Path) -> None:
    for path in _backups(folder)[:-OFFSET_BACKUPS_MAX]:
        if path != new:
            with suppress(OSError):
                path.unlink()
