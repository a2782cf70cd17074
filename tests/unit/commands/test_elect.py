"""kctl elect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.model import TopicPartition
from kctl.protocol.apis.elect_leaders import ElectLeadersRequest
from tests.unit.admin.moving_cluster import MovingCluster
from tests.unit.commands.conftest import Kctl

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
ELECT_LEADERS = 43


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingCluster]:
    """`orders`: partition 0 is not led by its preferred replica 0, partition 1 is led by its preferred replica 1."""
    with MovingCluster() as started:
        started.place("orders", [0, 1], [1, 2])
        started.leaders[ZERO] = 1
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


def test_dry_run_shows_the_leaders_to_be(kctl: Kctl, cluster: MovingCluster) -> None:
    assert kctl("elect --preferred --dry-run").rows == [["orders", "0", "1", "0", "would be elected", "-", "-"]]
    assert cluster.requested(ElectLeadersRequest) == []


def test_all_partitions_that_need_it_are_elected(kctl: Kctl, cluster: MovingCluster) -> None:
    assert kctl("elect --preferred").rows == [["orders", "0", "1", "0", "elected", "-", "-"]]
    assert cluster.leaders[ZERO] == 0
    again = kctl("elect --preferred")
    assert (again.status, again.out, again.err) == (ExitStatus.DONE, "", "no partition needs an election\n")


def test_partition_that_needs_none_is_no_failure(kctl: Kctl, cluster: MovingCluster) -> None:
    ran = kctl("elect --preferred --topic orders")
    assert ran.status == ExitStatus.DONE
    assert [row[4] for row in ran.rows] == ["elected", "not needed"]


def test_election_of_one_partition_leaves_the_others(kctl: Kctl, cluster: MovingCluster) -> None:
    assert kctl("elect --preferred --topic orders --partition 1").rows[0][4] == "not needed"
    assert cluster.leaders[ZERO] == 1


def test_partitions_are_read_from_a_file(kctl: Kctl, cluster: MovingCluster, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions":[{"topic":"orders","partition":0}]}')
    assert kctl(f"elect --preferred --path-to-json-file {file}").rows[0][:5] == ["orders", "0", "1", "0", "elected"]


def test_failure_is_a_row_and_status_1(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.isr[ZERO] = [1]
    for line in ("elect --preferred", "elect --preferred --dry-run"):
        ran = kctl(f"{line} --format json")
        assert (ran.status, ran.document[0]["error"]) == (ExitStatus.FAILED, "PREFERRED_LEADER_NOT_AVAILABLE")
    assert kctl("elect --preferred --topic orders --partition 9").rows[0][5] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert kctl("elect --preferred --topic nope").status == ExitStatus.FAILED


def test_unclean_election_needs_confirmation(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.leaders[ZERO] = -1
    cluster.isr[ZERO] = [0]
    cluster.away = {0}
    assert kctl("elect --unclean").status == ExitStatus.REFUSED
    assert kctl("elect --unclean --dry-run").rows[0][2:5] == ["-", "1", "would be elected"]
    assert cluster.requested(ElectLeadersRequest) == []
    assert kctl("elect --unclean --yes").rows[0][2:5] == ["-", "1", "elected"]


def test_broker_that_elects_preferred_leaders_only(kctl: Kctl, cluster: MovingCluster) -> None:
    cluster.versions[ELECT_LEADERS] = (0, 0)
    assert kctl("elect --preferred").rows[0][4] == "elected"
    ran = kctl("elect --unclean --yes --format json")
    assert (ran.status, ran.document["error"]["code"]) == (ExitStatus.FAILED, "UNSUPPORTED_VERSION")


@pytest.mark.parametrize(
    "line",
    [
        "elect",
        "elect --preferred --unclean",
        "elect --preferred --partition 0",
        "elect --preferred --topic orders --path-to-json-file x",
        "elect --preferred --path-to-json-file /no/such/file",
    ],
)
def test_invalid_options_are_refused(kctl: Kctl, cluster: MovingCluster, line: str) -> None:
    assert kctl(line).status == ExitStatus.USAGE
    assert cluster.requests == []
