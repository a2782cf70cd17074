"""The archive of `kctl broker bundle`: what a bug report about a broker needs, without records and secrets.

Reads files only.  A symbolic link is not followed, because another user may own the folder and this one may be root.
"""

from __future__ import annotations

import asyncio
import gc
import io
import os
import platform
import re
import shutil
import signal
import ssl
import stat
import sys
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from kctl import __version__
from kctl.config.redaction import HIDDEN, redacted
from kctl.limits import BUNDLE_FILE_BYTES_MAX, Subject, bound
from kctl.output.terminal_text import escape
from kctl.records.compiled import walk_is_compiled
from kctl.storage.names import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from kctl.system import open_files
from kctl.system.operating_system import lacks_profile_guided_optimization

DUMPED_TASKS_MAX = bound(
    Subject.REPORTS,
    "tasks that a broker describes in its dump (SIGUSR1)",
    500,
    "tasks",
    on_excess="the number of the others is written",
)
DUMPED_FRAMES_MAX = bound(
    Subject.REPORTS,
    "frames that a broker describes for each task and thread in its dump (SIGUSR1)",
    40,
    "frames",
    on_excess="further frames are left out",
)
BUNDLE_LOG_BYTES_MAX = bound(
    Subject.REPORTS,
    "end of a log file in the archive of `kctl broker bundle`",
    8 << 20,
    "bytes",
    on_excess="earlier lines are left out",
)
BUNDLE_LISTED_FILES_MAX = bound(
    Subject.REPORTS,
    "files in one directory listing of the archive of `kctl broker bundle`",
    20_000,
    "files",
    on_excess="the listing ends with the number that it has",
)


ROOT = "kctl-bundle"
_CHECKPOINTS = (
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
_SHORTEST_SECRET = 6
"""Shorter secrets are not replaced, because they also occur within other words."""
_NAMED_SECRET = re.compile(
    r"""((?:password|passwd|secret|token|jaas\.config|credential)[\w.\-]{0,64}["']?[ \t]{0,8}[=:][ \t]{0,8})"""
    r"""("[^"\n]{0,4096}"|'[^'\n]{0,4096}'|[^\s,;]+)""",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----)[^-]*(-----END|\Z)")
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]{1,1024}@")


class Missing(Exception):
    """A part is not available; the text is the reason."""


class Part(NamedTuple):
    """A file of the archive: its name, and the function that returns its text, which may raise Missing or OSError."""

    name: str
    read: Callable[[], str]


class Result(NamedTuple):
    """The result of one part."""

    name: str
    size: int
    problem: str | None


