"""kctl groups with the group types of Kafka 4."""

from __future__ import annotations

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.groups.listing import GroupType
from kctl.lag.facts import CLASSIC, CONSUMER, OTHER_TYPES
from kctl.model import ZERO_UUID, TopicPartition
from kctl.protocol.apis.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kctl.protocol.apis.list_groups import ListGroupsRequest
from kctl.protocol.apis.offset_commit import OffsetCommitRequest
from tests.unit.client.fake_cluster import FakeCluster, FakeGroup
from tests.unit.commands.conftest import Kctl

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


def assignment(*partitions: int) -> Assignment:
    topics = [TopicPartitions(topic_id=ZERO_UUID, topic_name="orders", partitions=list(partitions))]
    return Assignment(topic_partitions=topics if partitions else [])


def member(name: str, has: list[int], shall_have: list[int], *, epoch: int = 3, member_type: int = 1) -> Member:
    return Member(
        member_id=name,
        member_epoch=epoch,
        client_id="app",
        client_host="/10.0.0.1",
        subscribed_topic_names=["orders"],
        assignment=assignment(*has),
        target_assignment=assignment(*shall_have),
        member_type=member_type,
    )


@pytest.fixture
def billing(cluster: FakeCluster) -> FakeGroup:
    """m-1 has all three partitions and has not yet revoked one for m-2, which has just joined."""
    for partition, end in zip(cluster.create("orders", leaders=3), (40, 5, 9), strict=True):
        partition.end = end
    members = [member("m-2", [], [2], epoch=0), member("m-1", [0, 2, 1], [0, 1])]
    group = FakeGroup({P0: 30, P2: 9}, members, type="consumer", state="Reconciling")
    cluster.groups["billing"] = group
    return group


def test_types_of_the_list_are_those_that_kctl_supports() -> None:
    assert (CLASSIC, CONSUMER, *OTHER_TYPES) == tuple(GroupType)


