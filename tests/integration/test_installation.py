"""The distribution is built, checked, installed into an empty environment, and does its main job there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import kctl

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
NO_COMPILER = {"CC": "false", "CXX": "false"}
"""The program `false` fails, as a compiler does that is not there."""
IN_THE_WHEEL = {
    "kctl/py.typed",
    "kctl/commands/completion/shells/_kctl",
    "kctl/records/compiled/key_table.py",
    "kctl/records/compiled/walk.py",
    f"kctl_kafka-{kctl.__version__}.data/data/share/bash-completion/completions/kctl.bash",
    f"kctl_kafka-{kctl.__version__}.data/data/share/fish/vendor_completions.d/kctl.fish",
    f"kctl_kafka-{kctl.__version__}.data/data/share/zsh/site-functions/_kctl",
    f"kctl_kafka-{kctl.__version__}.data/data/share/man/man1/kctl.1",
    f"kctl_kafka-{kctl.__version__}.data/data/share/man/man1/kctl-topics.1",
    f"kctl_kafka-{kctl.__version__}.dist-info/licenses/LICENSE",
}
IN_THE_SDIST = {
    *("PKG-INFO", "LICENSE", "CHANGELOG.md", "setup.py", "pyproject.toml"),
    *("kctl/records/compiled/key_table.py", "kctl/records/compiled/walk.py"),
    *("packaging/systemd/kctl-broker.service", "packaging/man/kctl-topics.1", "tests/conftest.py"),
}


class Distributions(NamedTuple):
    """The files of a release."""

    sdist: Path
    wheel: Path
    """Built from the sdist."""
    is_compiled: bool


class Installation(NamedTuple):
    """An environment with nothing but kctl and what it depends on."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, stdin: str = "") -> str:
        """Output of the installed program; it runs outside of the source tree."""
        return run(str(self.folder / "bin" / "kctl"), *words, stdin=stdin, environment=self.environment, at=self.folder)


def run(
    *command: str | Path, stdin: str = "", environment: dict[str, str] | None = None, at: Path | None = None
) -> str:
    ran = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        capture_output=True,
        text=True,
        env=os.environ | (environment or {}),
        cwd=at,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(
    scope="module",
    params=[pytest.param(False, id="interpreted"), pytest.param(True, id="compiled", marks=pytest.mark.matrix)],
)
def distributions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Built from the files under version control, with the programs that a release uses, with or without a compiler."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    listed = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
            (source / name).chmod((ROOT / name).stat().st_mode)
    # The optimizer of the C compiler takes longer than all the rest, and changes nothing that is tested here.
    environment = {"MYPYC_OPT_LEVEL": "0"} if request.param else NO_COMPILER
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source, environment=environment)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return Distributions(sdist, wheel, request.param)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, distributions: Distributions) -> Installation:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    environment = {"XDG_DATA_HOME": str(folder / "data"), "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": ""}
    run(sys.executable, "-m", "pip", "--python", folder, "install", "-q", "--no-compile", distributions.wheel)
    return Installation(folder, environment)


def test_distributions_are_accepted_by_the_package_index(distributions: Distributions) -> None:
    files = (distributions.sdist, distributions.wheel)
    checked = run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files)
    assert checked.count("PASSED") == 2, checked


def test_distributions_have_all_files(distributions: Distributions) -> None:
    names = set(zipfile.ZipFile(distributions.wheel).namelist())
    assert names >= IN_THE_WHEEL
    assert {name.partition("/")[0] for name in names} - {"kctl"} <= {
        f"kctl_kafka-{kctl.__version__}.data",
        f"kctl_kafka-{kctl.__version__}.dist-info",
    }
    with tarfile.open(distributions.sdist) as archive:
        prefix = f"kctl_kafka-{kctl.__version__}/"
        assert {name.removeprefix(prefix) for name in archive.getnames()} >= IN_THE_SDIST


def test_only_the_wheel_of_a_machine_with_a_compiler_has_compiled_code(distributions: Distributions) -> None:
    names = zipfile.ZipFile(distributions.wheel).namelist()
    assert any(name.endswith(".so") for name in names) is distributions.is_compiled


def test_installed_program_runs_a_broker_and_its_clients(
    installation: Installation, distributions: Distributions
) -> None:
    version = installation.run("--version").strip()
    assert version.split(" (")[0] == f"kctl {kctl.__version__}"
    assert ("interpreted" in version) is not distributions.is_compiled
    installation.run("broker", "start", "--port", "0", "--detach")
    try:
        (status,) = json.loads(installation.run("broker", "status", "--format", "json"))
        where = ("--bootstrap-server", status["address"])
        installation.run("topics", "create", "orders", "--partitions", "3", *where)
        installation.run("produce", "orders", *where, stdin="first\nsecond\nthird\n")
        rows = json.loads(installation.run("consume", "orders", "--format", "json", *where))
        assert sorted(row["value"] for row in rows) == ["first", "second", "third"]
    finally:
        installation.run("broker", "stop")
    assert installation.run("broker", "--help").startswith("Usage: kctl broker")
    assert "__complete bash" in installation.run("completion", "bash")


def test_version_is_the_same_everywhere(installation: Installation, distributions: Distributions) -> None:
    program = "import importlib.metadata, kctl; print(importlib.metadata.version('kctl-kafka'), kctl.__version__)"
    shown = run(
        installation.folder / "bin" / "python", "-c", program, environment={"PYTHONPATH": ""}, at=installation.folder
    )
    assert shown.split() == [kctl.__version__] * 2
    files = (distributions.sdist, distributions.wheel)
    assert {path.name.split("-")[1].removesuffix(".tar.gz") for path in files} == {kctl.__version__}
