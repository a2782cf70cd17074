"""One broker for all attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.wire import Attacker
from tests.peers.kctl_broker import KctlBroker, kctl_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    with kctl_broker(tmp_path_factory.mktemp("hostile") / "data") as started:
        yield started


@pytest.fixture
def attacker(broker: KctlBroker) -> Iterator[Attacker]:
    with Attacker(broker.bootstrap) as connected:
        yield connected
