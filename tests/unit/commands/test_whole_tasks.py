"""Commands that move partitions until a task is done: topics set-replication, cluster add-broker, remove-broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.admin.placement.throttles import FOLLOWER_REPLICAS, RATES
from kctl.client.connections import asyncio_transport
from kctl.commands.frame.exit_status import ExitStatus
from kctl.model import TopicPartition
from tests.peers.ran import Ran
from tests.unit.admin.moving_cluster import BROKER, TOPIC, MovingCluster
from tests.unit.client.transports_without_pauses import NoPauseAsyncioTransport
from tests.unit.commands.conftest import Kctl

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MovingCluster]:
    """Brokers 0 to 3 in two racks; `orders` has two partitions of 1000 bytes on 0 and 1, which are in rack a."""
    with MovingCluster(4) as started:
        started.racks = {0: "a", 1: "a", 2: "b", 3: "b"}
        started.place("orders", [0, 1], [1, 0], size=1000)
        started.place("other", [0], size=10)
        started.looks_until_arrival = 2
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr(asyncio_transport, "AsyncioTransport", NoPauseAsyncioTransport)
        yield started


def throttles(cluster: MovingCluster) -> dict[object, object]:
    return {key: value for key, value in cluster.overrides.items() if value}


def statuses(ran: Ran) -> list[str]:
    return [item["status"] for item in ran.document]


def test_factor_is_shown_first_and_set_with_yes(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("topics set-replication orders --factor 3 --format json")
    assert (ran.status, statuses(ran)) == (ExitStatus.DONE, ["would move"] * 2)
    assert "nothing was changed: repeat with --yes" in ran.err
    assert kctl("topics set-replication orders --factor 3 --yes --dry-run").status == ExitStatus.DONE
    assert (cluster.moving, cluster.replicas[ORDERS_0]) == ({}, [0, 1])
    ran = kctl("topics set-replication orders --factor 3 --throttle 1k --yes --format json")
    assert (ran.status, statuses(ran)) == (ExitStatus.DONE, ["complete"] * 2), ran.err
    # The new replicas are in the rack that had none, one on each of its brokers; leaders and order stay.
    assert [cluster.replicas[tp] for tp in (ORDERS_0, ORDERS_1)] == [[0, 1, 2], [1, 0, 3]]
    assert (cluster.replicas[TopicPartition("other", 0)], throttles(cluster)) == ([0], {})
    again = kctl("topics set-replication orders --factor 3 --yes")
    assert (again.status, again.rows, "no partition has to move" in again.err) == (ExitStatus.DONE, [], True)


def test_lower_factor_keeps_the_leader(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.leaders[ORDERS_0] = 1
    assert kctl("topics set-replication --topic-regex o.* --factor 1 --yes --expect 2").status == ExitStatus.DONE
    assert [cluster.replicas[tp] for tp in (ORDERS_0, ORDERS_1)] == [[1], [1]]


def test_command_continues_what_an_earlier_run_has_started(kctl: Kctl, cluster: MovingCluster) -> None:
    """The throttle of the earlier run is removed as well, although the second one has none."""
    cluster.looks_until_arrival = None
    started = kctl("topics set-replication orders --factor 3 --throttle 1k --no-wait --yes")
    assert (started.status, len(cluster.moving)) == (ExitStatus.DONE, 2)
    assert cluster.set_for(BROKER, "2", RATES[1]) == "1024"
    assert cluster.set_for(TOPIC, "orders", FOLLOWER_REPLICAS)
    targets = dict(cluster.moving)
    cluster.looks_until_arrival = 4
    ran = kctl("topics set-replication orders other --factor 3 --yes")
    assert (ran.status, "2 partitions moving already" in ran.err) == (ExitStatus.DONE, True), ran.err
    assert [cluster.replicas[tp] for tp in (ORDERS_0, ORDERS_1)] == [targets[tp][0] for tp in (ORDERS_0, ORDERS_1)]
    assert (len(cluster.replicas[TopicPartition("other", 0)]), throttles(cluster)) == (3, {})


def test_throttle_of_a_run_that_was_killed_is_removed_by_the_next_one(kctl: Kctl, cluster: MovingCluster) -> None:
    kctl("topics set-replication orders --factor 3 --throttle 1k --no-wait --yes")
    cluster.arrive()
    assert throttles(cluster)
    assert kctl("topics set-replication orders --factor 3 --yes").status == ExitStatus.DONE
    assert throttles(cluster) == {}


def test_factor_below_min_insync_replicas_is_refused_with_the_line_that_helps(
    kctl: Kctl, cluster: MovingCluster
) -> None:
    cluster.overrides[TOPIC, "orders"] = {"min.insync.replicas": "2"}
    ran = kctl("topics set-replication orders --factor 1 --yes")
    assert (ran.status, cluster.moving) == (ExitStatus.REFUSED, {})
    assert "first: kctl topics alter orders --set min.insync.replicas=1" in ran.err
    equal = kctl("topics set-replication orders --factor 2 --yes")
    assert (equal.status, "writes with acks=all stop when a broker fails" in equal.err) == (ExitStatus.DONE, True)


def test_impossible_factors_are_refused_with_the_reason(kctl: Kctl, cluster: MovingCluster) -> None:
    too_many = kctl("topics set-replication orders --factor 5 --yes")
    assert (too_many.status, "orders-0 cannot have 5 replicas" in too_many.err) == (ExitStatus.FAILED, True)
    cluster.usable_bytes = dict.fromkeys(range(4), 900)
    full = kctl("topics set-replication orders --factor 3 --yes")
    assert (full.status, "would receive 1,000 bytes and has 900 bytes free" in full.err) == (ExitStatus.FAILED, True)
    unknown = kctl("topics set-replication nope --factor 2 --yes")
    assert (unknown.status, "nope" in unknown.err) == (ExitStatus.FAILED, True)
    assert kctl("topics set-replication orders --factor 3 --max-moves 1 --no-wait").status == ExitStatus.USAGE
    assert cluster.moving == {}


def test_other_moves_are_not_disturbed(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.looks_until_arrival = None
    assert kctl("reassign execute other:0=1").status == ExitStatus.DONE
    ran = kctl("topics set-replication orders --factor 3 --yes")
    assert (ran.status, "being moved already" in ran.err) == (ExitStatus.REFUSED, True)
    assert kctl("topics set-replication orders --factor 3 --yes --additional --no-wait").status == ExitStatus.DONE
    assert len(cluster.moving) == 3


def test_added_broker_gets_its_share_and_other_brokers_nothing(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.place("events", *[[0, 1]] * 4, size=1000)
    cluster.leaders[ORDERS_0] = 1
    shown = kctl("cluster add-broker 3 --format json")
    assert (shown.status, cluster.moving, {tuple(item["adding"]) for item in shown.document}) == (0, {}, {(3,)})
    ran = kctl("cluster add-broker 3 --yes --throttle 1k")
    assert (ran.status, throttles(cluster)) == (ExitStatus.DONE, {}), ran.err
    held = [replicas for replicas in cluster.replicas.values() if 3 in replicas]
    assert (len(held), any(2 in replicas for replicas in cluster.replicas.values())) == (3, False)
    again = kctl("cluster add-broker 3 --yes")
    assert (again.status, again.rows) == (ExitStatus.DONE, [])
    ran = kctl("cluster add-broker 9 --yes")
    assert (ran.status, "broker 9 is not alive" in ran.err) == (ExitStatus.FAILED, True)


def test_removed_broker_holds_nothing(kctl: Kctl, cluster: MovingCluster) -> None:
    """The first run is interrupted after its start; the second one waits for the same moves."""
    cluster.looks_until_arrival = None
    assert kctl("cluster remove-broker 0 --no-wait --yes --throttle 1k").status == ExitStatus.DONE
    targets = {tp: target for tp, (target, _) in cluster.moving.items()}
    assert {tp: (len(target), 0 in target) for tp, target in targets.items()} == {
        ORDERS_0: (2, False),
        ORDERS_1: (2, False),
        TopicPartition("other", 0): (1, False),
    }
    cluster.looks_until_arrival = 3
    cluster.sizes = {(broker, tp): size for (broker, tp), size in cluster.sizes.items() if broker != 0}
    ran = kctl("cluster remove-broker 0 --yes")
    assert (ran.status, "3 partitions moving already" in ran.err) == (ExitStatus.DONE, True), ran.err
    assert "broker 0 holds nothing: its process can be stopped" in ran.err
    assert cluster.replicas == targets
    assert (0 in cluster.leaders.values(), throttles(cluster)) == (False, {})


def test_broker_whose_partitions_need_it_is_not_emptied(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.place("wide", [0, 1, 2, 3])
    ran = kctl("cluster remove-broker 0 --yes")
    assert (ran.status, cluster.moving) == (ExitStatus.FAILED, {})
    assert "wide-0 cannot leave broker 0" in ran.err
    assert "'kctl topics set-replication'" in ran.err


def test_removal_is_not_done_while_replicas_are_left(kctl: Kctl, cluster: MovingCluster) -> None:
    """The fake broker never deletes the files of replicas that were moved away."""
    ran = kctl("cluster remove-broker 0 --yes --timeout 5s")
    assert (ran.status, "broker 0 has not deleted 3 replicas" in ran.err) == (ExitStatus.UNMET, True), ran.err


def test_broker_that_is_down_is_emptied_and_forgotten(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.away = {1}
    cluster.isr = {tp: [0] for tp in cluster.isr}
    cluster.leaders[ORDERS_1] = 0
    ran = kctl("cluster remove-broker 1 --yes")
    assert (ran.status, "broker 1 is removed: it is down, and holds nothing" in ran.err) == (0, True), ran.err
    ran = kctl("cluster remove-broker 1 --yes")
    assert (ran.status, "broker 1 is not alive" in ran.err) == (ExitStatus.FAILED, True), ran.err
