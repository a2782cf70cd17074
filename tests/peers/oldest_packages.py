"""An environment with the oldest version of each package that kctl's distribution allows for exports."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.peers.cache import cache_folder

ROOT = Path(__file__).parent.parent.parent
EXTRAS = ("export", "objectstore", "iceberg", "delta", "registry")
INSTALL_TIMEOUT_S = 300
RUN_TIMEOUT_S = 120


def oldest_requirements() -> list[str]:
    """The lowest bound of each requirement, as a version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [requirement for extra in EXTRAS for requirement in project["optional-dependencies"][extra]]
    return sorted({re.sub(r">=([^,;]+).*", r"==\1", requirement) for requirement in project["dependencies"] + extras})


def environment() -> Path:
    """The folder of the environment, made if it is not there yet; raises CalledProcessError with pip's words.

    Packages of that age have no wheels for the newest Python, so it has the oldest one that the machine has.
    """
    python = shutil.which("python3.11") or sys.executable
    requirements = oldest_requirements()
    digest = hashlib.sha256(repr((python, requirements)).encode()).hexdigest()[:8]
    folder = cache_folder() / f"oldest-packages-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            whole = Path(scratch, "whole")
            for command in (
                [python, "-m", "venv", str(whole)],
                [str(whole / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements],
            ):
                subprocess.run(
                    command,
                    check=True,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_TIMEOUT_S,
                )
            # Renamed when complete; if another process was faster, its folder is used.
            with contextlib.suppress(OSError):
                whole.rename(folder)
    return folder


def run_kctl(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of this source tree with the packages of the environment."""
    return subprocess.run(
        [environment() / "bin/python", "-m", "kctl", *words],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
