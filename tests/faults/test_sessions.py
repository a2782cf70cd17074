"""Lost ZooKeeper sessions and foreign writes to /controller, on real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

from kctl.errors import ErrorCode
from tests.faults.cluster import PATIENCE_S, ZOOKEEPER, Cluster, cluster, why_not
from tests.faults.workload import Librdkafka
from tests.peers.one_broker import Appended, OneBroker
from tests.peers.probe import wait_until

pytestmark = pytest.mark.timeout(300)

TOPIC = "orders"
PARTITIONS = 6
FENCED = "not acting as leader"
REFUSED = Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
JUNK = {
    "/brokers/topics/broken": b"{",
    "/brokers/topics/newer": b'{"version":99,"partitions":{"0":[0]}}',
    "/admin/reassign_partitions": b"{",
    "/admin/preferred_replica_election": b'{"version":2,"partitions":[]}',
    "/config/changes/junk": b"{",
    "/config/changes/config_change_9000000000": b'{"version":3,"entity_path":"topics/orders"}',
}


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    with cluster(tmp_path_factory.mktemp("sessions")) as made:
        made.create_topic(TOPIC, PARTITIONS)
        yield made


@pytest.fixture
def writer(struck: Cluster) -> Iterator[Librdkafka]:
    """Writes during the test; every acknowledged record must be kept."""
    made = Librdkafka(struck.bootstrap, TOPIC, PARTITIONS, rate=60)
    made.start()
    _progress(made)
    yield made
    made.end()
    assert not made.complaints


@pytest.fixture
def zookeeper(struck: Cluster) -> Iterator[KazooClient]:
    """Requests with `retry` are repeated if ZooKeeper was paused for longer than this."""
    again = KazooRetry(max_tries=-1, max_delay=1.0)
    client = KazooClient(struck.zookeeper.connect, timeout=20, connection_retry=again, command_retry=again)
    client.start(timeout=60)
    yield client
    client.stop()
    client.close()


def _progress(writer: Librdkafka) -> None:
    """Waits until every partition has acknowledged further records."""
    goals = [count + 5 for count in writer.acknowledged.counts()]
    wait_until(
        lambda: bool(writer.complaints) or all(map(int.__ge__, writer.acknowledged.counts(), goals)),
        what="more records in each partition",
        timeout_s=PATIENCE_S,
    )
    assert not writer.complaints


def _is_well(struck: Cluster, zookeeper: KazooClient, name: str) -> None:
    """The controller handles a new request after all earlier ones, and all replicas are in sync.

    The in-sync replicas are read from ZooKeeper, because the brokers' metadata may be outdated.
    """
    wait_until(
        lambda: len(zookeeper.retry(zookeeper.get_children, "/brokers/ids")) == 3,
        what="three brokers",
        timeout_s=PATIENCE_S,
    )
    struck.create_topic(name, 3)
    wait_until(lambda: _is_in_sync(zookeeper), what="all replicas in sync", timeout_s=PATIENCE_S)
    wait_until(
        lambda: struck.is_whole(TOPIC, PARTITIONS),
        what="the partitions in the metadata of all brokers",
        timeout_s=PATIENCE_S,
    )


def _is_in_sync(zookeeper: KazooClient) -> bool:
    return all(len(state["isr"]) == 3 for state in _states(zookeeper))


def _states(zookeeper: KazooClient) -> list[dict[str, Any]]:
    """All partitions' states in ZooKeeper."""
    paths = [f"/brokers/topics/{TOPIC}/partitions/{number}/state" for number in range(PARTITIONS)]
    return [json.loads(zookeeper.retry(zookeeper.get, path)[0]) for path in paths]


def _epoch(zookeeper: KazooClient) -> int:
    return int(zookeeper.retry(zookeeper.get, "/controller_epoch")[0])


def test_brokers_serve_without_zookeeper_only_while_their_sessions_cannot_have_expired(
    struck: Cluster, writer: Librdkafka, zookeeper: KazooClient
) -> None:
    """A halted ZooKeeper ends no session, but a broker cannot tell it from one that it is cut off from."""
    before = {broker_id: broker.log_text.count(FENCED) for broker_id, broker in struck.brokers.items()}
    struck.halt(struck.zookeeper.pid)
    try:
        _progress(writer)
        wait_until(
            lambda: all(
                struck.brokers[broker_of_count].log_text.count(FENCED) > count
                for broker_of_count, count in before.items()
            ),
            what="brokers that do not act as leaders",
            timeout_s=PATIENCE_S,
        )
        for broker_id, broker in struck.brokers.items():
            for number in range(PARTITIONS):
                with OneBroker(broker.bootstrap) as client:
                    assert client.append(TOPIC, b"fenced", partition=number) == REFUSED, (broker_id, number)
    finally:
        struck.resume(struck.zookeeper.pid)
    _is_well(struck, zookeeper, "after-halt")
    _progress(writer)


def test_a_controller_with_an_expired_session_resigns_and_registers_again_as_a_broker(
    struck: Cluster, writer: Librdkafka, zookeeper: KazooClient
) -> None:
    _is_well(struck, zookeeper, "before-lost-session")
    old = struck.controller()
    path = f"/brokers/ids/{old}"
    before, epoch = zookeeper.get(path)[1].czxid, _epoch(zookeeper)
    struck.network.part(struck.host(old), ZOOKEEPER)
    try:
        wait_until(lambda: _epoch(zookeeper) > epoch, what="another controller", timeout_s=PATIENCE_S)
        # Read from ZooKeeper, because clients may query the isolated broker, whose metadata is outdated.
        wait_until(
            lambda: all(state["leader"] not in {old, -1} for state in _states(zookeeper)),
            what="other leaders",
            timeout_s=PATIENCE_S,
        )
    finally:
        struck.network.join(struck.host(old), ZOOKEEPER)
    wait_until(
        lambda: (stat := zookeeper.exists(path)) is not None and stat.czxid > before,
        what="a new registration",
        timeout_s=PATIENCE_S,
    )
    _is_well(struck, zookeeper, "after-lost-session")
    _progress(writer)


@pytest.mark.parametrize("data", [None, b"{", b'{"version":1,"brokerid":2000,"timestamp":"0"}'])
def test_controller_is_reelected_after_foreign_znode_write(
    struck: Cluster, zookeeper: KazooClient, data: bytes | None
) -> None:
    epoch = _epoch(zookeeper)
    if data is None:
        zookeeper.delete("/controller")
    else:
        zookeeper.set("/controller", data)
    wait_until(lambda: _epoch(zookeeper) > epoch, what="another election", timeout_s=PATIENCE_S)
    _is_well(struck, zookeeper, f"after-{epoch}")


def test_malformed_znodes_are_logged_and_the_rest_is_served(struck: Cluster, zookeeper: KazooClient) -> None:
    for path, data in JUNK.items():
        zookeeper.create(path, data)
    try:
        wait_until(
            lambda: all(any(path in broker.log_text for broker in struck.brokers.values()) for path in JUNK),
            what="a log line about each",
            timeout_s=PATIENCE_S,
        )
        _is_well(struck, zookeeper, "after-junk")
    finally:
        for path in JUNK:
            with suppress(NoNodeError):  # Some the brokers have deleted.
                zookeeper.delete(path)
