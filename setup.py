"""Compiles the record walk and what it is used with, where a C compiler is at hand; else the source is interpreted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mypyc.build import mypycify
from setuptools import Extension, setup

COMPILED = sorted(map(str, Path("kctl/records/compiled").glob("[a-z]*.py")))
COMPILING_COMMANDS = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}
"""Others, such as those for metadata and source distributions, which pip and build run first, need no C code."""


def extensions() -> list[Extension]:
    """Return the compiled modules; `optional` lets the installation go on when the compiler fails or is missing.

    MYPYC_OPT_LEVEL is the level of optimization of the C compiler, as for mypy itself.
    """
    modules = mypycify(
        COMPILED, opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"), group_name="kctl.records.compiled.native"
    )
    for module in modules:
        module.optional = True
    return modules


setup(ext_modules=extensions() if COMPILING_COMMANDS.intersection(sys.argv) else [])
