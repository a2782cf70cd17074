"""The name under which kctl is installed: `kctl` on PyPI is another project."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterable
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
        if (
            not path.is_file()
            or path == Path(__file__)
            or path.suffix not in {".py", ".md", ".toml", ".bash", ".zsh", ".fish", ""}
        ):
            continue
        text = path.read_text(encoding="utf-8")
        wrong += [f"{name}: {line}" for line in text.splitlines() if _OTHER_PROJECT.search(line)]
    assert wrong == []


def test_the_project_of_the_same_name_is_recognised() -> None:
    assert _OTHER_PROJECT.search("pip install 'kctl[spark]'")
    assert _OTHER_PROJECT.search("pip install kctl")
    assert not _OTHER_PROJECT.search("pip install 'kctl-kafka[spark]'")


def test_the_page_about_dependencies_lists_those_that_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, extras = declared["project"], declared["project"]["optional-dependencies"]
    page = (ROOT / "docs/decisions/dependencies.md").read_text(encoding="utf-8")
    run_time, extra, development = (table.splitlines()[2:] for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE))
    assert _listed(run_time, column=1) == _names(project["dependencies"])
    assert _listed(extra, column=1) == set(extras)
    assert _listed(extra, column=2) == _names(requirement for extra in extras.values() for requirement in extra)
    assert _listed(development, column=1) == _names(declared["dependency-groups"]["dev"])


def _names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}


def _listed(rows: Iterable[str], *, column: int) -> set[str]:
    """The names in a column of a table, which are separated by commas."""
    return {name.strip() for row in rows for name in row.split("|")[column].split(",")}
