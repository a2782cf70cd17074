"""Compiles the record walk with mypyc where a C compiler is at hand; without one kctl interprets the same source."""

from __future__ import annotations

import sys

from mypyc.build import mypycify
from setuptools import Extension, setup

COMPILED = ["kctl/records/walk.py", "kctl/records/key_table.py"]
COMPILING_COMMANDS = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}
"""Others, such as those for metadata and source distributions, which pip and build run first, need no C code."""


def extensions() -> list[Extension]:
    """The compiled modules; `optional` lets the installation go on when the compiler fails or is missing."""
    modules = [module for source in COMPILED for module in mypycify([source], opt_level="3")]
    for module in modules:
        module.optional = True
    return modules


setup(ext_modules=extensions() if COMPILING_COMMANDS.intersection(sys.argv) else [])
