"""Extension modules built with AddressSanitizer and UndefinedBehaviorSanitizer, and processes that load them.

PYTHONMALLOC=malloc gives each object its own block, so that a read behind a bytes object is detected.  The code of
Python and librt is not instrumented; it is checked where it calls malloc, memcpy and the like.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

FLAGS = (
    "-fsanitize=address,undefined -fno-sanitize=shift-base -fno-sanitize-recover=all -fno-omit-frame-pointer -fno-wrapv"
)
"""-fno-wrapv: overflow of signed integers is an error, although Python's own flags define it.

-fno-sanitize=shift-base: mypyc shifts negative integers to the left, which gcc defines."""
LIBRARIES = ("libasan.so", "libubsan.so")
PRELOADED = "preloaded.so"
TIMEOUT_S = 300
_PROJECT = Path(__file__).resolve().parents[2]


@functools.cache
def why_not() -> str | None:
    """Why nothing can be built with the sanitizers here; None if it can."""
    if sys.platform != "linux":
        return "the sanitizers are preloaded, which the test does on Linux only"
    if shutil.which("gcc") is None:
        return "gcc is missing: install gcc"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int nothing(void) { return 0; }\n")
        tried = subprocess.run(
            ["gcc", *FLAGS.split(), "-shared", "-fPIC", source, "-o", source.with_suffix(".so")],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    return None if tried.returncode == 0 else f"gcc has no sanitizers: install libasan and libubsan\n{tried.stderr}"


def build(folder: Path, setup: str, *, flags: str = "") -> None:
    """Runs a setup.py with this text in the folder, which gets the modules.  Raises CalledProcessError.

    `flags` are for the compiler only.
    """
    (folder / "setup.py").write_text(setup)
    environment = {
        **os.environ,
        "CC": "gcc",
        "CFLAGS": f"{FLAGS} {flags}",
        "LDFLAGS": FLAGS,
        "MYPYPATH": str(_PROJECT),
    }
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, env=environment, timeout=TIMEOUT_S, check=True)


def build_library(folder: Path, source: str) -> None:
    """Compiles C code, without the sanitizers, to the library that `run` preloads.  Raises CalledProcessError."""
    (folder / "library.c").write_text(source)
    command = ["gcc", "-O2", "-shared", "-fPIC", "library.c", "-o", PRELOADED]
    subprocess.run(command, cwd=folder, timeout=TIMEOUT_S, check=True)


def run(folder: Path, arguments: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, with the sanitizers, and with the modules and the library of the folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **_environment(folder)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _environment(folder: Path) -> Mapping[str, str]:
    found = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        ).stdout.strip()
        for name in LIBRARIES
    ]
    found += [str(library)] if (library := folder / PRELOADED).exists() else []
    return {
        "LD_PRELOAD": ":".join(found),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join([str(folder), str(_PROJECT)]),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # The interpreter frees little at its end.
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
