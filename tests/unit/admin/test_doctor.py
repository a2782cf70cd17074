"""The rules of `kctl doctor` on snapshots, and the file format of snapshots."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import typer.main

from kctl.admin.doctor.diagnosis import RULES, diagnose
from kctl.admin.doctor.findings import Severity
from kctl.admin.doctor.snapshot import (
    BrokerState,
    CertificateState,
    ClientSoftwareState,
    DeniedState,
    DirectoryState,
    FeatureState,
    GroupState,
    NodeState,
    OldRequestState,
    PartitionState,
    QuorumState,
    ReassignmentState,
    Snapshot,
    ThrottledState,
    TopicState,
    TransactionState,
    Unseen,
    document_of,
    snapshot_of,
)
from kctl.commands.frame.lazy_group import LazyGroup, load
from kctl.commands.frame.root import NOUNS
from kctl.errors import UsageError

NOW_MS = 1_800_000_000_000
GB = 1 << 30
DAY_MS = 86_400_000


def topic(name: str, *partitions: PartitionState, minimum: int | None = 1, **more: Any) -> TopicState:
    return TopicState(name=name, partitions=partitions, min_insync_replicas=minimum, records=9, **more)


def part(
    number: int = 0, replicas: Sequence[int] = (1, 2, 3), isr: Sequence[int] | None = None, leader: int | None = None
) -> PartitionState:
    in_sync = replicas if isr is None else isr
    return PartitionState(number, replicas[0] if leader is None else leader, tuple(replicas), tuple(in_sync))


def brokers(*ids: int, down: Sequence[int] = ()) -> tuple[BrokerState, ...]:
    up = tuple(BrokerState(broker_id=number, address=f"b{number}.example:9092") for number in ids)
    return (*up, *(BrokerState(broker_id=number, is_listed=False) for number in down))


THREE = Snapshot(taken_ms=NOW_MS, took_ms=1000, cluster_id="c", is_kraft=False, controller=1, brokers=brokers(1, 2, 3))
TWO_OF_THREE = replace(THREE, brokers=brokers(1, 3, down=[2]))
QUORUM = QuorumState(
    leader_id=1,
    leader_epoch=7,
    nodes=tuple(NodeState(node_id=number, is_voter=True, lag=0, fetched_ms_ago=100) for number in (1, 2, 3)),
)
KRAFT = replace(THREE, is_kraft=True, controller=2, quorum=QUORUM)
OPEN = TransactionState(
    topic="orders",
    partition=0,
    producer_id=4000,
    producer_epoch=1,
    coordinator_epoch=0,
    start_offset=500,
    idle_ms=120_000,
    blocked_records=40,
)
GROUP = GroupState(group_id="billing", state="Stable", members=2)


def voters_away(*away: int) -> QuorumState:
    return replace(
        QUORUM,
        nodes=tuple(replace(node, fetched_ms_ago=40_000 if node.node_id in away else 100) for node in QUORUM.nodes),
    )


Expected = tuple[str, str, str]
"""Severity, rule, and a part of the cause."""

CASES: dict[str, tuple[Snapshot, list[Expected]]] = {
    "clients that Kafka 4 refuses": (
        replace(
            THREE,
            clients=(ClientSoftwareState(broker_id=1, name="old-client", version="0.9", connections=2),),
            old_requests=(
                OldRequestState(broker_id=1, api="Fetch", version=2, count=40),
                OldRequestState(broker_id=2, api="Fetch", version=2, count=2),
            ),
        ),
        [("note", "old-clients", "brokers of Kafka 4 refuse")],
    ),
    "operations that were denied": (
        replace(
            THREE,
            denied=(
                DeniedState(
                    broker_id=1,
                    principal="User:bob",
                    operation="Read",
                    resource_type="Topic",
                    resource_name="orders",
                    times=3,
                ),
                DeniedState(
                    broker_id=2,
                    principal="User:bob",
                    operation="Read",
                    resource_type="Topic",
                    resource_name="orders",
                    times=4,
                ),
                DeniedState(
                    broker_id=2,
                    principal="User:eve",
                    operation="Alter",
                    resource_type="Cluster",
                    resource_name="kafka-cluster",
                    times=1,
                ),
            ),
        ),
        [
            ("note", "denials", "User:bob was denied Read on Topic orders, 7 times"),
            ("note", "denials", "User:eve was denied Alter on the cluster, 1 time"),
        ],
    ),
    "clients that quotas throttle": (
        replace(
            THREE,
            throttled=(
                ThrottledState(broker_id=1, kind="produce", user="", client_id="load", mean_ms=20.4),
                ThrottledState(broker_id=2, kind="fetch", user="bob", client_id="app", mean_ms=8_000),
            ),
        ),
        [
            ("warning", "quotas", "user 'bob' and client id 'app': Fetch requests wait 8"),
            ("warning", "quotas", "client id 'load': Produce requests wait"),
        ],
    ),
    "a healthy cluster": (replace(THREE, topics=(topic("t", part()),)), []),
    "a healthy KRaft cluster, where the controller may be any broker": (replace(KRAFT, controller=9), []),
    "no controller": (replace(THREE, controller=None), [("critical", "controller", "no broker is the controller")]),
    "a quorum that does not respond": (
        replace(KRAFT, quorum=QuorumState(problem="no controller responded within 4 s")),
        [("critical", "quorum", "the metadata quorum has no leader")],
    ),
    "a quorum without a leader": (
        replace(KRAFT, quorum=replace(QUORUM, leader_id=None)),
        [("critical", "quorum", "has no leader")],
    ),
    "a quorum that the user may not see": (replace(KRAFT, quorum=None, controller=None), []),
    "one of three voters is away": (
        replace(KRAFT, quorum=voters_away(3)),
        [("critical", "quorum", "1 of 3 voters of the metadata quorum does not follow its leader")],
    ),
    "one of five voters is away": (
        replace(
            KRAFT,
            quorum=replace(
                voters_away(3),
                nodes=(*voters_away(3).nodes, *(NodeState(node_id=n, is_voter=True, fetched_ms_ago=9) for n in (4, 5))),
            ),
        ),
        [("error", "quorum", "1 of 5 voters")],
    ),
    "a broker that does not follow the metadata log": (
        replace(KRAFT, quorum=replace(QUORUM, nodes=(*QUORUM.nodes, NodeState(node_id=9, is_voter=False)))),
        [("error", "quorum", "broker 9 does not follow the metadata log")],
    ),
    "a single controller": (
        replace(KRAFT, quorum=replace(QUORUM, nodes=QUORUM.nodes[:1])),
        [("warning", "quorum", "the only voter")],
    ),
    "a broker that is down is one finding, with all its partitions": (
        replace(
            TWO_OF_THREE,
            topics=(
                topic("safe", *(part(number, isr=(1, 3)) for number in range(1000))),
                topic("strict", part(isr=(1, 3)), minimum=3),
                topic("gone", part(replicas=(2,), leader=-1), minimum=1),
            ),
        ),
        [
            (
                "critical",
                "brokers",
                "broker 2 is down: 1 partition has no leader without it, 1 partition refuses acks=all, 1,000",
            ),
            ("warning", "durability", "1 topic with one replica"),
            ("warning", "durability", "1 topic where acks=all is refused"),
        ],
    ),
    "a broker that is down and holds nothing alone": (
        replace(TWO_OF_THREE, topics=(topic("t", part(isr=(1, 3))),)),
        [("error", "brokers", "broker 2 is down: 1 partition has one copy less")],
    ),
    "a broker that is listed and does not respond": (
        replace(
            THREE,
            brokers=(*brokers(1, 3), BrokerState(broker_id=2, problem="connection refused")),
            topics=(topic("t", part(replicas=(2, 1, 3)), minimum=3),),
        ),
        [
            ("critical", "brokers", "broker 2 is listed as alive, and does not respond: 1 partition has no leader"),
            ("warning", "durability", "acks=all"),
        ],
    ),
    "one more failure": (
        replace(TWO_OF_THREE, topics=(topic("t", part(isr=(1, 3)), minimum=2), topic("u", part(isr=(3,), leader=3)))),
        [
            ("error", "brokers", "broker 2 is down"),
            ("error", "partitions", "broker 1 responds, and is not in sync for 1 partition"),
            ("warning", "one-failure-away", "that of broker 3, stops writes with acks=all to 2 topics and takes away"),
            ("warning", "one-failure-away", "that of broker 1, stops writes with acks=all to 1 topic"),
        ],
    ),
    "a follower that does not follow": (
        replace(THREE, topics=(topic("t", part(0, isr=(1, 3)), part(1, isr=(1, 3)), minimum=3),)),
        [
            ("critical", "partitions", "broker 2 responds, and is not in sync for 2 partitions; 2 of them refuse"),
            ("warning", "durability", "acks=all"),
        ],
    ),
    "a replica that is being added is not out of sync": (
        replace(
            THREE,
            topics=(topic("t", part(isr=(1, 2))),),
            reassignments=(ReassignmentState(topic="t", partition=0, adding=(3,), removing=(), moved_bytes=5),),
        ),
        [],
    ),
    "no leader although all brokers are alive": (
        replace(THREE, topics=(topic("t", part(isr=(2,), leader=-1)),)),
        [("critical", "partitions", "1 partition cannot be written or read")],
    ),
    "replication factors": (
        replace(
            THREE,
            topics=(
                topic("one", part(replicas=(1,))),
                topic("__consumer_offsets", part(replicas=(1,)), is_internal=True),
                topic("never", part(), minimum=4),
                topic("tight", part(), minimum=3),
                topic("unclean", part(), unclean_election=True),
            ),
        ),
        [
            ("error", "durability", "can never be written with acks=all"),
            ("error", "durability", "of the brokers themselves with one replica"),
            ("warning", "durability", "1 topic with one replica"),
            ("warning", "durability", "where acks=all is refused"),
            ("warning", "durability", "with unclean elections"),
        ],
    ),
    "one broker is a choice": (
        replace(THREE, brokers=brokers(1), topics=(topic("one", part(replicas=(1,))),)),
        [],
    ),
    "disks": (
        replace(
            THREE,
            directories=(
                DirectoryState(broker_id=1, path="/a", usable_bytes=50 * GB, total_bytes=100 * GB),
                DirectoryState(broker_id=1, path="/b", usable_bytes=4 * GB, total_bytes=100 * GB),
                DirectoryState(
                    broker_id=2, path="/a", usable_bytes=50 * GB, total_bytes=90 * GB, growth_bytes_per_s=GB
                ),
                DirectoryState(broker_id=3, path="/a", error="KAFKA_STORAGE_ERROR"),
            ),
        ),
        [
            ("critical", "disks", "log directory /a of broker 3 is offline"),
            ("critical", "disks", "the disk of broker 2 fills: 50 GiB of 90 GiB are free, full in about 50s"),
            ("error", "disks", "the disk of broker 1 fills: 4.0 GiB of 100 GiB are free"),
        ],
    ),
    "two directories of one file system are one disk": (
        replace(
            THREE,
            directories=tuple(
                DirectoryState(broker_id=1, path=path, usable_bytes=GB, total_bytes=100 * GB) for path in ("/a", "/b")
            ),
        ),
        [("critical", "disks", "1.0 GiB of 100 GiB")],
    ),
    "moves": (
        replace(
            TWO_OF_THREE,
            reassignments=(
                ReassignmentState(topic="t", partition=0, adding=(2,), removing=(1,), copied_bytes=0, moved_bytes=0),
                ReassignmentState(topic="t", partition=1, adding=(3,), removing=(1,), copied_bytes=9, moved_bytes=9),
                ReassignmentState(topic="t", partition=2, adding=(3,), removing=(1,)),
            ),
        ),
        [("error", "brokers", "broker 2 is down"), ("error", "moves", "no progress in 1 move")],
    ),
    "throttles without moves": (
        replace(
            THREE,
            topics=(topic("t", part(), throttled=True),),
            brokers=(*brokers(1, 2), BrokerState(broker_id=3, throttle_bytes_per_s=1000)),
        ),
        [("warning", "moves", "replication is throttled, and nothing is being moved")],
    ),
    "throttles of a move": (
        replace(
            THREE,
            topics=(topic("t", part(), throttled=True),),
            reassignments=(ReassignmentState(topic="t", partition=0, adding=(3,), removing=(1,), moved_bytes=1),),
        ),
        [],
    ),
    "groups": (
        replace(
            THREE,
            groups=(
                replace(GROUP, group_id="ok", unread=5),
                replace(GROUP, group_id="idle", members=0),
                replace(GROUP, group_id="fresh", members=0, unread=5),
                replace(
                    GROUP, group_id="stopped", members=0, unread=50, verdict="STOPPED", reason="no member reads it"
                ),
                replace(GROUP, group_id="losing", unread=50, verdict="LOSING", reason="records were deleted"),
                replace(GROUP, group_id="new", uncommitted_partitions=3, uncommitted_records=150_000),
                replace(GROUP, group_id="turning", state="PreparingRebalance"),
            ),
        ),
        [
            ("critical", "groups", "group losing loses records: records were deleted"),
            ("error", "groups", "group stopped has stopped: no member reads it"),
            ("warning", "groups", "group new has no committed offset in 3 partitions with 150,000 records"),
            ("warning", "groups", "group fresh has stopped: no member reads"),
            ("note", "groups", "group turning is rebalancing"),
        ],
    ),
    "a group that an open transaction blocks": (
        replace(
            THREE,
            transactions=(OPEN,),
            groups=(
                replace(GROUP, unread=40, lag_partitions=(("orders", 0, 500),)),
                replace(GROUP, group_id="elsewhere", unread=40, lag_partitions=(("orders", 0, 499),)),
            ),
        ),
        [
            ("error", "transactions", "a transaction of producer 4000 hangs in orders-0"),
            ("error", "groups", "waits at offset 500 of orders-0 for the end of a transaction of producer 4000"),
        ],
    ),
    "transactions": (
        replace(
            THREE,
            transactions=(
                replace(OPEN, idle_ms=1000),
                replace(OPEN, is_owner_known=False),
                replace(OPEN, partition=1, transactional_id="tx", state="Ongoing", running_ms=2000, timeout_ms=60_000),
                replace(
                    OPEN, partition=2, transactional_id="tx", state="Ongoing", running_ms=400_000, timeout_ms=900_000
                ),
                replace(
                    OPEN, partition=3, transactional_id="tx", state="Ongoing", running_ms=400_000, timeout_ms=60_000
                ),
            ),
        ),
        [
            ("error", "transactions", "open for 6m40s, longer than its timeout of 1m"),
            ("warning", "transactions", "a transaction of producer 4000 (tx) has been open for 6m40s"),
        ],
    ),
    "certificates": (
        replace(
            THREE,
            certificates=tuple(
                CertificateState(broker_id=number, subject="CN=b", expires_ms=NOW_MS + days * DAY_MS)
                for number, days in ((1, 40), (2, 20), (3, 5))
            ),
        ),
        [("error", "certificates", "broker 3 expires in 5d"), ("warning", "certificates", "broker 2 expires in 20d")],
    ),
    "an expired certificate": (
        replace(THREE, certificates=(CertificateState(broker_id=1, subject="CN=b", expires_ms=NOW_MS - 1),)),
        [("critical", "certificates", "has expired")],
    ),
    "versions": (
        replace(
            THREE,
            brokers=tuple(
                BrokerState(broker_id=number, apis={"Fetch": "0-13" if number == 3 else "0-12"}) for number in (1, 2, 3)
            ),
            features=(
                FeatureState(name="metadata.version", finalized=20, supported_max=25),
                FeatureState(name="kraft.version", finalized=1, supported_max=1),
                FeatureState(name="group.version", finalized=0, supported_max=None),
            ),
        ),
        [
            ("warning", "versions", "the brokers support different versions"),
            ("note", "versions", "all brokers support level 25 of metadata.version, and 20 is in use"),
        ],
    ),
    "leaders": (
        replace(THREE, topics=(topic("t", *(part(number, leader=2) for number in range(12))),)),
        [("warning", "distribution", "12 partitions of 12 not led by the first replica")],
    ),
    "skewed disks": (
        replace(
            THREE,
            directories=tuple(
                DirectoryState(broker_id=number, path="/a", used_bytes=size * GB)
                for number, size in ((1, 10), (2, 1), (3, 1))
            ),
        ),
        [("note", "distribution", "broker 1 holds 10 GiB, 2.5 times the mean")],
    ),
    "a topic without records": (
        replace(THREE, topics=(replace(topic("t", part()), records=0),)),
        [("note", "unused-topics", "no records in 1 topic")],
    ),
    "what ZooKeeper does to a broker": (
        replace(
            THREE,
            brokers=(
                *brokers(1),
                BrokerState(broker_id=2, refuses_to_lead="t-0"),
                BrokerState(broker_id=3, no_changes="the disk of ZooKeeper is full"),
            ),
        ),
        [
            ("critical", "brokers", "broker 2 refuses to act as leader"),
            ("critical", "brokers", "broker 3 cannot change anything in ZooKeeper"),
        ],
    ),
}


def test_each_state_has_its_findings_in_their_order() -> None:
    wrong = []
    for name, (snapshot, expected) in CASES.items():
        found = [(ranked.finding.severity.label, ranked.rule, ranked.finding.cause) for ranked in diagnose(snapshot)]
        matches = len(found) == len(expected) and all(
            severity == wanted_severity and rule == wanted_rule and wanted in cause
            for (severity, rule, cause), (wanted_severity, wanted_rule, wanted) in zip(found, expected, strict=True)
        )
        if not matches:
            wrong.append(f"{name}:\n  found {found}\n  expected {expected}")
    assert not wrong, "\n".join(wrong)


def test_every_rule_has_a_state_that_it_finds() -> None:
    assert {rule for _, expected in CASES.values() for _, rule, _ in expected} == set(RULES)


def test_a_silenced_rule_finds_nothing() -> None:
    for name, (snapshot, expected) in CASES.items():
        for silenced in RULES:
            found = [ranked.rule for ranked in diagnose(snapshot, [silenced])]
            assert found == [rule for _, rule, _ in expected if rule != silenced], (name, silenced)


def command_lines() -> set[str]:
    found = set()
    for snapshot, _ in CASES.values():
        for ranked in diagnose(snapshot):
            found.add(ranked.finding.look)
            found.update(text for text in ranked.finding.repair.split("; ") if text.startswith("kctl "))
            found.update(re.findall(r"'(kctl [^']*)'", ranked.finding.repair))
    return found


def test_every_command_of_a_finding_exists_with_its_options() -> None:
    assert len(command_lines()) > 20
    for line in sorted(command_lines()):
        noun, *words = shlex.split(line)[1:]
        command: Any = load(NOUNS[noun])
        if isinstance(command, LazyGroup):
            verb, *words = words
            command = command.get_command(typer.Context(command), verb)
            assert command is not None, line
        known = {
            flag
            for param in [*command.params, *command.common_options()]
            for flag in (*param.opts, *param.secondary_opts)
        }
        assert {word for word in words if word.startswith("--")} <= known, line


@pytest.mark.long
def test_a_snapshot_is_the_same_after_it_was_saved() -> None:
    states = [snapshot for snapshot, _ in CASES.values()]
    whole = replace(
        KRAFT,
        unseen=(Unseen(what="groups", reason="no permission", remedy="needs Describe"),),
        brokers=tuple(item for snapshot in states for item in snapshot.brokers),
        topics=tuple(item for snapshot in states for item in snapshot.topics),
        directories=tuple(item for snapshot in states for item in snapshot.directories),
        reassignments=tuple(item for snapshot in states for item in snapshot.reassignments),
        groups=tuple(item for snapshot in states for item in snapshot.groups),
        transactions=tuple(item for snapshot in states for item in snapshot.transactions),
        certificates=tuple(item for snapshot in states for item in snapshot.certificates),
    )
    for snapshot in (whole, *states):
        read = snapshot_of(json.loads(json.dumps(document_of(snapshot))))
        assert read == snapshot
        assert diagnose(read) == diagnose(snapshot)


def test_a_file_that_is_no_snapshot_is_refused_with_the_place() -> None:
    good = document_of(TWO_OF_THREE)
    rows: list[tuple[Any, str]] = [
        ([], "its format is not"),
        ({"format": "other"}, "its format is not"),
        ({key: value for key, value in good.items() if key != "taken_ms"}, "snapshot lacks taken_ms"),
        (good | {"taken_ms": "now"}, "snapshot.taken_ms must be an integer"),
        (good | {"taken_ms": True}, "snapshot.taken_ms must be an integer"),
        (good | {"brokers": {}}, "snapshot.brokers must be a list"),
        (good | {"brokers": [{"broker_id": "1"}]}, "snapshot.brokers[0].broker_id must be an integer"),
        (good | {"brokers": [{"broker_id": 1, "apis": []}]}, "snapshot.brokers[0].apis must be an object"),
        (good | {"groups": [{"group_id": "g", "lag_partitions": [["t", 1]]}]}, "must be a list of 3 items"),
        (good | {"is_kraft": 1}, "snapshot.is_kraft must be true or false"),
    ]
    for document, message in rows:
        with pytest.raises(UsageError) as refused:
            snapshot_of(document)
        assert message in str(refused.value), document
    assert snapshot_of(good | {"of_a_newer_version": 1}) == TWO_OF_THREE


def test_severities_are_ordered() -> None:
    assert [severity.label for severity in sorted(Severity, reverse=True)] == ["critical", "error", "warning", "note"]
