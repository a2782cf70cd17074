"""Elections on three brokers, ours and Apache Kafka's."""

from __future__ import annotations

from tests.integration.cli.conftest import Kctl


def test_preferred_leader_is_elected(operate: Kctl) -> None:
    assert operate("topics create elected --replica-assignment 0:1,1:2").status == 0
    # The order of the replicas changes, the leader stays.
    assert operate("reassign execute elected:0=1,0 --wait").status == 0
    line = "elect --preferred --topic elected"
    assert operate(f"{line} --dry-run").rows == [
        ["elected", "0", "0", "1", "would be elected", "-", "-"],
        ["elected", "1", "1", "1", "not needed", "-", "-"],
    ]
    elected = operate(line)
    assert elected.rows == [
        ["elected", "0", "0", "1", "elected", "-", "-"],
        ["elected", "1", "1", "1", "not needed", "-", "-"],
    ], elected
    assert elected.status == 0
    assert operate("elect --unclean --topic elected --yes").rows[0][4] == "not needed"
    unknown = operate("elect --preferred --topic elected --partition 7")
    assert (unknown.status, unknown.rows[0][5]) == (1, "UNKNOWN_TOPIC_OR_PARTITION")
