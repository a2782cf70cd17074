"""A ZooKeeper that serves reads but cannot write, or that is gone, is a problem that broker and commands show."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from kctl.admin.cluster.health import HealthProblem, health_reasons
from kctl.admin.cluster.observation import observe
from kctl.admin.cluster.opening import open_cluster
from kctl.admin.topics.topics import NewTopic, create_topics
from kctl.zookeeper.four_letter_words import write_problem
from tests.peers import probe
from tests.peers.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.peers.kctl_broker import kctl_broker

UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
WAIT_S = 60


def test_a_full_disk_of_zookeeper_and_a_dead_one_are_problems_of_the_cluster(
    tmp_path: Path, embedded: EmbeddedZooKeeperProcess
) -> None:
    """The process's file size limit simulates the full disk: writes fail, and succeed when it is raised."""
    metrics = f"127.0.0.1:{probe.free_port()}"
    host, port = metrics.split(":")
    properties = {"metrics.host": host, "metrics.port": port}
    with kctl_broker(tmp_path / "data", properties=properties, zookeeper=embedded.connect) as broker:

        async def problems() -> list[str]:
            async with open_cluster(broker.bootstrap) as client:
                reasons = health_reasons(await observe(client))
                assert all(reason.problem is HealthProblem.NO_CHANGES for reason in reasons)
                return [reason.message for reason in reasons]

        async def message_of_creation(name: str) -> str:
            async with open_cluster(broker.bootstrap) as client:
                (created,) = await create_topics(client, [NewTopic(name, partitions=1, replication_factor=1)])
                return created.outcome.message

        def wait_for_problem(holds: Callable[[str], bool]) -> None:
            probe.wait_until(
                lambda: holds(" ".join(asyncio.run(problems()))), what="the health of the cluster", timeout_s=WAIT_S
            )

        assert asyncio.run(problems()) == []
        assert page(metrics, "healthz") == page(metrics, "readyz") == (200, "ok\n")
        resource.prlimit(embedded.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        assert asyncio.run(message_of_creation("a"))
        wait_for_problem(lambda text: "cannot write to its disk" in text)
        assert "cannot write to its disk" in asyncio.run(message_of_creation("b"))
        assert "cannot write to its disk" in (write_problem(embedded.connect) or "")
        for path, status in (("healthz", 200), ("readyz", 503)):
            found = page(metrics, path)
            assert found[0] == status, path
            assert "accepts no changes" in found[1], path
        resource.prlimit(embedded.pid, resource.RLIMIT_FSIZE, UNLIMITED)
        wait_for_problem(lambda text: not text)
        assert asyncio.run(message_of_creation("c")) == ""
        assert write_problem(embedded.connect) is None
        embedded.kill9()
        wait_for_problem(lambda text: "session with ZooKeeper is suspended" in text)
        assert write_problem(embedded.connect) == f"ZooKeeper at {embedded.connect} cannot be reached"
        embedded.start()


def page(address: str, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{address}/{path}") as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