def redactor(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that hides these texts, and values that are named as secrets, in any text."""
    known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, known))) if known else None

    def redact(text: str) -> str:
        if pattern is not None:
            text = pattern.sub(HIDDEN, text)
        text = _PRIVATE_KEY.sub(rf"\1{HIDDEN}\2", text)
        text = _USER_OF_URL.sub(f"{HIDDEN}@", text)
        return _NAMED_SECRET.sub(rf"\1{HIDDEN}", text)

    return redact


def machine_parts(folder: Path, log_dirs: Sequence[str], logs: Sequence[Path]) -> Iterator[Part]:
    """Yield versions, limits, disks, listings, checkpoints and logs."""
    directories = list(dict.fromkeys([folder, *map(Path, log_dirs)]))
    yield Part("versions.txt", _versions)
    yield Part("machine.txt", lambda: _machine(directories))
    for number, directory in enumerate(directories):
        yield Part(f"listing-{number}.txt", lambda directory=directory: _listing(directory))  # type: ignore[misc]
    for number, directory in enumerate(map(Path, log_dirs)):
        for name in _CHECKPOINTS:
            path = directory / name
            yield Part(f"log-dir-{number}/{name}", lambda path=path: tail(path, BUNDLE_FILE_BYTES_MAX))  # type: ignore[misc]
    for path in logs:
        yield Part(f"logs/{path.name}", lambda path=path: tail(path, BUNDLE_LOG_BYTES_MAX))  # type: ignore[misc]


def write_archive(path: Path, parts: Iterable[Part], redact: Callable[[str], str]) -> list[Result]:
    """Write the archive, which only its owner may read, completely or not at all.  Raises OSError.

    A part that is missing is named in the overview.
    """
    if os.path.lexists(path):
        raise FileExistsError(17, "exists already", str(path))
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            results = [_add(archive, part, redact) for part in parts]
            _write(archive, "overview.txt", _overview(results))
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return results


def tail(path: Path, bytes_max: int) -> str:
    """Return the end of a regular file.  Raises Missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Missing(error.strerror or str(error)) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Missing("is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        skipped = max(0, status.st_size - bytes_max)
        file.seek(skipped)
        text = file.read(bytes_max).decode("utf-8", "backslashreplace")
    if not skipped:
        return text
    # The first line may be incomplete, and its end may be the second half of a secret.
    return f"[{skipped} bytes before this]\n{text.partition(chr(10))[2]}"


def _add(archive: tarfile.TarFile, part: Part, redact: Callable[[str], str]) -> Result:
    try:
        text = part.read()
    except (Missing, OSError) as error:
        return Result(part.name, 0, str(error))
    return Result(part.name, _write(archive, part.name, redact(text)), None)


def _write(archive: tarfile.TarFile, name: str, text: str) -> int:
    data = text.encode("utf-8", "backslashreplace")
    entry = tarfile.TarInfo(f"{ROOT}/{name}")
    entry.size = len(data)
    entry.mode = 0o600
    archive.addfile(entry, io.BytesIO(data))
    return len(data)


def _overview(results: Sequence[Result]) -> str:
    lines = [f"{result.name}: {result.problem or f'{result.size} bytes'}" for result in results]
    return "\n".join(
        ["Values of secrets are replaced by [hidden].  Names of hosts, topics and files are not.", *lines, ""]
    )


def _versions() -> str:
    lines = [
        f"kctl {__version__}",
        f"Python {sys.version}",
        f"platform {platform.platform()}",
        f"OpenSSL {ssl.OPENSSL_VERSION}",
        f"compiled record walk: {'yes' if walk_is_compiled() else 'no'}",
        f"profile-guided optimization of Python: {'no' if lacks_profile_guided_optimization() else 'yes or unknown'}",
    ]
    for requirement in metadata.requires("kctl-kafka") or []:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join([*lines, ""])


def _machine(directories: Sequence[Path]) -> str:
    lines = [
        f"processors {os.cpu_count()}",
        f"load {os.getloadavg()}",
        f"open files {open_files.limit()} (of this command)",
    ]
    for directory in directories:
        try:
            total, used, free = shutil.disk_usage(directory)
            lines.append(f"disk of {directory}: total={total} used={used} free={free}")
        except OSError as error:
            lines.append(f"disk of {directory}: {error.strerror}")
    return "\n".join([*lines, ""])


def _listing(directory: Path) -> str:
    """Return the mode, size, time of modification in seconds since 1970, and path of each file."""
    if not directory.is_dir():
        raise Missing(f"{directory} is not a directory")
    lines = [str(directory)]
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted([*folders, *names]):
            if len(lines) > BUNDLE_LISTED_FILES_MAX:
                return "\n".join([*lines, f"more than {BUNDLE_LISTED_FILES_MAX} files", ""])
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue  # Deleted meanwhile.
            mode = stat.filemode(status.st_mode)
            shown = os.path.relpath(path, directory)
            lines.append(f"{mode} {status.st_size:>12} {int(status.st_mtime)} {shown}")
    return "\n".join([*lines, ""])


# The dump that a running broker writes on SIGUSR1: properties without secrets, tasks and threads.
#
# The signal is handled between two instructions of the main thread, also while it is busy, so that the dump shows
# where an event loop is that responds to nothing. Neither locals nor arguments are written, because they may be
# secrets or records.


SIGNAL = signal.SIGUSR1


def write_on_signal(path: Path, summary: Callable[[], Mapping[str, str]], properties: Mapping[str, str]) -> None:
    """Write the dump to `path` on each signal, from now on.  To be called in the main thread, in the event loop."""
    loop = asyncio.get_running_loop()
    begin = f"kctl {__version__}, Python {platform.python_version()}, {platform.platform()}"
    shown = [f"{name}={text}" for name, text in redacted(properties).items()]

    def handle(_: int, interrupted: FrameType | None) -> None:
        # An exception, or a log message, could end or damage what is being interrupted.
        with suppress(Exception):
            numbers = [f"{name}={text}" for name, text in summary().items()]
            tasks = list(_tasks(asyncio.all_tasks(loop)))
            threads = list(_threads(interrupted))
            _replace(path, [begin, *numbers, "", "[properties]", *shown, "", *tasks, "", *threads])

    signal.signal(SIGNAL, handle)


def process_numbers() -> dict[str, str]:
    """Return the numbers about this process that cost nothing."""
    return {
        "pid": str(os.getpid()),
        "threads": str(threading.active_count()),
        "garbage_collections": ",".join(str(generation["collections"]) for generation in gc.get_stats()),
    }


def _tasks(tasks: Iterable[asyncio.Task[Any]]) -> Iterator[str]:
    """Yield a line for each task, followed by the frames in which it waits, the outermost first."""
    listed = sorted(tasks, key=lambda task: task.get_name())
    yield f"[tasks] {len(listed)}"
    for task in listed[:DUMPED_TASKS_MAX]:
        yield f"task {task.get_name()}"
        awaited: Any = task.get_coro()
        for _ in range(DUMPED_FRAMES_MAX):
            frame = next((found for name in _FRAMES if (found := getattr(awaited, name, None)) is not None), None)
            if frame is None:
                break
            yield _line(frame)
            awaited = next((found for name in _AWAITED if (found := getattr(awaited, name, None)) is not None), None)
    if len(listed) > DUMPED_TASKS_MAX:
        yield f"{len(listed) - DUMPED_TASKS_MAX} more tasks"


_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")
"""Attributes of coroutines, generators and asynchronous generators."""


def _threads(interrupted: FrameType | None) -> Iterator[str]:
    """Yield a line for each thread, followed by its frames, the innermost first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames: dict[int, FrameType | None] = dict(sys._current_frames())  # noqa: SLF001 - documented
    frames[threading.get_ident()] = interrupted
    yield f"[threads] {len(frames)}"
    for identity, innermost in frames.items():
        yield f"thread {names.get(identity, 'unnamed')}"
        frame = innermost
        for _ in range(DUMPED_FRAMES_MAX):
            if frame is None:
                break
            yield _line(frame)
            frame = frame.f_back


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"  {code.co_filename}:{frame.f_lineno} {code.co_qualname}"


def _replace(path: Path, lines: Iterable[str]) -> None:
    """Write the file completely or not at all; only its owner may read it."""
    temporary = path.with_suffix(".dump.tmp")
    text = "".join(f"{escape(line)}\n" for line in lines)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
