"""One broker for all attacks, and a second one for attacks that claim to come from its controller, another broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient

from tests.hostile.raw_client import Attacker
from tests.peers.kctl_broker import KctlBroker, kctl_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    """A broker that all hostile tests share: it must survive each of them."""
    with kctl_broker(tmp_path_factory.mktemp("hostile") / "data") as started:
        yield started


@pytest.fixture
def attacker(broker: KctlBroker) -> Iterator[Attacker]:
    """A raw connection to the broker."""
    with Attacker(broker.bootstrap) as connected:
        yield connected


@dataclass(frozen=True)
class Impostor:
    """A connection to a broker, and the fields that its controller, another broker, puts into its requests."""

    broker: KctlBroker
    attacker: Attacker
    controller_id: int
    controller_epoch: int
    broker_id: int
    broker_epoch: int


@pytest.fixture(scope="session")
def controlled(broker: KctlBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KctlBroker]:
    """A broker in the cluster of `broker`, which stays its controller."""
    zookeeper = json.loads((broker.data_dir / "broker.json").read_text())["zookeeper"]
    with kctl_broker(tmp_path_factory.mktemp("controlled") / "data", zookeeper=zookeeper) as started:
        yield started


@pytest.fixture
def impostor(controlled: KctlBroker) -> Iterator[Impostor]:
    """A connection that sends requests in the name of the controller of `controlled`."""
    running = json.loads((controlled.data_dir / "broker.json").read_text())
    client = KazooClient(running["zookeeper"])
    client.start(60)
    controller_id = json.loads(client.get("/controller")[0])["brokerid"]
    controller_epoch = int(client.get("/controller_epoch")[0])
    broker_epoch = client.exists(f"/brokers/ids/{running['broker_id']}").czxid
    client.stop()
    client.close()
    with Attacker(controlled.bootstrap) as attacker:
        yield Impostor(controlled, attacker, controller_id, controller_epoch, running["broker_id"], broker_epoch)
