"""A summary of a set of paths, small enough for each commit.  Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Self

_MODULUS = 1 << 128


class PathSet(NamedTuple):
    """Number of paths and sum of their hashes, independent of order.

    With it the last commit is enough to check that all data files exist.
    """

    size: int = 0
    digest: int = 0

    def plus(self, paths: Iterable[str]) -> Self:
        """Return the set with additional paths, which must not be in it yet."""
        size, digest = self
        for path in paths:
            size += 1
            digest += _hash(path)
        return type(self)(size, digest % _MODULUS)

    def minus(self, paths: Iterable[str]) -> Self:
        """Return the set without some paths, which must be in it."""
        removed = type(self)().plus(paths)
        return type(self)(self.size - removed.size, (self.digest - removed.digest) % _MODULUS)


def sized(sizes: Mapping[str, int]) -> Iterator[str]:
    """Return the paths with the sizes of their files, for a set that differs if a size does."""
    return (f"{path}:{size}" for path, size in sizes.items())


def _hash(path: str) -> int:
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:16])


NO_PATHS = PathSet()
