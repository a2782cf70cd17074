"""Group commands on groups of Kafka 4: the consumer protocol (KIP-848) and other group types."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.cli.conftest import KAFKA_4, WITH_NEWER_GROUPS, Kctl
from tests.integration.cli.test_kafka_tool_output import GROUP_COMMAND, output
from tests.peers import probe
from tests.peers.probe import wait_until

pytestmark = pytest.mark.timeout(300)

ON_KAFKA_4 = pytest.mark.parametrize("bootstrap", [KAFKA_4], indirect=True)
WITH_OURS = pytest.mark.parametrize("bootstrap", [KAFKA_4, WITH_NEWER_GROUPS], indirect=True)

TIMEOUT_S = 60
Join = Callable[..., Consumer]


@pytest.fixture
def join(bootstrap: str, topic: str) -> Iterator[Join]:
    """Adds a member to a group that reads the test's topic; it takes part in a rebalance only while it is polled."""
    members: list[Consumer] = []

    def join(group: str, client_id: str, protocol: str = "consumer", **more: str) -> Consumer:
        settings = {"group.id": group, "client.id": client_id, "group.protocol": protocol, "enable.auto.commit": False}
        common = {"bootstrap.servers": bootstrap, "broker.address.family": "v4", "auto.offset.reset": "earliest"}
        members.append(Consumer({**common, **settings, **{key.replace("_", "."): word for key, word in more.items()}}))
        members[-1].subscribe([topic])
        return members[-1]

    yield join
    for member in members:
        member.close()


def poll_until(claim: Callable[[], bool], *members: Consumer, what: str) -> None:
    def holds() -> bool:
        for member in members:
            member.poll(0.02)
        return claim()

    wait_until(holds, what=what, timeout_s=TIMEOUT_S)


def hold(members: list[Consumer], *, partitions: int = 3) -> None:
    """Waits until each member has some of the partitions, and together they have all."""

    def holds() -> bool:
        counts = [len(member.assignment()) for member in members]
        return all(counts) and sum(counts) == partitions

    poll_until(holds, *members, what="an assignment")


def described(kctl: Kctl, group: str) -> dict[str, Any]:
    (item,) = kctl(f"groups describe {group} --format json").document
    return dict(item)


def come_to_rest(kctl: Kctl, group: str, *members: Consumer) -> None:
    poll_until(lambda: described(kctl, group)["state"] == "Stable", *members, what="a stable group")


def reconciling(kctl: Kctl, group: str, join: Join, **of_second: str) -> tuple[Consumer, Consumer]:
    """A group whose second member waits for the first, which is not polled, to revoke partitions."""
    first = join(group, "the-first")
    hold([first])
    second = join(group, "second", **of_second)

    def waits() -> bool:
        item = described(kctl, group)
        epochs = [member["member_epoch"] for member in item["members"] if member["client_id"] == "second"]
        return item["state"] == "Reconciling" and epochs == [item["group_epoch"]] == [item["target_assignment_epoch"]]

    poll_until(waits, second, what="a member that waits")
    return first, second


@ON_KAFKA_4
def test_members_waiting_for_revocation_are_described(kctl: Kctl, topic: str, join: Join) -> None:
    first, second = reconciling(kctl, topic, join)
    assert [topic, "Reconciling", "consumer", "0", "consumer"] in [
        row[:5] for row in kctl("groups list --type consumer --state Reconciling").rows
    ]
    (state,) = kctl(f"groups describe {topic} --show state").rows
    assert state[1:4] + state[5:6] + state[7:8] == ["Reconciling", "consumer", "uniform", "2", "consumer"]
    item = described(kctl, topic)
    has, requires = sorted(item["members"], key=lambda member: member["client_id"], reverse=True)
    assert has["assignment"] == [{"topic": topic, "partitions": [0, 1, 2]}]
    assert requires["assignment"] == []
    goals = [goal["partitions"] for member in (has, requires) for goal in member["target_assignment"]]
    assert sorted(number for numbers in goals for number in numbers) == [0, 1, 2]
    assert has["member_epoch"] < requires["member_epoch"] == item["group_epoch"] == item["target_assignment_epoch"]
    assert {offset["client_id"] for offset in item["offsets"]} == {"the-first"}
    hold([first, second])
    come_to_rest(kctl, topic, first, second)
    for member in described(kctl, topic)["members"]:
        assert member["assignment"] == member["target_assignment"]


