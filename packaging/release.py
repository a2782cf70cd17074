"""Build and test the files of a release: `./dev release [--python 3.12 ...]` writes them into dist.

The source distribution is made from the committed files.  A wheel is built from it for each CPython of `VERSIONS` that
this machine has; those that are missing are named.  The archive for containers has what the Containerfile copies.  Each
file is installed into an empty environment, in which `kctl --version`, a broker, `kctl produce` and `kctl consume` run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTAINERFILE = Path("packaging/container/Containerfile")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
NO_COMPILER = {"CC": "false", "CXX": "false"}
"""The program `false` fails, as a compiler does that is not there: the package is then installed without C code."""
RECORDS = ["first", "second", "third"]


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if an interpreter of --python is missing, or files are not committed."""
    parser = argparse.ArgumentParser(prog="./dev release", description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", metavar="VERSION", help="only these versions, such as 3.12")
    options = parser.parse_args(arguments)
    versions = options.python or VERSIONS
    interpreters = {version: path for version in versions if (path := interpreter(version)) is not None}
    missing = [version for version in versions if version not in interpreters]
    if uncommitted := output("git", "-C", ROOT, "status", "--porcelain"):
        return report_error(f"commit or remove these files first, a release has committed files only:\n{uncommitted}")
    if not interpreters or (options.python and missing):
        return report_error(f"no interpreter for CPython {', '.join(missing)}")
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="kctl-release-") as folder:
        files = build(Path(folder), target, interpreters)
        for number, (file, python, variables) in enumerate(files):
            try_installed(file, python, variables, Path(folder) / f"environment-{number}")
    built = sorted(path for path in target.iterdir())
    run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *[p for p in built if is_distribution(p)])
    sums = target / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built))
    for path in (*built, sums):
        print(path.relative_to(ROOT), f"{path.stat().st_size:,} bytes")
    if missing:
        print(f"no wheel for CPython {', '.join(missing)}: this machine has no such interpreter")
    return 0


def build(folder: Path, target: Path, interpreters: dict[str, Path]) -> list[tuple[Path, Path, dict[str, str]]]:
    """Write all files into `target`; returns each with the interpreter and the variables for its installation."""
    source = folder / "source"
    source.mkdir()
    committed = folder / "committed.tar"
    run("git", "-C", ROOT, "archive", "--output", committed, "HEAD")
    extract(committed, source)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", target, source)
    (sdist,) = target.glob("*.tar.gz")
    oldest = next(iter(interpreters.values()))
    files = [(sdist, oldest, NO_COMPILER)]
    for version, python in interpreters.items():
        before = set(target.iterdir())
        environment = new_environment(python, folder / f"build-{version}")
        run(environment / "bin" / "python", "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", target, sdist)
        (wheel,) = set(target.iterdir()) - before
        files.append((wheel, python, {}))
    archive = target / sdist.name.replace(".tar.gz", "-container.tar.gz")
    pack_for_containers(source, archive)
    return [*files, (archive, oldest, NO_COMPILER)]


def pack_for_containers(source: Path, archive: Path) -> None:
    """Write the files that the Containerfile copies, and itself, with the folder structure of the repository."""
    text = (source / CONTAINERFILE).read_text()
    lines = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line]
    with tarfile.open(archive, "w:gz") as packed:
        for name in (str(CONTAINERFILE), *(name for names in lines for name in names)):
            packed.add(source / name, name)


def try_installed(file: Path, python: Path, variables: dict[str, str], folder: Path) -> None:
    """Install a file into an empty environment, and use what it installs as a first user would.

    Raises CalledProcessError if a command fails, and RuntimeError if what is consumed is not what was produced.
    """
    environment = new_environment(python, folder)
    installed = file
    if file.name.endswith("-container.tar.gz"):
        installed = folder / "context"
        installed.mkdir()
        extract(file, installed)
    pip = environment / "bin" / "python", "-m", "pip", "install", "-q", "--no-compile"
    run(*pip, installed, variables=variables)
    kctl = environment / "bin" / "kctl"
    home = {"HOME": str(folder), "PYTHONPATH": "", "XDG_DATA_HOME": str(folder / "data")}
    version = output(kctl, "--version", variables=home)
    print(f"{file.name}: {version}", flush=True)
    if ("interpreted" in version) is not bool(variables):
        raise RuntimeError(f"{file.name}: compiled code is {'present' if variables else 'missing'}")
    run(kctl, "broker", "start", "--port", "0", "--detach", variables=home)
    try:
        (status,) = json.loads(output(kctl, "broker", "status", "--format", "json", variables=home))
        home["KCTL_BOOTSTRAP_SERVER"] = status["address"]
        run(kctl, "topics", "create", "orders", "--partitions", "3", variables=home)
        output(kctl, "produce", "orders", variables=home, stdin="".join(f"{record}\n" for record in RECORDS))
        rows = json.loads(output(kctl, "consume", "orders", "--format", "json", variables=home))
        if (values := sorted(row["value"] for row in rows)) != RECORDS:
            raise RuntimeError(f"{file.name}: consumed {values} instead of {RECORDS}")
    finally:
        run(kctl, "broker", "stop", variables=home)


def interpreter(version: str) -> Path | None:
    """Return an interpreter of CPython of this version: on the PATH, of pyenv or of uv."""
    homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"), reverse=True)
    homes += sorted(Path.home().glob(f".local/share/uv/python/cpython-{version}.*/bin/python{version}"), reverse=True)
    on_path = shutil.which(f"python{version}")
    program = "import sys; print(sys.implementation.name, '.'.join(map(str, sys.version_info[:2])))"
    for path in ([Path(on_path)] if on_path else []) + homes:
        tried = subprocess.run([path, "-c", program], check=False, capture_output=True, text=True)
        if tried.returncode == 0 and tried.stdout.split() == ["cpython", version]:
            return path
    return None


def new_environment(python: Path, folder: Path) -> Path:
    """Return an environment with pip and nothing else."""
    run(python, "-m", "venv", folder)
    return folder


def extract(archive: Path, folder: Path) -> None:
    """Extract a tar archive that this program has written."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")


def is_distribution(path: Path) -> bool:
    """Whether a package index takes the file."""
    return path.name.endswith((".whl", ".tar.gz")) and not path.name.endswith("-container.tar.gz")


def run(*command: str | Path, variables: dict[str, str] | None = None) -> None:
    """Run a command, which is printed before; raises CalledProcessError."""
    print("+", *command, file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=os.environ | (variables or {}), cwd=ROOT.parent)


def output(*command: str | Path, variables: dict[str, str] | None = None, stdin: str = "") -> str:
    """Return what a command writes to stdout, without the last line feed; raises CalledProcessError."""
    ran = subprocess.run(
        command,
        check=True,
        input=stdin,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | (variables or {}),
        cwd=ROOT.parent,
    )
    return ran.stdout.rstrip("\n")


def report_error(message: str) -> int:
    """Write a message to stderr; returns the exit status."""
    print(f"./dev release: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
