"""A cluster moves to another one while it is written to, and back: every record once, groups at the same record."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.cli.group_readers import TIMEOUT_S
from tests.peers import apache_kafka, moved_cluster, probe
from tests.peers.forked_kctl import ForkedProcess, forked_kctl, run_kctl
from tests.peers.kctl_broker import kctl_broker

TOPICS = [(moved_cluster.HISTORY, 0), (moved_cluster.HISTORY, 1), ("prices", 0)]


def kctl(*words: object, status: int = 0, stdin: bytes = b"") -> str:
    ran = run_kctl(*map(str, words), stdin=stdin)
    assert ran.returncode == status, (words, ran.stdout, ran.stderr)
    return ran.stdout + ran.stderr


def state(*words: object, status: int = 0) -> Any:
    ran = run_kctl("migrate", *map(str, words), "--format", "json")
    assert ran.returncode == status, (words, ran.stdout, ran.stderr)
    return json.loads(ran.stdout)


@contextmanager
def started(plan: Path, output: Path) -> Iterator[ForkedProcess]:
    """`copy-start` as a process."""
    with running(["migrate", "copy-start", "--plan", str(plan), "--yes", "--interval", "300ms"], output) as process:
        yield process


@contextmanager
def running(words: list[str], output: Path) -> Iterator[ForkedProcess]:
    """A process that is killed at the end."""
    with output.open("ab") as stream, open(os.devnull, "rb") as nothing:
        streams = [nothing.fileno(), stream.fileno(), stream.fileno()]
        process = forked_kctl().start(words, streams=streams, environment=os.environ)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def fill(source: str, chance: random.Random) -> None:
    at = ("--bootstrap-server", source)
    kctl("topics", "create", moved_cluster.HISTORY, "--partitions", 2, "--set", "retention.ms=-1", *at)
    kctl("topics", "create", "prices", "--set", "cleanup.policy=compact", *at)
    moved_cluster.write(source, chance, 0, 3_000)
    producer = Producer({"bootstrap.servers": source})
    for number in range(60):
        producer.produce("prices", f"p-{number}" if number % 7 else None, key=f"k-{number % 9}")
    producer.flush(TIMEOUT_S)


def place_groups(source: str, chance: random.Random) -> list[str]:
    """Groups at the start, at the end, and at random offsets, some of which are those of markers."""
    groups = [f"group-{number}" for number in range(5)]
    ends = {tp: moved_cluster.end_offset(source, *tp) for tp in TOPICS}
    for number, group in enumerate(groups):
        places = {tp: (0, end)[number] if number < 2 else chance.randrange(end) for tp, end in ends.items()}
        moved_cluster.commit(source, group, places)
    return groups


def check_equal(source: str, target: str) -> None:
    for tp in TOPICS:
        faults = moved_cluster.compare(moved_cluster.read(source, *tp), moved_cluster.read(target, *tp))
        assert faults == (0, 0, 0), (tp, faults)


def check_groups(source: str, target: str, groups: list[str]) -> None:
    faults = moved_cluster.compare_groups(source, target, groups, TOPICS)
    assert faults == (len(groups) * len(TOPICS), 0, 0, 0)


def move_and_return(source: str, target: str, folder: Path, seed: int, kills: int) -> None:
    """The whole way of an operator, with SIGKILL while records are copied."""
    chance = random.Random(seed)
    folder.mkdir(exist_ok=True)
    plan, output = folder / "move.json", folder / "start.output"
    fill(source, chance)
    groups = place_groups(source, chance)
    quota = ("quotas", "alter", "--user", "shop", "--consumer-rate", "12345", "--yes", "--bootstrap-server", source)
    has_quotas = run_kctl(*quota).returncode == 0  # since Kafka 2.6
    acl = ("--allow-principal", "User:alice", "--topic", "prices", "--operation", "read", "--bootstrap-server", source)
    has_acls = run_kctl("acls", "add", *acl, "--yes").returncode == 0  # with an authorizer
    sides = ("--from-cluster", source, "--to-cluster", target, "--output", plan)
    planned = json.loads(run_kctl("migrate", "copy", "plan", *map(str, sides), "--format", "json").stdout)
    assert {(row["kind"], row["name"], row["action"]) for row in planned} >= {
        ("topic", moved_cluster.HISTORY, "create"),
        ("group", "group-3", "carry"),
        *([("quota", "user=shop", "alter")] if has_quotas else []),
    }
    by_plan = ("--plan", plan)
    assert not state("copy-status", *by_plan, status=3)["ready"]

    written = 3_000
    for _ in range(kills):
        with started(plan, output) as process:
            before = moved_cluster.end_offset(target, *TOPICS[0])
            moved_cluster.write(source, chance, written, 1_000)
            written += 1_000
            wanted = before + chance.randrange(1, 400)
            probe.wait_until(
                functools.partial(has_more_than, target, wanted), what="records in the target", timeout_s=TIMEOUT_S
            )
            process.kill()
            assert process.wait(TIMEOUT_S) == -signal.SIGKILL

    with started(plan, output) as first:
        probe.wait_until(
            lambda: run_kctl("migrate", "copy-status", *map(str, by_plan)).returncode == 0,
            what="a copy that is up to date",
            timeout_s=TIMEOUT_S,
        )
        kctl("topics", "create", "later", "--partitions", 3, "--bootstrap-server", source)
        added = run_kctl("topics", "alter", "prices", "--partitions", "2", "--bootstrap-server", source)
        prices = 1 if added.returncode else 2  # Kafka adds partitions since 1.0.
        kctl(
            "configs", "alter", "topic", "prices", "--set", "segment.ms=9999999", "--yes", "--bootstrap-server", source
        )
        with started(plan, output):
            assert first.wait(TIMEOUT_S) == 1  # The second has taken over.
            assert "another 'kctl migrate' copies the same clusters" in output.read_text()
            probe.wait_until(
                lambda: partitions_by_topic(plan) == {moved_cluster.HISTORY: 2, "later": 3, "prices": prices},
                what="a topic and a partition that were added",
                timeout_s=TIMEOUT_S,
            )
            text = kctl(
                "configs", "describe", "topic", "prices", "--property", "segment.ms", "--bootstrap-server", target
            )
            assert "9999999" in text

            if has_acls:
                assert "User:alice" in kctl("acls", "list", "--bootstrap-server", target)
                kctl("acls", "remove", *acl, "--yes")
                kctl(
                    "quotas",
                    "alter",
                    "--user",
                    "shop",
                    "--delete",
                    "consumer_byte_rate",
                    "--yes",
                    "--bootstrap-server",
                    source,
                )
                probe.wait_until(
                    functools.partial(has_no_settings, target),
                    what="the removal of an ACL and a quota",
                    timeout_s=TIMEOUT_S,
                )

            moved = state("copy-cutover", *by_plan, "--yes", "--quiet-time", "100ms")
    assert (moved["phase"], moved["ready"], moved["bootstrap"]) == ("cut over", True, target)
    assert {row["status"] for row in moved["topics"]} == {"verified"}
    check_equal(source, target)
    check_groups(source, target, groups)
    assert run_kctl("migrate", "copy-start", *map(str, by_plan), "--yes", "--once").returncode == 5

    moved_cluster.write(target, chance, written, 500)
    end = moved_cluster.end_offset(target, *TOPICS[0])
    moved_cluster.commit(target, "group-4", {TOPICS[0]: chance.randrange(end - 100, end)})
    before = moved_cluster.end_offset(source, *TOPICS[0])
    words = ["migrate", "copy-back", "--plan", str(plan), "--yes", "--quiet-time", "10m"]
    with running(words, output) as process:  # It waits when it has copied what there is.
        probe.wait_until(
            functools.partial(has_more_than, source, before), what="records that were copied back", timeout_s=TIMEOUT_S
        )
        process.kill()
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    returned = state("copy-back", *by_plan, "--yes", "--quiet-time", "100ms")
    assert (returned["phase"], returned["bootstrap"]) == ("gone back", source)
    check_equal(source, target)
    check_groups(source, target, groups)

    moved_cluster.write(source, chance, written + 500, 300)
    moved_cluster.commit(source, "group-4", {TOPICS[0]: moved_cluster.end_offset(source, *TOPICS[0]) - 50})
    kctl("migrate", "copy-start", *by_plan, "--yes", "--once")
    check_equal(source, target)
    check_groups(source, target, groups)


def has_no_settings(target: str) -> bool:
    at = ("--bootstrap-server", target)
    return "alice" not in kctl("acls", "list", *at) and "shop" not in kctl("quotas", "describe", *at)


def has_more_than(target: str, offset: int) -> bool:
    return moved_cluster.end_offset(target, *TOPICS[0]) > offset


def partitions_by_topic(plan: Path) -> dict[str, int]:
    ran = run_kctl("migrate", "copy-status", "--plan", plan, "--format", "json")
    return {row["topic"]: row["partitions"] for row in json.loads(ran.stdout)["topics"]}


@pytest.mark.long
def test_a_cluster_moves_and_returns_with_each_record_once_although_the_copy_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("KCTL_SEED", random.SystemRandom().randrange(1 << 32)))
    sys.stderr.write(f"KCTL_SEED={seed}\n")
    properties = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with (
        kctl_broker(tmp_path / "old", properties=properties) as old,
        kctl_broker(tmp_path / "new", properties=properties) as new,
    ):
        move_and_return(old.bootstrap, new.bootstrap, tmp_path, seed, kills=2)


@pytest.mark.jvm
@pytest.mark.matrix
@pytest.mark.parametrize("version", [apache_kafka.OLDEST_BROKER, apache_kafka.OLDEST_JUDGE])
def test_a_cluster_of_apache_kafka_with_zookeeper_moves_to_kafka_4_and_returns(version: str, tmp_path: Path) -> None:
    if reason := apache_kafka.why_not():
        pytest.skip(reason)
    with (
        apache_kafka.apache_kafka(version, tmp_path / "old") as source,
        apache_kafka.apache_kafka(apache_kafka.NEWEST_BROKER, tmp_path / "new") as target,
    ):
        move_and_return(source, target, tmp_path, seed=1, kills=4)
