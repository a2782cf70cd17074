"""The name under which kctl is installed: `kctl` on PyPI is another project."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import kctl

ROOT = Path(__file__).resolve().parents[2]
_OTHER_PROJECT = re.compile(r"""pip3? install (?:-\S+ )*['"]?kctl(?![-\w])""")


def test_the_distribution_is_kctl_kafka_and_the_command_is_kctl() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "kctl-kafka"
    assert project["scripts"] == {"kctl": "kctl.__main__:main"}
    assert project["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", kctl.__version__)


def test_no_text_names_the_other_project_for_installation() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    wrong = []
    for name in filter(None, tracked.decode().split("\0")):
        path = ROOT / name
        if path == Path(__file__) or path.suffix not in {".py", ".md", ".toml", ".bash", ".zsh", ".fish", ""}:
            continue
        text = path.read_text(encoding="utf-8")
        wrong += [f"{name}: {line}" for line in text.splitlines() if _OTHER_PROJECT.search(line)]
    assert wrong == []


def test_the_project_of_the_same_name_is_recognised() -> None:
    assert _OTHER_PROJECT.search("pip install 'kctl[spark]'")
    assert _OTHER_PROJECT.search("pip install kctl")
    assert not _OTHER_PROJECT.search("pip install 'kctl-kafka[spark]'")
