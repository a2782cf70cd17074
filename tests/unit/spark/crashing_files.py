"""A disk that crashes at its n-th operation and loses unsynced writes, or runs a callback at that operation."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from kctl.spark.exec.files import DiskFiles


class Crash(BaseException):
    """The process has crashed: none of its later operations reaches the disk."""


class SteppedFiles(DiskFiles):
    """Real files whose operations consist of steps; `at_step` is called with the number of each step before it.

    Unsynced names and contents are tracked: `lose_unsynced` removes them, as a power failure does.
    """

    def __init__(self, at_step: Callable[[int], None] = lambda _: None) -> None:
        self.steps = 0
        self._at_step = at_step
        self._synced_contents: set[int] = set()
        self._synced_names: set[Path] = set()

    def make_directory(self, path: Path) -> None:
        self._step()
        super().make_directory(path)

    def write(self, path: Path, data: bytes) -> None:
        self._step()
        super().write(path, data)
        self._step()
        self._synced_contents.add(path.stat().st_ino)

    def sync(self, path: Path) -> None:
        self._step()
        super().sync(path)
        self._synced_contents.add(path.stat().st_ino)

    def publish(self, temporary: Path, final: Path) -> bool:
        self._step()
        try:
            os.link(temporary, final)
            is_first = True
        except FileExistsError:
            is_first = False
        self._step()
        self._synced_names.add(final)
        self._step()
        temporary.unlink(missing_ok=True)
        return is_first

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def lose_unsynced(self, folder: Path) -> None:
        """Names that were not synced are gone, contents that were not synced are empty."""
        for path in [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]:
            if path not in self._synced_names:
                path.unlink()
            elif path.stat().st_ino not in self._synced_contents:
                path.write_bytes(b"")

    def keep_all(self, folder: Path) -> None:
        """Keeps everything, as after a crash of the process only."""
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            self._synced_names.add(path)
            self._synced_contents.add(path.stat().st_ino)

    def _step(self) -> None:
        self.steps += 1
        self._at_step(self.steps)


class CrashingFiles(SteppedFiles):
    """Crashes at the given operation and stays crashed."""

    def __init__(self, crash_at: int) -> None:
        super().__init__(self._crash_from)
        self._crash_at = crash_at

    @property
    def has_crashed(self) -> bool:
        return self.steps >= self._crash_at

    def _crash_from(self, step: int) -> None:
        if step >= self._crash_at:
            raise Crash


class UnlockedFiles(SteppedFiles):
    """A file system that ignores locks, as network file systems may."""

    def lock(self, path: Path) -> BinaryIO:
        return io.BytesIO()
