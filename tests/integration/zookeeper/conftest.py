"""Servers for these tests: the embedded one in the test's process or in a separate one, and Apache ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.apache_zookeeper import apache_zookeeper, why_not
from tests.peers.embedded_zookeeper import EmbeddedZooKeeperProcess, embedded_zookeeper


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedZooKeeperProcess]:
    """One process with an empty folder."""
    with embedded_zookeeper(tmp_path / "embedded") as server:
        yield server


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Apache ZooKeeper for all tests of a module: they keep to folders of their own."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with apache_zookeeper(tmp_path_factory.mktemp("apache")) as connect:
        yield connect


@pytest.fixture(scope="module")
def shared_embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One process of the embedded server for all tests of a module."""
    with embedded_zookeeper(tmp_path_factory.mktemp("zookeeper") / "data") as server:
        yield server.connect


@pytest.fixture(params=["embedded", pytest.param("apache", marks=pytest.mark.jvm)])
def ensemble(request: pytest.FixtureRequest) -> str:
    """Each test runs on the embedded server and on Apache ZooKeeper."""
    name = "shared_embedded" if request.param == "embedded" else "apache"
    connect: str = request.getfixturevalue(name)
    return connect
