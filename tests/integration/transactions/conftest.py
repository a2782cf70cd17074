"""One broker for the tests of transactions; with KCTL_TEST_BOOTSTRAP=HOST:PORT that broker instead."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.integration.clients.confluent import Confluent
from tests.peers.kctl_broker import kctl_broker

GIVEN = os.environ.get("KCTL_TEST_BOOTSTRAP")
RUN = os.getpid()  # in names: the given broker may have data of an earlier run
PARTITIONS = 3
PROPERTIES = {
    "transaction.state.log.num.partitions": "5",
    # Kafka's 10 s would be most of the time of these tests.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a broker, or of KCTL_TEST_BOOTSTRAP."""
    if GIVEN:
        yield GIVEN
    else:
        with kctl_broker(tmp_path_factory.mktemp("transactions") / "data", properties=PROPERTIES) as broker:
            yield broker.bootstrap


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and transactional ids of this test."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-") + f"-{RUN}"


@pytest.fixture
def topic(name: str, bootstrap: str) -> str:
    """A new topic of three partitions."""
    Confluent(bootstrap).create_topic(name, PARTITIONS)
    return name