@ON_KAFKA_4
def test_offsets_are_reset_for_empty_groups_only(kctl: Kctl, topic: str, join: Join) -> None:
    for partition in (0, 1):
        kctl(f"produce {topic} --partition {partition}", stdin=b"x\n" * 10)
    member = join(topic, "member")
    hold([member])
    come_to_rest(kctl, topic, member)
    member.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 9)], asynchronous=False)
    reset = f"groups reset-offsets {topic} --topic {topic}:0 --to-offset 7"
    for how in ("--dry-run", "--yes"):
        ran = kctl(f"{reset} {how}")
        assert (ran.status, ran.out) == (5, "")
        assert f"group '{topic}' is active (Stable) with " in ran.err
    for how in ("--dry-run", "--yes"):
        assert kctl(f"groups delete {topic} {how}").rows[0][2] == "NON_EMPTY_GROUP"
        ran = kctl(f"groups delete-offsets {topic} --topic {topic}:0 {how}")
        assert (ran.status, ran.rows[0][-2]) == (1, "GROUP_SUBSCRIBED_TO_TOPIC")
    member.close()
    item = described(kctl, topic)
    assert (item["type"], item["state"], item["members"]) == ("consumer", "Empty", [])
    assert kctl(f"{reset} --yes").rows[0][3:7] == ["4", "7", "3", "reset"]
    assert kctl(f"groups delete-offsets {topic} --topic {topic}:1 --yes").status == 0
    assert [row[2:6] for row in kctl(f"groups describe {topic}").rows] == [["0", "7", "10", "3"]]
    assert kctl(f"groups delete {topic} --yes").status == 0
    ran = kctl(f"groups describe {topic}")
    assert (ran.status, ran.rows[0][-2]) == (1, "GROUP_ID_NOT_FOUND")


@WITH_OURS
def test_share_groups_are_described_reset_and_deleted(kctl: Kctl, topic: str, bootstrap: str) -> None:
    kctl(f"produce {topic} --partition 0", stdin=b"x\n" * 10)
    assert kctl(f"configs alter group {topic} --set share.auto.offset.reset=earliest").status == 0
    assert "share.auto.offset.reset\tearliest" in kctl(f"configs describe group {topic}").out.replace(f"{topic}\t", "")
    kctl(f"groups describe {topic}")  # A broker creates the topic of the coordinator when a client looks for it.
    share_group_heartbeat(bootstrap, topic, epoch=0, subscribed=topic)

    def is_assigned() -> bool:
        share_group_heartbeat(bootstrap, topic, epoch=0, subscribed=topic)
        return [row[5] for row in kctl(f"groups members {topic}").rows] == ["3"]

    wait_until(is_assigned, what="an assignment", timeout_s=TIMEOUT_S)
    assert [topic, "Stable", "share"] in [[*row[:2], row[4]] for row in kctl("groups list --type share").rows]
    item = described(kctl, topic)
    assert (item["type"], item["state"], [one["client_id"] for one in item["members"]]) == ("share", "Stable", ["test"])
    assert topic in [row["group"] for row in kctl("groups describe --all --format json").document]
    assert kctl(f"groups delete {topic} --yes").rows[0][2] == "NON_EMPTY_GROUP"
    ran = kctl(f"groups reset-offsets {topic} --topic {topic} --to-earliest --execute")
    assert (ran.status, f"group '{topic}' is active" in ran.err) == (5, True)
    share_group_heartbeat(bootstrap, topic, epoch=-1)
    ran = kctl(f"groups reset-offsets {topic} --topic {topic}:0 --to-offset 4 --execute")
    assert [row[4:7:2] for row in ran.rows] == [["4", "reset"]], ran.err
    lag = [row for row in kctl(f"groups lag {topic} --by partition --format json").document if row["partition"] == 0]
    assert [(row["current_offset"], row["lag"]) for row in lag] == [(4, 6)]
    assert kctl(f"groups delete-offsets {topic} --topic {topic}:0 --yes").status == 2
    assert kctl(f"groups delete-offsets {topic} --topic {topic} --yes").status == 0
    assert described(kctl, topic)["offsets"] == []
    assert kctl(f"groups delete {topic} --yes").status == 0
    assert topic not in [row[0] for row in kctl("groups list").rows]


@WITH_OURS
def test_streams_groups_are_described_reset_and_deleted(kctl: Kctl, topic: str, bootstrap: str) -> None:
    kctl(f"produce {topic} --partition 0", stdin=b"x\n" * 10)
    kctl(f"groups describe {topic}")  # Looks up the coordinator, for which a new broker creates the offsets topic.
    streams_group_heartbeat(bootstrap, topic, epoch=0, source=topic)

    def is_assigned() -> bool:
        streams_group_heartbeat(bootstrap, topic, epoch=0, source=topic)
        return [row[5] for row in kctl(f"groups members {topic}").rows] == ["3"]

    wait_until(is_assigned, what="the tasks", timeout_s=TIMEOUT_S)
    item = described(kctl, topic)
    assert item["type"] == "streams"
    assert item["members"][0]["assignment"] == [{"topic": topic, "partitions": [0, 1, 2]}]
    tasks = kctl(f"groups tasks {topic} --format json").document
    shown = [(task["subtopology"], task["partition"], task["role"], task["status"]) for task in tasks]
    assert shown == [("0", number, "active", "assigned") for number in range(3)]
    assert {task["process_id"] for task in tasks} == {"process"}
    rows = kctl(f"groups topology {topic} --format json").document
    assert [(row["subtopology"], row["role"], row["topic"]) for row in rows] == [("0", "source", topic)]
    missing = kctl(f"groups tasks {topic}-none --format json")
    assert (missing.status, missing.document[0]["error"]) == (1, "GROUP_ID_NOT_FOUND")
    ran = kctl(f"groups lag {topic} --format table")
    assert "10 unread in 1 partition without a commit" in ran.out
    assert "10 unread in 1 partition without a commit" in ran.err
    streams_group_heartbeat(bootstrap, topic, epoch=-1, source=topic)
    ran = kctl(f"groups reset-offsets {topic} --topic {topic}:0 --to-offset 4 --execute")
    assert [row[4:7:2] for row in ran.rows] == [["4", "reset"]], ran.err
    (lag,) = kctl(f"groups lag {topic} --by partition --format json").document
    assert (lag["current_offset"], lag["lag"]) == (4, 6)
    assert kctl(f"groups delete-offsets {topic} --topic {topic}:0 --yes").status == 0
    assert kctl(f"groups delete {topic} --yes").status == 0
    assert topic not in [row[0] for row in kctl("groups list").rows]


