"""Clients and frameworks in fixed versions, each in an environment of its own: produce, read in a group, resume.

docs/tested-clients.md lists them beside those that were tried by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.integration.clients.confluent import Confluent
from tests.integration.clients.conftest import PARTITIONS, RUN
from tests.integration.clients.family import TIMEOUT_S
from tests.peers import apache_kafka, kafkajs, pinned_clients

pytestmark = pytest.mark.clients

FIRST, SECOND = 20, 5
TABLE = Path(__file__).parent.parent.parent.parent / "docs/tested-clients.md"
Runs = Mapping[str, "Future[CompletedProcess[str]]"]


@pytest.fixture(scope="module")
def runs(bootstrap: str) -> Iterator[Runs]:
    """The scripts of all clients, which run at the same time: they mostly wait."""

    def run(client: str) -> CompletedProcess[str]:
        topic = f"pinned-{client}-{RUN}"
        Confluent(bootstrap).create_topic(topic, PARTITIONS)
        arguments = [bootstrap, topic, f"readers-{topic}", str(FIRST), str(SECOND)]
        return pinned_clients.run_client(client, arguments, timeout_s=TIMEOUT_S)

    with ThreadPoolExecutor(len(pinned_clients.CLIENTS)) as pool:
        yield {client: pool.submit(run, client) for client in pinned_clients.CLIENTS}


@pytest.mark.parametrize("client", pinned_clients.CLIENTS)
def test_a_group_resumes_at_its_committed_offsets(client: str, runs: Runs) -> None:
    ran = runs[client].result()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rounds = json.loads(ran.stdout.splitlines()[-1])
    assert [sorted(map(int, values)) for values in rounds] == [list(range(FIRST)), list(range(SECOND))]


def test_the_table_has_the_versions_that_the_tests_run() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| (CI|CI, pinned) \|", TABLE.read_text(), re.MULTILINE)
    documented = {(name.lower().replace(" ", ""), by): versions.split(", ") for name, versions, by in rows}
    for client in pinned_clients.CLIENTS:
        name, version = pinned_clients.version_of(client)
        assert documented.pop((name, "CI, pinned")) == [version]
    assert not [name for name, by in documented if by == "CI, pinned"]
    assert documented["kafkajs", "CI"] == [kafkajs.VERSION]
    apache = {
        *apache_kafka.OLD_CLIENTS,
        apache_kafka.OLDEST_JUDGE,
        apache_kafka.LAST_WITH_ZOOKEEPER,
        apache_kafka.TOOLS_FOR_NEWEST,
        apache_kafka.NEWEST,
    }
    assert set(documented["apachekafka,javaclientsandtools", "CI"]) == apache
