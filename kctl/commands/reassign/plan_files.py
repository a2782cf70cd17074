"""The files of a plan, in the format of Kafka's tools."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.admin.reassignment_plan import requested_log_dirs, rollback, rollback_log_dirs
from kctl.admin.reassignment_spec import format_reassignment
from kctl.admin.rollback_files import write_new
from kctl.commands.exit_status import Refused
from kctl.errors import KctlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.reassignment_plan import Move
    from kctl.commands.invocation import Invocation


class PlanFiles:
    """The files of a plan: one per phase, and one for the way back."""

    def __init__(self, output: str | None) -> None:
        """Raises Refused if one of them exists already."""
        self._path = None if output is None else Path(output)
        if self._path is not None:
            self._refuse_existing([self._path, self._rollback(self._path)])

    def write(self, parts: Sequence[Sequence[Move]], *, is_split: bool) -> tuple[list[Path], Path] | None:
        """Writes all of them or none, and returns their paths; None without --output.  Raises Refused."""
        if self._path is None:
            return None
        path, back = self._path, self._rollback(self._path)
        paths = [path]
        if is_split:
            paths = [path.with_stem(f"{path.stem}-{number}") for number in range(1, len(parts) + 1)]
        self._refuse_existing(paths)
        moves = [move for part in parts for move in part]
        texts = [
            format_reassignment({move.tp: move.target for move in part}, requested_log_dirs(part)) for part in parts
        ]
        undo = format_reassignment(rollback(moves), rollback_log_dirs(moves))
        done: list[Path] = []
        try:
            for one, text in [(back, undo), *zip(paths, texts, strict=True)]:
                done.append(one)
                write_new(one, text + "\n")
        except OSError as error:
            # A file that another process has created meanwhile is not removed.
            for one in done[:-1] if isinstance(error, FileExistsError) else done:
                one.unlink(missing_ok=True)
            raise KctlError(f"{done[-1]} cannot be written: {error.strerror}") from None
        return paths, back

    @staticmethod
    def _rollback(path: Path) -> Path:
        return path.with_stem(f"{path.stem}-rollback")

    @staticmethod
    def _refuse_existing(paths: Sequence[Path]) -> None:
        for path in paths:
            if path.exists():
                raise Refused(f"{path} exists and is not overwritten: give another --output")


def note_files(run: Invocation, files: Sequence[str], rollback_file: str | None, throttle: str | None) -> None:
    """Shows the command lines that execute and undo the plan in the files, with the throttle of its estimates."""
    options = f"--wait{f' --throttle {shlex.quote(throttle)}' if throttle else ''}{run.cluster_options()}"
    for name in files:
        run.console.note(f"to execute: kctl reassign execute {shlex.quote(name)} {options}")
    if rollback_file:
        run.console.note(f"to undo: kctl reassign execute {shlex.quote(rollback_file)} {options}")
    else:
        run.console.note("give --output FILE to write the plan")