def share_group_heartbeat(bootstrap: str, group: str, *, epoch: int, subscribed: str = "t") -> None:
    """A member joins (epoch 0) or leaves (-1) a share group, by a hand-encoded request, because no client here supports
    it.
    """
    member = _compact(group), _compact("the-member"), struct.pack(">i", epoch), b"\0"
    _send(bootstrap, 76, 1, b"".join((*member, b"\2" + _compact(subscribed), b"\0")))


def streams_group_heartbeat(bootstrap: str, group: str, *, epoch: int, source: str) -> None:
    """The same for a streams group whose only subtopology reads one topic."""
    none, empty = b"\0", b"\1"
    subtopology = _compact("0") + b"\2" + _compact(source) + 5 * empty + none
    topology = b"\1" + struct.pack(">i", 0) + b"\2" + subtopology + none
    fields = (
        *(_compact(group), _compact("the-member"), struct.pack(">ii", epoch, 0), none, none),
        *(struct.pack(">i", 60_000), topology if epoch == 0 else b"\xff"),
        *((empty, empty, empty, _compact("process"), b"\xff", empty) if epoch == 0 else (none,) * 4 + (b"\xff", none)),
        *(none, none, b"\0", none),
    )
    _send(bootstrap, 88, 0, b"".join(fields))


def _send(bootstrap: str, key: int, version: int, body: bytes) -> None:
    """Sends a request of flexible version until its error code is 0."""
    frame = struct.pack(">hhih", key, version, 1, 4) + b"test\0" + body

    def is_done() -> bool:
        with socket.create_connection(probe.address(bootstrap), timeout=TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            response = connection.makefile("rb").read(15)
        return response[13:] == b"\0\0"  # Behind size, correlation id, tagged fields and throttle time: the error code.

    wait_until(is_done, what="a coordinator that answers", timeout_s=TIMEOUT_S)


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


@ON_KAFKA_4
def test_kafkas_tools_print_the_same(kctl: Kctl, topic: str, bootstrap: str, join: Join) -> None:
    """A group that waits, one with members of both protocols, an empty one, a share group and an unknown one."""
    waiting, mixed, empty, share, unknown = (f"{topic}-{kind}" for kind in ("a", "b", "c", "d", "e"))
    new = join(mixed, "new")
    hold([new])
    old = join(mixed, "old", "classic")
    hold([new, old])
    gone = join(empty, "gone")
    hold([gone])
    come_to_rest(kctl, empty, gone)
    gone.commit(offsets=[TopicPartition(topic, 2, 0)], asynchronous=False)
    gone.close()
    share_group_heartbeat(bootstrap, share, epoch=0)
    reconciling(kctl, waiting, join, group_instance_id="static")
    come_to_rest(kctl, mixed, new, old)
    known = f"{waiting} {mixed} {empty}"
    for compat, lines in (
        (
            "kafka-2.8",
            [
                ("list", "--list"),
                ("list --verbose", "--list --state"),
                *describing(f"{known} {share} {unknown}", "offsets", "members", "members --verbose", "state"),
            ],
        ),
        (
            "kafka-4",
            [
                ("list", "--list"),
                ("list --type classic --type consumer --verbose", "--list --type --state"),
                ("list --type consumer --state Reconciling", "--list --type consumer --state Reconciling"),
                *describing(known, "offsets --verbose", "members", "members --verbose", "state", "state --verbose"),
                *describing(f"{share} {empty}", "state"),
                *describing(f"{unknown} {empty}", "offsets"),
            ],
        ),
    ):
        version, tool = GROUP_COMMAND[compat]
        theirs = output(version, [[tool, "--bootstrap-server", bootstrap, *words.split()] for _, words in lines])
        for (line, _), expected in zip(lines, theirs, strict=True):
            assert kctl(f"groups {line} --compat {compat}").out == expected, line
        assert ("UPGRADED" in "".join(theirs)) is (compat == "kafka-4")


def describing(groups: str, *shown: str) -> list[tuple[str, str]]:
    """Command lines of kctl and of Kafka's tool."""
    named = " ".join(f"--group {group}" for group in groups.split())
    return [(f"describe {groups} --show {show}", f"--describe {named} --{show}") for show in shown]
