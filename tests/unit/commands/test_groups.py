"""kctl groups."""

from __future__ import annotations

from kctl.commands.frame.exit_status import ExitStatus
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_groups import DescribedGroupMember
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.consumer_protocol import ConsumerProtocolAssignment, TopicPartitions, encode_assignment
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl


def member(name: str, *partitions: int) -> DescribedGroupMember:
    assigned = [TopicPartitions(topic="orders", partitions=list(partitions))]
    return DescribedGroupMember(
        member_id=name,
        client_id="app",
        client_host="/10.0.0.1",
        member_metadata=b"",
        member_assignment=encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned)),
    )


def billing(cluster: FakeCluster) -> FakeGroup:
    """A group at offset 30 of 40 in partition 0, without a commit in partition 1; partition 2 has no member."""
    for partition, end in zip(cluster.create("orders", leaders=3), (40, 5, 9), strict=True):
        partition.end = end
    offsets = {TopicPartition("orders", 0): 30, TopicPartition("orders", 2): 9}
    group = cluster.groups["billing"] = FakeGroup(offsets, [member("m-2", 1), member("m-1", 0)])
    return group


def test_list_queries_all_brokers(kctl: Kctl, cluster: FakeCluster) -> None:
    billing(cluster)
    cluster.groups["audit"] = FakeGroup()
    assert kctl("groups list").rows == [
        ["audit", "Empty", "consumer", "1", "classic", "-", "-"],
        ["billing", "Stable", "consumer", "1", "classic", "-", "-"],
    ]
    assert sorted(broker for broker, _ in cluster.requested(ListGroupsRequest)) == [0, 1]


