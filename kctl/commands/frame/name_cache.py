"""Names of topics, groups and so on that commands have listed, for completion by the shell without a connection.

One private file per kind of names and cluster in `$XDG_CACHE_HOME/kctl/names`, by default in `~/.cache`: a line that
identifies the cluster, then a name per line.  Names come from clients and brokers: those with characters that are
special to a shell are not stored.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from kctl.limits import Subject, bound
from kctl.system.user_files import replace_private

NAME_CACHE_NAMES_MAX = bound(
    Subject.NAMED_FILES,
    "names of one kind and cluster that commands store for completion by the shell",
    10_000,
    "names",
    on_excess="the first ones by name are stored",
)
NAME_CACHE_AGE_MAX_S = bound(
    Subject.NAMED_FILES,
    "age of names that the shell completes",
    3_600,
    "s",
    on_excess="they are not completed until a command lists them again",
)
NAME_CACHE_FILES_MAX = bound(
    Subject.NAMED_FILES,
    "files with names for completion by the shell",
    200,
    "files",
    on_excess="the oldest ones are deleted",
)


KINDS = ("topics", "groups", "brokers", "users", "transactions")
_HARMLESS = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.:,/@%+-]{0,248}")
_BYTES_MAX = NAME_CACHE_NAMES_MAX * 256
_REFRESH_S = NAME_CACHE_AGE_MAX_S // 4


def is_harmless(name: str) -> bool:
    """Whether the name is not an option and has no character that a shell treats specially."""
    return _HARMLESS.fullmatch(name) is not None


def cluster_key(bootstrap_servers: str | None, command_config: str | None, profile: str | None) -> str:
    """Identifies a cluster by the settings that select it, each from an option or the environment."""
    return " ".join(ascii(each) for each in (bootstrap_servers, command_config, profile))


def store_names(environment: Mapping[str, str], kind: str, key: str, names: Iterable[str], *, now_s: float) -> None:
    """Stores the first names of a kind; what cannot be written is left out."""
    chosen = sorted({name for name in names if is_harmless(name)})[:NAME_CACHE_NAMES_MAX]
    data = "\n".join([key, *chosen, ""]).encode()
    path = _path(environment, kind, key)
    with contextlib.suppress(OSError):
        if _read(path, now_s, age_max_s=_REFRESH_S) == data:
            return
        replace_private(path, data, is_durable=False)
        _delete_oldest(path.parent)


def stored_names(environment: Mapping[str, str], kind: str, key: str, *, now_s: float) -> list[str]:
    """The names that were stored less than NAME_CACHE_AGE_MAX_S ago, sorted."""
    data = _read(_path(environment, kind, key), now_s, age_max_s=NAME_CACHE_AGE_MAX_S)
    first, _, rest = (data or b"").decode(errors="replace").partition("\n")
    return [name for name in rest.split("\n") if is_harmless(name)] if first == key else []


def _path(environment: Mapping[str, str], kind: str, key: str) -> Path:
    folder = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(folder, "kctl", "names", f"{kind}-{zlib.crc32(key.encode()):08x}")


def _read(path: Path, now_s: float, *, age_max_s: int) -> bytes | None:
    """The contents of a file that is not older; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        is_own = status.st_uid == os.geteuid() and status.st_size <= _BYTES_MAX
        return file.read(_BYTES_MAX) if is_own and abs(now_s - status.st_mtime) < age_max_s else None


def _delete_oldest(folder: Path) -> None:
    files = sorted(os.scandir(folder), key=lambda entry: entry.stat().st_mtime)
    for entry in files[:-NAME_CACHE_FILES_MAX]:
        os.unlink(entry)
