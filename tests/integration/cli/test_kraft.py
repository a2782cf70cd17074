"""What commands show of a KRaft cluster of Apache Kafka whose controllers fail, one after the other."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import Kctl, command_line
from tests.peers import apache_kafka
from tests.peers.kraft_cluster import KraftCluster, kraft_cluster
from tests.peers.probe import wait_until

TIMEOUT_S = 90
FROZEN = "no quorum leader: metadata is frozen since 20"


@pytest.mark.jvm
@pytest.mark.matrix  # Three brokers that are controllers too take 60 s of processor time.
@pytest.mark.timeout(300)
def test_a_quorum_is_told_truly_in_each_of_its_states(tmp_path: Path) -> None:
    """All states of one cluster, because its start takes long: healthy, without one controller, without a majority."""
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with kraft_cluster(apache_kafka.NEWEST_BROKER, tmp_path, properties) as cluster:
        kctl = command_line({"KCTL_BOOTSTRAP_SERVER": cluster.bootstrap})
        assert kctl("topics create orders --partitions 3 --replication-factor 3").status == 0
        wait_until(
            lambda: kctl("cluster health").status == kctl("doctor --fail-on error --silence disks").status == 0,
            what="a cluster that is well",
            timeout_s=TIMEOUT_S,
        )
        leader = with_all_controllers(kctl, cluster)
        first, second = (node for node in (1, 2, 3) if node != leader)
        assert kctl("topics create stuck --partitions 1 --replication-factor 1").status == 0
        cluster.processes[first].stop(signal.SIGKILL)
        cancelled_by_the_controller(kctl, f"--bootstrap-controller {cluster.controllers[leader]}", first, leader)
        without_one(kctl, first)
        removed(kctl, first, leader)
        cluster.processes[second].stop(signal.SIGKILL)
        without_a_majority(kctl, command_line({}), cluster, leader, {second})


def with_all_controllers(kctl: Kctl, cluster: KraftCluster) -> int:
    """Checks a healthy cluster, and returns the id of the active controller, which Metadata does not name."""
    found: dict[str, Any] = kctl("cluster describe --format json").document
    leader = int(found["controller"])
    assert next((node["node"], node["role"]) for node in found["quorum"]) == (leader, "Leader")
    assert [(row["broker"], row["controller"], row["state"]) for row in found["brokers"]] == [
        (node, node == leader, "alive") for node in (1, 2, 3)
    ]
    rows = kctl("cluster roll --dry-run --restart-command restart --format json").document
    assert [row["broker"] for row in rows] == [*sorted({1, 2, 3} - {leader}), leader]
    assert {row["role"] for row in rows} == {"broker,controller"}
    partitions = kctl("topics describe orders --format json").document[0]["partitions"]
    assert [(one["elr"], one["last_known_elr"]) for one in partitions] == [([], [])] * 3
    (host, port) = cluster.controllers[leader].split(":")
    direct = command_line({})
    at = f"--bootstrap-controller {cluster.controllers[3]}"
    of_controllers = direct(f"cluster describe {at} --format json").document
    assert (of_controllers["controller"], len(of_controllers["brokers"])) == (leader, 3)
    assert (host, int(port)) in [(row["host"], row["port"]) for row in of_controllers["brokers"]]
    assert direct(f"metadata-quorum describe {at} --format json").document["leader_id"] == leader
    acl = "--allow User:bob --operation read --topic orders"
    for line, shown in (
        (f"acls add {acl}", "added"),
        ("acls list", "User:bob"),
        ("acls export", "User:bob"),
        (f"acls remove {acl} --yes", "removed"),
        ("reassign list", ""),
    ):
        ran = direct(f"{line} {at}")
        assert (ran.status, shown in ran.out) == (0, True), (line, ran)
    moved_by_the_controller(kctl, direct, at)
    ran = direct(f"topics list {at}")
    assert (ran.status, "Use --bootstrap-server" in ran.err) == (2, True), ran
    for line in ("features describe", "configs describe broker 1 --all", "api-versions"):
        assert direct(f"{line} {at}").status == 0, line
    ran = direct(f"cluster describe --bootstrap-controller {cluster.addresses[1]}")
    assert (ran.status, "is a broker, and not a controller" in ran.err) == (1, True)
    return leader


def moved_by_the_controller(kctl: Kctl, direct: Kctl, at: str) -> None:
    """Starts moves through a controller, which checks them; what needs brokers is refused by its name."""

    def replicas() -> list[int]:
        partitions = kctl("topics describe orders --format json").document[0]["partitions"]
        found: list[int] = partitions[0]["replicas"]
        return found

    target = replicas()[::-1]
    line = f"reassign execute orders:0={','.join(map(str, target))} {at} --format json"
    tried = direct(f"{line} --dry-run")
    assert [row["status"] for row in tried.document] == ["would be requested"], tried
    for option in ("--throttle 1m", "--wait", "--max-moves 1 --wait", "--rollback-file x"):
        refused = direct(f"{line} {option}")
        assert (refused.status, "needs --bootstrap-server" in refused.err) == (2, True), refused
    assert replicas() != target
    assert direct(line).status == 0
    wait_until(lambda: replicas() == target, what="the new order of replicas", timeout_s=TIMEOUT_S)
    wrong = direct(f"reassign execute orders:0=1,2,77 none:0=1 {at} --format json")
    assert (wrong.status, [row["error"] for row in wrong.document]) == (
        1,
        ["UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REPLICA_ASSIGNMENT"],
    ), wrong


def cancelled_by_the_controller(kctl: Kctl, at: str, dead: int, alive: int) -> None:
    """Moves a partition to a broker that is down, which does not end, and cancels it; no broker is asked."""
    (partition,) = kctl("topics describe stuck --format json").document[0]["partitions"]
    place = partition["replicas"][0] if partition["replicas"] != [dead] else alive
    direct = command_line({})
    assert direct(f"reassign execute stuck:0={place},{dead} {at}").status == 0
    (moving,) = direct(f"reassign list {at} --format json").document
    assert (moving["topic"], dead in moving["replicas"]) == ("stuck", True)
    other = direct(f"reassign execute orders:1=1,2,3 {at}")
    assert (other.status, "use --additional" in other.err) == (5, True), other
    tried = direct(f"reassign cancel --all {at} --dry-run --format json").document
    assert [(row["topic"], row["status"]) for row in tried] == [("stuck", "would be cancelled")]
    done = direct(f"reassign cancel stuck:0 orders:0 none:0 {at} --format json")
    assert [(row["topic"], row["status"], row["error"]) for row in done.document] == [
        ("none", None, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders", "does not move", None),
        ("stuck", "cancelled", None),
    ]
    assert done.status == 1
    assert direct(f"reassign list {at} --format json").document == []
    assert kctl("topics delete stuck --yes").status == 0


def without_one(kctl: Kctl, node: int) -> None:
    """Waits until each command shows the broker that is fenced, and the voter that does not follow."""

    def doctor_names_the_voter() -> bool:
        finding = kctl("doctor --silence disks --format json").document["findings"][0]
        cause = finding["cause"]
        return finding["rule"] == "quorum" and "1 of 3 voters" in cause and "one more failure" in cause

    def describe_shows_it() -> bool:
        rows = kctl("cluster describe --format json").document["brokers"]
        return [row["state"] for row in rows if row["broker"] == node] == ["fenced"]

    def health_names_it() -> bool:
        reasons = kctl("cluster health --format json").document["reasons"]
        return {("controller away", node), ("broker missing", node)} <= {
            (one["problem"], one["broker"]) for one in reasons
        }

    for claim in (doctor_names_the_voter, describe_shows_it, health_names_it):
        wait_until(claim, what=claim.__name__, timeout_s=TIMEOUT_S)


def removed(kctl: Kctl, node: int, alive: int) -> None:
    """Removes the broker that is down: its replicas, then its registration; a broker that runs stays registered."""
    whole = kctl(f"cluster remove-broker {node} --yes")
    assert (whole.status, "kctl topics set-replication" in whole.err) == (1, True), whole.err
    lowered = kctl("topics set-replication orders --factor 2 --yes --format json")
    assert [(row["removing"], row["status"]) for row in lowered.document] == [([node], "complete")] * 3, lowered.err
    planned = kctl(f"cluster remove-broker {node}")
    assert (planned.status, "would be deleted: repeat with --yes" in planned.err) == (0, True), planned.err
    done = kctl(f"cluster remove-broker {node} --yes")
    assert (done.status, f"broker {node} is removed" in done.err) == (0, True), done.err
    rows = kctl("cluster describe --format json").document["brokers"]
    assert node not in [row["broker"] for row in rows]
    again = kctl(f"cluster remove-broker {node} --yes")
    assert (again.status, f"broker {node} is not alive" in again.err) == (1, True), again.err

    assert kctl("topics set-replication orders --factor 1 --yes").status == 0
    emptied = kctl(f"cluster remove-broker {alive} --yes")
    assert (emptied.status, "stop its process, then repeat the command" in emptied.err) == (0, True), emptied.err
    assert "also a voter of the metadata quorum" in emptied.err
    assert kctl(f"cluster add-broker {alive} --yes").status == 0
    back = kctl("topics set-replication orders --factor 2 --yes")
    assert back.status == 0, back.err


def without_a_majority(kctl: Kctl, direct: Kctl, cluster: KraftCluster, alive: int, dead: set[int]) -> None:
    """Checks that no command takes the frozen metadata for the present, or waits beyond its deadline."""

    def health_names_the_quorum() -> bool:
        ran = kctl("cluster health --format json --timeout 9s")
        reasons = ran.document["reasons"]
        away = {one["broker"] for one in reasons if one["problem"] in {"broker unreachable", "broker missing"}}
        return ran.status == 3 and reasons[0]["message"].startswith(FROZEN) and away == dead

    wait_until(health_names_the_quorum, what="the quorum without a leader", timeout_s=TIMEOUT_S)
    ran = kctl("cluster describe --format json --timeout 9s")
    assert (ran.document["controller"], ran.document["frozen"][: len(FROZEN)]) == (None, FROZEN)
    states = {row["broker"]: row["state"] for row in ran.document["brokers"]}
    assert states[alive] == "alive"
    assert {states[node] for node in dead} <= {"no response", "fenced"}
    finding = kctl("doctor --format json --timeout 9s").document["findings"][0]
    assert (finding["rule"], finding["evidence"][0][: len(FROZEN)]) == ("quorum", FROZEN)
    top = kctl("top --once --interval 200ms --no-metrics --format json --timeout 9s").document
    assert (top["controller_problem"][: len(FROZEN)], [row["broker"] for row in top["brokers"]]) == (FROZEN, [alive])
    expected = {
        "topics describe orders": 0,
        "cluster roll --dry-run --restart-command restart": 3,
        "topics create other": 4,
        "configs alter topic orders --set retention.ms=100000": 4,
        "quotas alter --user alice --producer-rate 1MB --yes": 4,
        "reassign list": 4,
        "metadata-quorum describe": 4,
    }
    with ThreadPoolExecutor(len(expected)) as pool:  # most of them wait until their deadline
        results = pool.map(lambda line: kctl(f"{line} --timeout 9s"), expected)
        for (line, status), ran in zip(expected.items(), results, strict=True):
            assert (ran.status, FROZEN in ran.err) == (status, True), f"{line}: {ran.err}"
    ran = direct(f"metadata-quorum describe --bootstrap-controller {cluster.controllers[alive]} --timeout 9s")
    assert (ran.status, FROZEN in ran.err) == (4, True)
