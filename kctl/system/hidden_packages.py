"""Packages that libraries import if they are installed, and that kctl does not need."""

from __future__ import annotations

import sys


def hide_pandas() -> None:
    """Let imports of pandas fail in this process, which has to be one of kctl.

    pyarrow imports it when it makes its first array, and goes on without it.  The import takes several times as long as
    a small export.  An entry None in `sys.modules` would not do: Cython takes it for the module.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """A finder of modules that finds none, and no later one is asked for pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """See importlib.abc.MetaPathFinder."""
        if name == "pandas":
            raise ModuleNotFoundError(f"no command of kctl uses {name}", name=name)
