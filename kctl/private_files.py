"""Files of one user that are replaced as a whole: readers see the old contents or the new ones, others see nothing."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kctl.operating_system import flush_to_disk


def replace_private(path: Path, data: bytes, *, is_durable: bool = True) -> None:
    """Writes the file with mode 0600 in a folder that is made with mode 0700.  Raises OSError.

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
