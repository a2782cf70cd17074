"""One broker for all client tests, on its embedded ZooKeeper; a fresh topic per test.

With KCTL_TEST_BOOTSTRAP=HOST:PORT the tests run against that broker instead.  With Apache Kafka this checks the tests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients.confluent import Confluent
from tests.peers.kctl_broker import kctl_broker

GIVEN = os.environ.get("KCTL_TEST_BOOTSTRAP")
PARTITIONS = 3
RUN = os.getpid()  # in topic names: a broker that was given may have the topics of an earlier run

SOCKETS_OF_CLIENTS = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
"""kafka-python leaves a socket to the garbage collector when a connection fails while it is checked."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(SOCKETS_OF_CLIENTS))


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of kctl's broker, or of KCTL_TEST_BOOTSTRAP."""
    if GIVEN:
        yield GIVEN
    else:
        with kctl_broker(tmp_path_factory.mktemp("kctl") / "data") as broker:
            yield broker.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """A new topic of three partitions, created by confluent-kafka and named after the test."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-") + f"-{RUN}"
    Confluent(bootstrap).create_topic(name, PARTITIONS)
    return name
