"""Runs command lines in this process against a small cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.cli import main
from tests.peers.ran import Ran
from tests.unit.client.fake_cluster import FakeCluster

Kctl = Callable[..., Ran]
"""Runs the words of a line, and further words that may contain spaces."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCluster]:
    """Two brokers, which are the default bootstrap servers of command lines; backups go to a temporary folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with FakeCluster(brokers=2) as started:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


@pytest.fixture
def kctl(capfd: pytest.CaptureFixture[str]) -> Kctl:
    """Runs `kctl` with the words of a line, and further words that may contain spaces."""

    def run(line: str, *more: str) -> Ran:
        capfd.readouterr()
        status = main([*line.split(), *more])
        captured = capfd.readouterr()
        return Ran(status, captured.out, captured.err)

    return run
