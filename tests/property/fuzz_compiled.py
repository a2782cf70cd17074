"""Fuzzes the compiled modules of kctl.records under sanitizers, guided by coverage.

    python -m tests.property.fuzz_compiled [--minutes 60] [--seed 1]

Tests run it for seconds; run it for hours after a change of kctl/records/compiled.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

import kctl.records.compiled
from tests.peers import sanitizers
from tests.property import walk_inputs
from tests.property.guided_fuzz import EDGES

SOURCES = [Path(kctl.records.compiled.__file__).with_name(f"{name}.py") for name in walk_inputs.COMPARED]
SETUP = """
from mypyc.build import mypycify
from setuptools import setup
names = ("walk", "key_table", "encoding", "record_lines", "record_rows", "frame", "produce_frame", "fetch_frame",
         "key_hash")
paths = [f"sanitized_{name}.py" for name in names]
setup(name="walk", ext_modules=mypycify(paths, opt_level="0", debug_level="1", group_name="sanitized"))
"""
TRACED = "-fsanitize-coverage=trace-pc"


def build(folder: Path) -> list[str]:
    """Build all modules in the folder, with the library that counts edges; return the words that name them."""
    for source in SOURCES:
        text = re.sub(
            r"from kctl\.records\.compiled\.(walk|record_lines|frame) import",
            r"from sanitized_\1 import",
            source.read_text(),
        )
        (folder / f"sanitized_{source.name}").write_text(text)
    sanitizers.build_library(folder, EDGES)
    sanitizers.build(folder, SETUP, flags=TRACED)
    words: list[str] = []
    for source in SOURCES:
        (folder / f"sanitized_{source.name}").unlink()  # Only the compiled module has the name.
        words += [f"sanitized_{source.stem}", str(source)]
    return words


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--seed", type=int, default=int(time.time()))
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="kctl-fuzz-") as name:
        folder = Path(name)
        words = build(folder)
        current = folder / "current"
        arguments = [str(given.minutes * 60), str(given.seed), str(current), *words]
        ran = sanitizers.run(
            folder, ["-m", "tests.property.guided_fuzz", *arguments], timeout_s=given.minutes * 60 + 300
        )
        sys.stdout.write(f"seed {given.seed}: {ran.stdout}{ran.stderr}")
        if ran.returncode:
            sys.exit(f"failed at: {current.read_text()}")


if __name__ == "__main__":
    main()
