"""The folders and URLs of exports that tool calls may name: those of --allow-root, and what is below them.

A folder is compared without symbolic links and `..`, and the command gets this path, so that a link that leads out of a
root does not count as inside of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kctl.errors import UsageError
from kctl.tables.exec.targets.target import is_object_store, parse_target


class Roots:
    """The allowed folders and URLs."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Open the target; raise UsageError for a text that is neither an existing folder nor a URL of an object
        store.
        """
        self._roots = tuple(_resolved(text) for text in texts)
        for root in self._roots:
            if not is_object_store(root) and not os.path.isdir(root):
                raise UsageError(f"--allow-root {root}: is not a folder")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is allowed."""
        return not self._roots

    def checked(self, text: str) -> str:
        """Return the target without symbolic links and `..`.  Raises UsageError for one that is not in a root."""
        target = _resolved(text)
        if not any(target == root or target.startswith(f"{root.rstrip('/')}/") for root in self._roots):
            raise UsageError(
                f"'{text[:200]}' is not in a folder or URL that this server may read; it was started with"
                f" {' '.join(f'--allow-root {root}' for root in self._roots) or 'no --allow-root'}"
            )
        return target


def _resolved(text: str) -> str:
    target = parse_target(text)
    return target if is_object_store(target) else os.path.realpath(target)
