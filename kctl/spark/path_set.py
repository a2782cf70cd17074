"""A summary of a set of paths that a commit can carry and that can be compared with what a folder holds.  Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Self

_MODULUS = 1 << 128


class PathSet(NamedTuple):
    """How many paths and the sum of their hashes: equal for equal sets, in whatever order they were added.

    The last commit thus tells whether all data files are there, without a look into the commits before it.
    """

    size: int = 0
    digest: int = 0

    def plus(self, paths: Iterable[str]) -> Self:
        """The set with further paths that are not in it yet."""
        size, digest = self
        for path in paths:
            size += 1
            digest += int.from_bytes(hashlib.sha256(path.encode()).digest()[:16])
        return type(self)(size, digest % _MODULUS)


NO_PATHS = PathSet()
