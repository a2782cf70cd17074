"""One broker for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.kctl_broker import KctlBroker, kctl_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    """A broker on the embedded ZooKeeper, for all tests of this folder."""
    with kctl_broker(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started
