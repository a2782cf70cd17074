"""Clients and frameworks of Python in environments of their own, in the versions of their `.txt` files.

The environments are folders in the cache of the tests.  `python -m tests.peers.pinned_clients` creates them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.peers.cache import cache_folder

FOLDER = Path(__file__).parent.parent / "integration/clients/pinned"
CLIENTS = sorted(path.stem for path in FOLDER.glob("*.txt"))
"""Each has a script NAME.py, and NAME.txt with its own version first and then those of what it imports."""
DOWNLOAD_TIMEOUT_S = 300


def version_of(client: str) -> tuple[str, str]:
    """The name of the distribution and its version."""
    name, _, version = _requirements(client).read_text().splitlines()[0].partition("==")
    return name, version


def packages(client: str) -> Path:
    """The folder with the packages, fetched if it is not there yet; raises CalledProcessError with pip's words."""
    content = _requirements(client).read_bytes()
    digest = hashlib.sha256(content + sys.version.encode()).hexdigest()[:8]
    folder = cache_folder() / f"{client}-{version_of(client)[1]}-{digest}"
    if not folder.is_dir():
        _fetch(client, folder)
    return folder


def run_client(client: str, arguments: Sequence[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Runs the script of the client, which sees its packages and the standard library only."""
    return subprocess.run(
        [sys.executable, "-S", "-P", "-W", "ignore", FOLDER / f"{client}.py", *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={"PYTHONPATH": str(packages(client))},
    )


def _requirements(client: str) -> Path:
    return FOLDER / f"{client}.txt"


def _fetch(client: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        whole = Path(scratch, "whole")
        options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--no-compile"]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, "--target", whole, "-r", _requirements(client)],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
        # Renamed when complete; if another process was faster, its folder is used.
        with contextlib.suppress(OSError):
            whole.rename(folder)


def _report(client: str) -> bool:
    """Fetches a client; returns whether that succeeded."""
    try:
        sys.stderr.write(f"{client}: {packages(client)}\n")
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{client}: {error.stdout}{error.stderr}\n")
        return False
    return True


def main() -> int:
    if importlib.util.find_spec("pip") is None:
        sys.stderr.write("pinned clients: this Python has no pip; the tests fetch them with that of their own\n")
        return 0
    with ThreadPoolExecutor(2) as pool:
        return 0 if all(pool.map(_report, CLIENTS)) else 1


if __name__ == "__main__":
    sys.exit(main())
