"""Commands of processes that kctl starts."""

from __future__ import annotations

import sys


def module_command(name: str) -> list[str]:
    """The beginning of a command line that runs a module of kctl in a process of its own.

    With -P, Python does not search the current directory for modules.  Otherwise it would execute a file there that is
    named like a module of the standard library.
    """
    return [sys.executable, "-P", "-m", name]