def test_list_shows_null_for_what_old_brokers_do_not_return(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.versions[16] = (0, 3)
    cluster.groups["audit"] = FakeGroup()
    assert kctl("groups list").rows == [["audit", "-", "consumer", "1", "-", "-", "-"]]


def test_brokers_that_do_not_return_types_have_classic_groups_only(kctl: Kctl, cluster: FakeCluster) -> None:
    """The output of Kafka's own client."""
    cluster.versions[16] = (0, 4)
    cluster.groups["audit"] = FakeGroup()
    assert kctl("groups list --type classic --type consumer").rows == kctl("groups list").rows
    assert kctl("groups list --type classic --compat kafka-4").out.splitlines()[1].split() == ["audit", "Unknown"]
    ran = kctl("groups list --type consumer")
    assert ran.status == ExitStatus.FAILED
    assert ran.rows[0][-2:] == [
        "UNSUPPORTED_VERSION",
        "the broker supports groups of type classic only (before Kafka 3.8)",
    ]


def test_broker_that_cannot_list_its_groups_is_a_row(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.intercept(ListGroupsRequest, lambda _: ListGroupsResponse(error_code=14, groups=[]))
    ran = kctl("groups list --format json")
    assert ran.status == ExitStatus.FAILED
    assert [(row["coordinator"], row["error"]) for row in ran.document] == [
        (0, "COORDINATOR_LOAD_IN_PROGRESS"),
        (1, "COORDINATOR_LOAD_IN_PROGRESS"),
    ]


def test_describe_shows_lag_and_members(kctl: Kctl, cluster: FakeCluster) -> None:
    billing(cluster)
    assert kctl("groups describe billing").rows == [
        ["billing", "orders", "0", "30", "40", "10", "m-1", "10.0.0.1", "app", "-", "-"],
        ["billing", "orders", "1", "-", "5", "-", "m-2", "10.0.0.1", "app", "-", "-"],
        ["billing", "orders", "2", "9", "9", "0", "-", "-", "-", "-", "-"],
    ]


def test_describe_members_and_state(kctl: Kctl, cluster: FakeCluster) -> None:
    billing(cluster)
    assert kctl("groups describe billing --show members").rows == [
        ["billing", "m-1", "-", "10.0.0.1", "app", "1", "orders(0)", "-", "-", "-", "-", "-"],
        ["billing", "m-2", "-", "10.0.0.1", "app", "1", "orders(1)", "-", "-", "-", "-", "-"],
    ]
    (state,) = kctl("groups describe billing --show state").rows
    front = ["billing", "Stable", "consumer", "range", f"127.0.0.1:{cluster.ports[1]}", "2", "10"]
    assert state == [*front, "classic", "-", "-", "-", "-"]


def test_json_contains_all_details(kctl: Kctl, cluster: FakeCluster) -> None:
    billing(cluster)
    (item,) = kctl("groups describe --format json").document
    assert (item["group"], item["state"], item["total_lag"]) == ("billing", "Stable", 10)
    assert [member_item["member_id"] for member_item in item["members"]] == ["m-1", "m-2"]
    assert [offset["lag"] for offset in item["offsets"]] == [10, None, 0]


def test_offsets_of_deleted_topics_have_their_error(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.groups["old"] = FakeGroup({TopicPartition("gone", 0): 3})
    ran = kctl("groups describe old")
    assert ran.status == ExitStatus.FAILED
    assert ran.rows[0][3:6] + ran.rows[0][-2:-1] == ["3", "-", "-", "UNKNOWN_TOPIC_OR_PARTITION"]


def test_unknown_group_is_a_row_and_status_1(kctl: Kctl, cluster: FakeCluster) -> None:
    for show in ("offsets", "members", "state"):
        ran = kctl(f"groups describe nope --show {show}")
        assert ran.status == ExitStatus.FAILED
        assert ran.rows[0][0] == "nope"
        assert ran.rows[0][-2:] == ["GROUP_ID_NOT_FOUND", "The group does not exist."]


def test_assignment_of_another_kind_of_client_is_not_shown(kctl: Kctl, cluster: FakeCluster) -> None:
    odd = member("m", 0)
    odd.member_assignment = b"\xff\xff\xff"
    cluster.groups["odd"] = FakeGroup({}, [odd])
    (row,) = kctl("groups describe odd --show members").rows
    assert row == ["odd", "m", "-", "10.0.0.1", "app", "0", "-", "-", "-", "-", "-", "-"]


def test_delete_requires_confirmation_and_shows_the_outcome_of_each_group(kctl: Kctl, cluster: FakeCluster) -> None:
    billing(cluster)
    cluster.groups["audit"] = FakeGroup()
    assert kctl("groups delete audit").status == ExitStatus.REFUSED
    preview = kctl("groups delete audit billing nope --dry-run")
    fates = [
        ["audit", "would be deleted", "-"],
        ["billing", "-", "NON_EMPTY_GROUP"],
        ["nope", "-", "GROUP_ID_NOT_FOUND"],
    ]
    assert [row[:3] for row in preview.rows] == fates
    assert sorted(cluster.groups) == ["audit", "billing"]
    done = kctl("groups delete audit billing nope --yes")
    assert [row[:3] for row in done.rows] == [["audit", "deleted", "-"], *fates[1:]]
    assert (done.status, sorted(cluster.groups)) == (ExitStatus.FAILED, ["billing"])


def test_kafkas_tool_shows_consumer_groups_only(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.groups.update({"connect": FakeGroup(protocol_type="connect"), "consumers": FakeGroup()})
    for compat in ("kafka-2.8", "kafka-4"):
        ran = kctl(f"groups describe connect consumers --compat {compat}")
        reason = "java.lang.IllegalArgumentException: GroupId connect is not a consumer group (connect)."
        assert ran.status == ExitStatus.FAILED
        assert ran.out == f"\nError: Executing consumer group command failed due to {reason}\n"


def test_groups_are_described_although_a_broker_is_away(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.create("orders", leaders=[0, 1])
    cluster.groups["billing"] = FakeGroup(offsets={TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0})
    cluster.controller = 0
    cluster.kill(1)
    ran = kctl("groups describe --all --format json")
    assert ran.status == ExitStatus.FAILED
    billing, broker = ran.document
    assert [(offset["partition"], offset["log_end_offset"], offset["error"]) for offset in billing["offsets"]] == [
        (0, 0, None),
        (1, None, "NETWORK_EXCEPTION"),
    ]
    assert (broker["group"], broker["error"]) == (None, "NETWORK_EXCEPTION")
    assert broker["message"].startswith("broker 1 cannot list its groups: ")
