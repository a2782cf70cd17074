"""The limit of open files: raised to the hard limit, with a warning when it is too low."""

from __future__ import annotations

import re
import resource
import subprocess
import sys

import pytest

from kctl.system.open_files import OTHER_DESCRIPTORS, shortage


def test_the_soft_limit_becomes_the_hard_one() -> None:
    program = (
        "import resource\n"
        "from kctl.system.open_files import raise_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))\n"
        "print(raise_limit(), raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert output.stdout.split(maxsplit=2) == ["300", "300", "(300, 300)\n"]


@pytest.mark.parametrize("limit", [5_000 + OTHER_DESCRIPTORS, 1_000_000, resource.RLIM_INFINITY])
def test_enough_open_files_log_nothing(limit: int) -> None:
    assert shortage(limit, segments=5_000) is None


def test_too_few_open_files_are_logged_with_the_number_needed() -> None:
    output = shortage(1024, segments=5_000)
    assert output is not None
    assert re.search(r"limit of 1024 .* 5000 segments .* allow 6000 or more", output)
