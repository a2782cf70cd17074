"""Reads files named by the user, refusing those that may block, and replaces files of one user as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

from kctl.errors import UsageError
from kctl.limits import Subject, bound
from kctl.system.operating_system import flush_to_disk

NAMED_FILE_BYTES_MAX = bound(
    Subject.NAMED_FILES,
    "size of a file that a command reads as a whole",
    64 << 20,
    "bytes",
    on_excess="the command fails; logs and indexes of any size are read in pieces",
)


# Reads files named by the user, and refuses those that may block.
#
# Opening a FIFO blocks until there is a writer, and reading a device may never end, so only regular files are opened.


_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
}
STANDARD_INPUT = "-"
_READ_SIZE = 1 << 20
_OWN_DESCRIPTOR = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/[0-9]+")


def check_regular(path: str) -> None:
    """Raise OSError with the path if the file does not exist, is not accessible or is not a regular file."""
    try:
        status = os.stat(path)
    except ValueError:  # It contains NUL, or characters that no file name has.
        raise OSError(errno.EINVAL, "is not the path of a file", path) from None
    _refuse_others(status, path)


def open_regular(path: str) -> int:
    """Open a regular file for reading and return its descriptor.  Raises OSError, also for other kinds of files."""
    check_regular(path)
    # The file may have been replaced since the check: open without blocking and check again.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_others(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str) -> bytes:
    """Return the contents of a regular file.  Raises OSError, also for more than NAMED_FILE_BYTES_MAX bytes."""
    return _read(open_regular(path), path)


def read_input(path: str) -> bytes:
    """As read_regular, but also reads standard input, named -, and pipes named /dev/stdin or /dev/fd/N to their end.

    Shells pass process substitutions, `<(command)`, as /dev/fd/N.
    """
    return _read(open_input(path), "standard input" if path == STANDARD_INPUT else path)


def is_pipe(path: str) -> bool:
    """Return whether `open_input` reads the path to its end, because it is standard input or a descriptor of this
    process.
    """
    return path == STANDARD_INPUT or _OWN_DESCRIPTOR.fullmatch(path) is not None


def open_input(path: str) -> int:
    """Open what `read_input` reads, and return the descriptor.  Raises OSError."""
    if path == STANDARD_INPUT:
        return os.dup(0)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if is_pipe(path) else open_regular(path)


def read_text(path: str) -> str:
    """Return the text of what `read_input` reads, without a byte order mark.  Raises UsageError with the path."""
    try:
        return read_input(path).decode("utf-8-sig")  # Spreadsheet programs write a byte order mark.
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}") from None


def _refuse_others(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"is {kind}, not a regular file", path)


def read_piece(descriptor: int, path: str) -> bytes:
    """Return the next bytes of a descriptor, empty at its end; waits also for one that another process has made
    non-blocking.

    Raises OSError with the path.
    """
    while True:
        try:
            return os.read(descriptor, _READ_SIZE)
        except BlockingIOError:
            import select  # noqa: PLC0415 - rarely needed

            select.select([descriptor], [], [])
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None


def _read(descriptor: int, path: str) -> bytes:
    data = bytearray()
    try:
        while piece := read_piece(descriptor, path):
            data += piece
            if len(data) > NAMED_FILE_BYTES_MAX:
                raise OSError(errno.EFBIG, f"has more than {NAMED_FILE_BYTES_MAX} bytes", path)
    finally:
        os.close(descriptor)
    return bytes(data)


# Files of one user that are replaced as a whole: readers see the old contents or the new ones, others see nothing.


def replace_private(path: Path, data: bytes, *, is_durable: bool = True) -> None:
    """Write the file with mode 0600 in a folder that is made with mode 0700.  Raises OSError.

    A symbolic link stays one: the file that it names is replaced.  Unless it `is_durable`, the new contents may be lost
    in a crash of the machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if is_durable:
                flush_to_disk(file.fileno())
        draft.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
