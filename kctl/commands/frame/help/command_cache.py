"""What help and completion know of a command, in one file per command below `$XDG_CACHE_HOME/kctl/commands`.

Both are made from the typer declarations, which takes a fifth of a second; a file is read in a millisecond.  A file
names the source files that were imported for it, with their sizes and times, and counts only while none has changed.
It counts only if no other user could have written it, and a file that cannot be written is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import zlib
from typing import NamedTuple

import kctl
from kctl.limits import Subject, bound

COMMAND_CACHE_FILES_MAX = bound(
    Subject.NAMED_FILES,
    "files with the help of commands and what a shell completes in them",
    1_000,
    "files",
    on_excess="the oldest ones are deleted",
)
FULL_HELP = "help all"
"""The name of the page of `kctl --help --all` among those of commands."""
_BYTES_MAX = 1 << 20
_NAME = re.compile(r"(?:[a-z][a-z-]*(?: [a-z][a-z-]*)?)?")
_PACKAGE = os.path.dirname(os.path.abspath(kctl.__file__))
_DECLARING = ("kctl.", "typer.", "click.")
"""Modules on which the texts depend."""


class Described(NamedTuple):
    """A command, a noun, or the program."""

    words: str
    """What a shell completes in it; see `kctl.commands.frame.options.vocabulary`."""
    page: str
    """Its help."""


def read_described(name: str) -> Described | None:
    """Return the stored description of a command (`topics create`), of a noun, or with an empty name of the program."""
    path = _path(name)
    text = _read(path) if path is not None else None
    if text is None:
        return None
    sources, _, rest = text.partition("\f")
    words, mark, page = rest.partition("\f")
    key, *lines = sources.splitlines() or [""]
    is_current = bool(mark) and key == _key() and all(_source(line.split(" ", 2)[-1]) == line for line in lines)
    return Described(words, page) if is_current else None


def store_described(name: str, described: Described) -> None:
    """Store a description that was just made."""
    path = _path(name)
    if path is None:
        return
    loaded = [
        str(module.__file__)
        for module_name, module in list(sys.modules.items())
        if f"{module_name}.".startswith(_DECLARING) and getattr(module, "__file__", None)
    ]
    text = "\n".join([_key(), *map(_source, sorted(loaded)), ""])
    with contextlib.suppress(OSError, ValueError):  # ValueError: a path that cannot be encoded.
        _write(path, f"{text}\f{described.words}\f{described.page}".encode())


def _key() -> str:
    return f"{sys.implementation.cache_tag} {_PACKAGE!a}"


def _source(path: str) -> str:
    """Return the line about a source file: time of its last change, size and path; only the path if there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return path
    return f"{status.st_mtime_ns} {status.st_size} {path}"


def _path(name: str) -> str | None:
    """Return the path of the file of a command, which may not exist; None if there is no folder for it."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(folder) or _NAME.fullmatch(name) is None:
        return None
    return os.path.join(folder, "kctl", "commands", f"{zlib.crc32(_key().encode()):08x}-{name.replace(' ', '.')}")


def _is_private(status: os.stat_result) -> bool:
    """Return whether only this user can have written it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _are_folders_private(path: str) -> bool:
    """Return whether this is true of the folder of the file and of the one above it.  Raises OSError."""
    folder = os.path.dirname(path)
    statuses = [os.lstat(folder), os.lstat(os.path.dirname(folder))]
    return all(stat.S_ISDIR(status.st_mode) and _is_private(status) for status in statuses)


def _read(path: str) -> str | None:
    try:
        if not _are_folders_private(path):
            return None
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            is_usable = stat.S_ISREG(status.st_mode) and _is_private(status) and status.st_size <= _BYTES_MAX
            return file.read(_BYTES_MAX).decode() if is_usable else None
    except (OSError, ValueError):
        return None


def _write(path: str, data: bytes) -> None:
    """Replace the file as a whole, unless another user can write to its folder.  Raises OSError."""
    from pathlib import Path  # noqa: PLC0415 - takes a tenth of the time of --help, which only reads

    from kctl.system.user_files import replace_private  # noqa: PLC0415 - same

    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not _are_folders_private(path) or os.path.islink(path):
        return
    replace_private(Path(path), data, is_durable=False)
    files = sorted(os.scandir(folder), key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
    for entry in files[:-COMMAND_CACHE_FILES_MAX]:
        os.unlink(entry)
