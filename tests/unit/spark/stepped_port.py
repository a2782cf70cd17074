"""Any Files with steps: a callback before and after each operation, which may raise Crash or run another exporter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from kctl.tables.exec.targets.files import Files
from kctl.tables.exec.targets.object_files import ObjectFiles
from tests.unit.spark.crashing_files import Crash


class SteppedPort:
    """Calls `at_step` with the number of each step.  Has no lock, as object stores have none."""

    def __init__(self, files: Files, at_step: Callable[[int], None]) -> None:
        self.steps = 0
        self._files = files
        self._at_step = at_step

    @property
    def location(self) -> str:
        return self._files.location

    def prepare(self, directories: Collection[str]) -> None:
        self.step()
        self._files.prepare(directories)

    def names(self, directory: str) -> list[str]:
        return self._files.names(directory)

    def sizes(self, directory: str) -> dict[str, int]:
        return self._files.sizes(directory)

    def size(self, path: str) -> int | None:
        return self._files.size(path)

    def modified_ms(self, path: str) -> int | None:
        return self._files.modified_ms(path)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def open(self, path: str) -> IO[bytes]:
        return self._files.open(path)

    def create(self, path: str, data: bytes) -> bool:
        self.step()
        is_first = self._files.create(path, data)
        self.step()
        return is_first

    def scratch(self, path: str) -> Path:
        self.step()
        return self._files.scratch(path)

    def publish(self, scratch: Path, path: str) -> bool:
        try:
            self.step()
        except Crash:
            if isinstance(self._files, ObjectFiles):  # its scratch files end with their process
                self._files.discard(scratch)
            raise
        is_first = self._files.publish(scratch, path)
        self.step()
        return is_first

    def discard(self, scratch: Path) -> None:
        self._files.discard(scratch)

    def replace(self, path: str, other: str) -> None:
        self.step()
        self._files.replace(path, other)
        self.step()

    def remove(self, path: str) -> None:
        self.step()
        self._files.remove(path)

    def remove_scratch(self, directories: Collection[str]) -> None:
        """Leaves scratch files alone: they may be another exporter's."""

    def lock(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def step(self) -> None:
        """Counts a step, also of operations outside of this port."""
        self.steps += 1
        self._at_step(self.steps)


def crashing(files: Files, crash_at: int) -> SteppedPort:
    """Crashes at the given step and stays crashed."""

    def at_step(step: int) -> None:
        if step >= crash_at:
            raise Crash

    return SteppedPort(files, at_step)