@pytest.mark.usefixtures("billing")
def test_list_shows_types_and_filters_by_them(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.groups["audit"] = FakeGroup()
    cluster.groups["jobs"] = FakeGroup(protocol_type="share", type="share")
    assert [row[:5] for row in kctl("groups list").rows] == [
        ["audit", "Empty", "consumer", "1", "classic"],
        ["billing", "Reconciling", "consumer", "1", "consumer"],
        ["jobs", "Empty", "share", "1", "share"],
    ]
    assert [row["group"] for row in kctl("groups list --type share --type consumer --format json").document] == [
        "billing",
        "jobs",
    ]
    assert cluster.requested(ListGroupsRequest)[-1][1].types_filter == ["share", "consumer"]


@pytest.mark.usefixtures("billing")
def test_describe_shows_current_and_target_assignments(kctl: Kctl, cluster: FakeCluster) -> None:
    (state,) = kctl("groups describe billing --show state").rows
    front = ["billing", "Reconciling", "consumer", "uniform", f"127.0.0.1:{cluster.ports[1]}", "2", "10"]
    assert state == [*front, "consumer", "3", "2", "-", "-"]
    assert [row[1:2] + row[5:9] for row in kctl("groups describe billing --show members").rows] == [
        ["m-1", "3", "orders(0,1,2)", "3", "orders(0,1)"],
        ["m-2", "0", "-", "0", "orders(2)"],
    ]
    assert kctl("groups members billing").rows == kctl("groups describe billing --show members").rows
    assert [row[2:7] for row in kctl("groups describe billing").rows] == [
        ["0", "30", "40", "10", "m-1"],
        ["1", "-", "5", "-", "m-1"],
        ["2", "9", "9", "0", "m-1"],
    ]


def test_protocols_of_members_are_shown_where_they_differ(kctl: Kctl, billing: FakeGroup) -> None:
    assert [row[9] for row in kctl("groups members billing").rows] == ["-", "-"]
    billing.members[0].member_type = 0
    assert [row[9] for row in kctl("groups members billing").rows] == ["consumer", "classic"]


@pytest.mark.usefixtures("billing")
def test_json_contains_epochs_and_subscriptions(kctl: Kctl, cluster: FakeCluster) -> None:
    (item,) = kctl("groups describe billing --format json").document
    assert (item["type"], item["group_epoch"], item["target_assignment_epoch"]) == ("consumer", 3, 2)
    first = item["members"][0]
    assert first["target_assignment"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert (first["member_epoch"], first["member_type"]) == (3, "consumer")
    assert (first["subscribed_topics"], first["subscribed_regex"]) == (["orders"], None)
    cluster.groups["audit"] = FakeGroup()
    (item,) = kctl("groups describe audit --format json").document
    assert (item["type"], item["group_epoch"], item["target_assignment_epoch"]) == ("classic", None, None)


@pytest.mark.usefixtures("billing")
def test_people_see_columns_of_these_groups_only_where_there_are_some(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.groups["audit"] = FakeGroup()
    for group, is_shown in (("billing", True), ("audit", False)):
        titles = kctl(f"groups describe {group} --show state --format table").out.splitlines()[0].split()
        assert ("GROUP-EPOCH" in titles) is is_shown, group


def test_group_is_described_whichever_versions_its_broker_supports(
    kctl: Kctl, cluster: FakeCluster, billing: FakeGroup
) -> None:
    cluster.versions[69], cluster.versions[15] = (0, 0), (0, 5)  # Kafka 3.9
    billing.members = [member("m", [0], [0], member_type=-1)]
    (item,) = kctl("groups members billing --format json").document
    assert (item["member_epoch"], item["member_type"]) == (3, None)
    del cluster.versions[69]
    ran = kctl("groups describe nope")
    assert (ran.status, ran.rows[0][-2]) == (ExitStatus.FAILED, "GROUP_ID_NOT_FOUND")


def test_unknown_group_where_the_consumer_protocol_is_switched_off(kctl: Kctl, cluster: FakeCluster) -> None:
    """Such a broker returns UNSUPPORTED_VERSION for every group."""

    def refuse(request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        group = DescribedGroup(
            error_code=35,
            group_id=request.group_ids[0],
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
        return ConsumerGroupDescribeResponse(groups=[group])

    cluster.intercept(ConsumerGroupDescribeRequest, refuse)
    assert kctl("groups describe nope").rows[0][-2] == "GROUP_ID_NOT_FOUND"


@pytest.mark.usefixtures("billing")
@pytest.mark.parametrize(("kind", "tool"), OTHER_TYPES.items())
def test_group_of_another_type_is_named_with_what_can_look_at_it(
    kctl: Kctl, cluster: FakeCluster, kind: str, tool: str
) -> None:
    """Named, such a group is an error; with --all it is omitted with a warning, and the others are shown."""
    cluster.groups["jobs"] = FakeGroup(protocol_type=kind, type=kind)
    for line in ("describe jobs", "describe jobs --show members", "members jobs", "delete-offsets jobs --all-topics"):
        ran = kctl(f"groups {line}")
        assert ran.status == ExitStatus.FAILED
        assert ran.rows[0][-2] == "INVALID_REQUEST", line
        assert f"a {kind} group" in ran.rows[0][-1]
        assert tool in ran.rows[0][-1]
    ran = kctl("groups reset-offsets jobs --topic orders --to-earliest --yes")
    assert (ran.status, f"jobs: This is a {kind} group" in ran.err) == (ExitStatus.FAILED, True)
    for line in ("describe", "members", "delete --all --dry-run"):
        ran = kctl(f"groups {line}")
        assert {row[0] for row in ran.rows} == {"billing"}
        why = "which must be named" if "delete" in line else f"which the brokers do not describe, see {tool}"
        assert f"group 'jobs' is left out: it is a {kind} group, {why}" in ran.err
    assert kctl("groups describe").status == ExitStatus.DONE


@pytest.mark.usefixtures("billing")
def test_group_of_another_type_is_deleted_by_name_once_it_is_empty(kctl: Kctl, cluster: FakeCluster) -> None:
    cluster.groups["jobs"] = FakeGroup(members=[member("m", [], [])], protocol_type="share", type="share")
    assert kctl("groups delete jobs --dry-run").rows[0][2] == "NON_EMPTY_GROUP"
    assert kctl("groups delete jobs --yes").rows[0][2] == "NON_EMPTY_GROUP"
    cluster.groups["jobs"].members.clear()
    assert kctl("groups delete jobs --dry-run").rows[0][:3] == ["jobs", "would be deleted", "-"]
    assert kctl("groups delete jobs --yes").rows[0][:3] == ["jobs", "deleted", "-"]
    assert sorted(cluster.groups) == ["billing"]


def test_active_group_is_refused_and_an_empty_one_is_reset(
    kctl: Kctl, cluster: FakeCluster, billing: FakeGroup
) -> None:
    line = "groups reset-offsets billing --topic orders:0 --to-offset 12 --yes"
    ran = kctl(line)
    assert (ran.status, ran.out, cluster.requested(OffsetCommitRequest)) == (ExitStatus.REFUSED, "", [])
    assert "group 'billing' is active (Reconciling) with m-1 (10.0.0.1), m-2 (10.0.0.1)" in ran.err
    assert kctl("groups delete billing --dry-run").rows[0][2] == "NON_EMPTY_GROUP"
    billing.members.clear()
    billing.state = ""
    assert kctl(line).status == ExitStatus.DONE
    assert billing.offsets[P0] == 12


def test_static_member_that_has_left_is_distinguished_from_a_present_one(kctl: Kctl, billing: FakeGroup) -> None:
    billing.members[0].member_epoch = -2
    ran = kctl("groups reset-offsets billing --topic orders:0 --to-offset 12 --yes")
    assert ran.status == ExitStatus.REFUSED
    assert "m-1 (10.0.0.1), m-2 (10.0.0.1, has left, but is static: its place is kept until" in ran.err


def test_offsets_of_subscribed_topics_stay_although_no_member_has_a_partition(kctl: Kctl, billing: FakeGroup) -> None:
    billing.members = [member("m", [], [])]
    for how in ("--dry-run", "--yes"):
        ran = kctl(f"groups delete-offsets billing --topic orders:0 {how}")
        assert (ran.status, ran.rows[0][-2]) == (ExitStatus.FAILED, "GROUP_SUBSCRIBED_TO_TOPIC"), how


@pytest.mark.usefixtures("billing")
def test_kafkas_tool_shows_types_and_epochs(kctl: Kctl, cluster: FakeCluster) -> None:
    """The output of version 4; in that of 2.8 the group does not exist."""
    cluster.groups["audit"] = FakeGroup()
    assert kctl("groups list --type consumer --verbose --compat kafka-4").out == (
        f"{'GROUP':<25} {'TYPE':<20} {'STATE':<20}\n{'billing':<25} {'Consumer':<20} {'Reconciling':<20}\n"
    )
    state = kctl("groups describe billing --show state --verbose --compat kafka-4").out.splitlines()[2]
    assert state.split()[-4:] == ["Reconciling", "3", "2", "2"]
    lines = kctl("groups describe billing --show members --verbose --compat kafka-4").out.splitlines()
    assert [line.split()[-4:] for line in lines[2:]] == [
        ["0", "-", "2", "orders:2"],
        ["3", "orders:0,1,2", "2", "orders:0,1"],
    ]
    assert kctl("groups describe billing --show members --compat kafka-2.8").out.startswith(
        "\nError: Consumer group 'billing' does not exist.\n"
    )


def test_kafkas_tool_shows_which_members_are_upgraded(kctl: Kctl, cluster: FakeCluster, billing: FakeGroup) -> None:
    line = "groups describe billing --show members --verbose --compat kafka-4"
    billing.members[0].member_type = 0
    lines = kctl(line).out.splitlines()
    assert [text.split()[-1] for text in lines[1:]] == ["UPGRADED", "false", "true"]
    (first, _) = kctl("groups members billing --format json").document
    assert first["member_type"] == "consumer"


@pytest.mark.usefixtures("billing")
@pytest.mark.parametrize("name", ["nope", "jobs"])
def test_kafkas_tool_prints_nothing_for_an_unknown_consumer_group_on_kafka_4(
    kctl: Kctl, cluster: FakeCluster, name: str
) -> None:
    """For older brokers and for the tool of 2.8 such a group does not exist; the others are shown."""
    cluster.groups["jobs"] = FakeGroup(protocol_type="share", type="share")
    cluster.groups["audit"] = FakeGroup()
    line = f"groups describe {name} audit --show state --compat"
    missing = f"\nError: Consumer group '{name}' does not exist.\n"
    ran = kctl(f"{line} kafka-4")
    reason = f"org.apache.kafka.common.errors.GroupIdNotFoundException: Group {name} not found."
    assert (ran.status, ran.out) == (
        ExitStatus.FAILED,
        f"\nError: Executing consumer group command failed due to {reason}\n",
    )
    reported = kctl(f"{line} kafka-2.8").out
    assert missing in reported
    assert "audit" in reported
    if name == "nope":
        cluster.versions[15] = (0, 5)
        assert missing in kctl(f"{line} kafka-4").out
