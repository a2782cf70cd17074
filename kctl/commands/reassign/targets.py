"""Reads the targets of a reassignment from options and files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.admin.reassignment_spec import is_inline, parse_inline, parse_log_dirs, parse_reassignment
from kctl.errors import UsageError
from kctl.input_files import STANDARD_INPUT, read_text

if TYPE_CHECKING:
    from kctl.admin.reassignment_spec import Assignment, LogDirTargets


def plan_file(texts: list[str] | None, path: str | None) -> tuple[list[str] | None, str | None]:
    """The partitions and the file: a single argument that is not a partition may name the file."""
    if (
        texts
        and len(texts) == 1
        and path is None
        and not is_inline(texts[0])
        and (texts[0] == STANDARD_INPUT or Path(texts[0]).exists())
    ):
        return None, texts[0]
    return texts, path


def read_targets(texts: list[str] | None, path: str | None, *, with_replicas: bool = True) -> Assignment | None:
    """The reassignment in a file or in arguments; None if neither is given."""
    if texts and path:
        raise UsageError("give --reassignment-json-file or partitions, not both")
    if texts:
        try:
            return parse_inline(texts, with_replicas=with_replicas)
        except UsageError:
            file = next((text for text in texts if Path(text).is_file()), None)
            if file is None:
                raise
            raise UsageError(f"'{file}' is a file; give it as --reassignment-json-file {file}") from None
    if path is None:
        return None
    document = _document(path)
    try:
        return parse_reassignment(document)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def read_log_dirs(path: str | None) -> LogDirTargets:
    """The log directories in the file, which `read_targets` has accepted."""
    return parse_log_dirs(_document(path)) if path else {}


@functools.cache
def _document(path: str) -> str:
    """The text of the file, read once, because a pipe cannot be read twice."""
    return read_text(path)
