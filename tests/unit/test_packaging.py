"""The systemd unit and the container file, as far as they can be checked without systemd and a container engine."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.frame.root import all_commands

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging/systemd/kctl-broker.service"
PROCESSES = ROOT / "packaging/systemd/processes.conf"
CONTAINERFILE = ROOT / "packaging/container/Containerfile"
README = ROOT / "packaging/README.md"
HIGHEST_EXPOSURE = 2.0
"""Highest exposure by systemd-analyze, at most 10; an unprotected service has 9.6."""
INSTRUCTIONS = {
    *("FROM", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD")
}


def unit() -> dict[str, list[str]]:
    """The values of each setting of the unit."""
    settings = defaultdict(list)
    for line in UNIT.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            settings[name].append(value)
    return dict(settings)


def containerfile() -> list[tuple[str, str]]:
    """Instructions with their arguments."""
    text = re.sub(r"(?m)^#.*\n", "", CONTAINERFILE.read_text()).replace("\\\n", " ")
    parts = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(instruction, arguments.strip()) for instruction, _, arguments in parts]


def argument_of(instruction: str) -> str:
    """The argument of an instruction in the last stage."""
    return [arguments for name, arguments in containerfile() if name == instruction][-1]


def check_options(words: list[str]) -> None:
    """Fails unless kctl has the command and its options."""
    noun, verb, *rest = words
    command = all_commands()[noun][verb]
    known = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    assert {word for word in rest if word.startswith("--")} <= known


def test_unit_starts_the_broker_with_options_that_it_has() -> None:
    (start,) = unit()["ExecStart"]
    program, *words = shlex.split(start)
    assert program == "/opt/kctl/bin/kctl"
    check_options(words)


def test_drop_in_starts_several_brokers_with_the_same_options() -> None:
    lines = PROCESSES.read_text().replace("\\\n", " ").splitlines()
    reset, start = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    assert reset == ""  # Without it the drop-in would add a second command.
    assert shlex.split(start)[:-2] == shlex.split(unit()["ExecStart"][0])
    assert shlex.split(start)[-2:] == ["--processes", "${KCTL_PROCESSES}"]
    assert "Environment=KCTL_PROCESSES=4" in lines
    check_options(shlex.split(start)[1:])


def test_unit_agrees_with_what_the_broker_does() -> None:
    settings = unit()
    assert settings["Type"] == ["notify"]
    assert settings["RestartPreventExitStatus"] == [str(int(ExitStatus.USAGE))]
    assert "KillSignal" not in settings  # SIGTERM, systemd's default, causes a controlled shutdown.
    assert int(settings["WatchdogSec"][0].removesuffix("s")) >= 30
    assert "AF_UNIX" in settings["RestrictAddressFamilies"][0].split()  # for the notifications
    assert settings["StateDirectory"] == ["kctl"]
    assert "--data-dir /var/lib/kctl" in settings["ExecStart"][0]


@pytest.fixture
def checkable_unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/kctl/bin/kctl", shutil.which("true") or ""))
    return path


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_accepts_every_line_of_the_unit(checkable_unit: Path) -> None:
    verified = analyze("verify", "--man=no", checkable_unit)
    assert (verified.returncode, verified.stderr) == (0, "")
    checkable_unit.write_text(checkable_unit.read_text().replace("NoNewPrivileges=yes", "NoNewPrivilege=yes"))
    assert "'NoNewPrivilege'" in analyze("verify", "--man=no", checkable_unit).stderr


def test_unit_is_hardened(checkable_unit: Path) -> None:
    assessed = analyze("security", "--offline=true", "--no-pager", checkable_unit)
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", assessed.stdout)
    assert exposure is not None, assessed.stdout + assessed.stderr
    assert float(exposure[1]) <= HIGHEST_EXPOSURE


def test_container_runs_the_same_command_as_the_unit() -> None:
    entry = json.loads(argument_of("ENTRYPOINT"))
    command = json.loads(argument_of("CMD"))
    assert entry == ["kctl"]
    assert [word for word in command if word != "--from-env"] == shlex.split(unit()["ExecStart"][0])[1:]
    check_options([*entry, *command][1:])
    health = json.loads(argument_of("HEALTHCHECK").partition("CMD ")[2])
    assert health[0] == "kctl"
    check_options(health[1:])


def test_container_file_uses_files_that_exist_and_no_root() -> None:
    assert {instruction for instruction, _ in containerfile()} <= INSTRUCTIONS
    for instruction, arguments in containerfile():
        if instruction == "COPY" and not arguments.startswith("--from="):
            *sources, _ = arguments.split()
            assert all((ROOT / source).exists() for source in sources), arguments
    user, _, group = argument_of("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    # Otherwise the user's group has another number, and the folders belong to that one.
    made = " ".join(arguments for name, arguments in containerfile() if name == "RUN")
    assert f"groupadd --gid {group} kctl" in made
    assert f"useradd --uid {user} --gid {group} " in made
    assert argument_of("STOPSIGNAL") == "SIGTERM"


def test_container_file_copies_all_that_the_build_reads() -> None:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data_files = [path for paths in configuration["tool"]["setuptools"]["data-files"].values() for path in paths]
    copied = [source for name, arguments in containerfile() if name == "COPY" for source in arguments.split()[:-1]]
    (backend,) = configuration["build-system"]["backend-path"]
    data_files.remove("packaging/man/*.1")  # The build backend generates them.
    build = ("pyproject.toml", "setup.py", f"{backend}/{configuration['build-system']['build-backend']}.py")
    for path in (*build, configuration["project"]["readme"], "kctl", *data_files):
        assert any(path == source or path.startswith(f"{source}/") for source in copied), path


def test_container_has_a_python_that_the_distribution_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = {image.split(":")[1].split("-")[0] for name, image in containerfile() if name == "FROM"}
    (version,) = versions
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_commands_of_the_readme_exist() -> None:
    text = README.read_text().replace("\\\n", " ")
    lines = re.findall(
        r"(?:^[#$] (?:sudo -u kctl )?|`)(?:/opt/kctl/bin/)?kctl ([a-z]+ [a-z-]+[^`\n]*)", text, re.MULTILINE
    )
    assert len(lines) >= 3
    for line in lines:
        check_options(shlex.split(line))
