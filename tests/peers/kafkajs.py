"""kafkajs, the JavaScript client: from the npm registry into the user's cache folder, never into the source tree.

`python -m tests.peers.kafkajs` fetches it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.peers.cache import cache_folder

VERSION = "2.2.4"
DOWNLOAD_TIMEOUT_S = 300


def why_not() -> str | None:
    """The reason why kafkajs cannot run on this machine, for a skipped test; None if it can."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"{program} is not on the PATH: install Node.js with npm"
    return None


def node_modules() -> Path:
    """The folder for NODE_PATH, fetched if it is not there yet; raises CalledProcessError with npm's words."""
    folder = cache_folder() / f"kafkajs-{VERSION}"
    if not folder.is_dir():
        _fetch(folder)
    return folder / "node_modules"


def run_script(script: Path, *args: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs a script of these tests that may `require('kafkajs')`."""
    return subprocess.run(
        ["node", script, *args],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "NODE_PATH": str(node_modules()), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    )


def _fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        subprocess.run(
            [
                "npm",
                "install",
                "--prefix",
                scratch,
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                f"kafkajs@{VERSION}",
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
        Path(scratch, "node_modules").rename(_made(Path(scratch, "whole")) / "node_modules")
        # Renamed when complete; if another process was faster, its folder is used.
        with contextlib.suppress(OSError):
            Path(scratch, "whole").rename(folder)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def main() -> int:
    if reason := why_not():
        sys.stderr.write(f"kafkajs: {reason}\n")
        return 1
    try:
        sys.stderr.write(f"kafkajs {VERSION}: {node_modules()}\n")
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"kafkajs: {error.stdout}{error.stderr}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
