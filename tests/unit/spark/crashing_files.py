"""A disk that crashes at its n-th operation and loses unsynced writes, or runs a callback at that operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path

from kctl.tables.exec.targets.files import DiskFiles, link_if_absent


class Crash(BaseException):
    """The process has crashed: none of its later operations reaches the disk."""


class SteppedFiles(DiskFiles):
    """Real files whose operations consist of steps; `at_step` is called with the number of each step before it.

    Unsynced names and contents are tracked: `lose_unsynced` removes them, as a power failure does.
    """

    def __init__(self, folder: Path, at_step: Callable[[int], None] = lambda _: None) -> None:
        super().__init__(folder)
        self.steps = 0
        self._at_step = at_step
        self._synced_contents: set[int] = set()
        self._synced_names: set[Path] = set()

    def prepare(self, directories: Collection[str]) -> None:
        self._step()
        super().prepare(directories)

    def scratch(self, path: str) -> Path:
        self._step()
        return super().scratch(path)

    def publish(self, scratch: Path, path: str) -> bool:
        self._step()
        self._synced_contents.add(scratch.stat().st_ino)
        self._step()
        is_first = link_if_absent(scratch, self._folder / path)
        self._step()
        self._synced_names.add(self._folder / path)
        self._step()
        self.discard(scratch)
        return is_first

    def replace(self, path: str, other: str) -> None:
        self._step()
        super().replace(path, other)
        self._synced_names.add(self._folder / other)
        self._step()

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)

    def lose_unsynced(self) -> None:
        """Names that were not synced are gone, contents that were not synced are empty."""
        for path in [path for path in self._folder.rglob("*") if path.is_file() and path.name != "lock"]:
            if path not in self._synced_names:
                path.unlink()
            elif path.stat().st_ino not in self._synced_contents:
                path.write_bytes(b"")

    def keep_all(self) -> None:
        """Keeps everything, as after a crash of the process only."""
        for path in [path for path in self._folder.rglob("*") if path.is_file()]:
            self._synced_names.add(path)
            self._synced_contents.add(path.stat().st_ino)

    def _step(self) -> None:
        self.steps += 1
        self._at_step(self.steps)


class CrashingFiles(SteppedFiles):
    """Crashes at the given operation and stays crashed."""

    def __init__(self, folder: Path, crash_at: int) -> None:
        super().__init__(folder, self._crash_from)
        self._crash_at = crash_at

    def _crash_from(self, step: int) -> None:
        if step >= self._crash_at:
            raise Crash


class UnlockedFiles(SteppedFiles):
    """A file system that ignores locks, as network file systems may."""

    def lock(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()
