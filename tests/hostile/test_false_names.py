"""Names that a broker invents reach no file, no program and no terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.admin.cluster.rolling_plan import command_for
from kctl.cli import main
from kctl.client.connections.response_names import check_names
from kctl.client.metadata import Broker
from kctl.commands.frame.exit_status import MEANINGS, ExitStatus
from kctl.errors import MalformedRequest, UsageError
from kctl.model import TopicPartition
from kctl.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from kctl.protocol.definition import Role, definition_of
from kctl.protocol.registry import all_apis
from kctl.records.build import build_batch
from kctl.records.header import Record
from tests.hostile.test_hostile_answers import LINES
from tests.hostile.test_terminal_injection import unsafe_in
from tests.rows import for_rows
from tests.unit.admin.moving_cluster import MovingCluster
from tests.unit.client.fake_cluster import FakeGroup

UNSAFE = "\x1b]0;owned\x07\x9b31m\r\u202e"
BAD_TOPICS = [
    "x/../../escaped",
    "OUTSIDE/escaped",
    ".",
    "..",
    "",
    "a\0b",
    f"a{UNSAFE}",
    "a b",
    "a;b",
    "a" * 250,
    "stra\u00dfe",
]
BAD_CLUSTERS = ["../../escaped", "/escaped", "..", UNSAFE, "a" * 5_000]
BAD_GROUPS = ["../../escaped", "OUTSIDE/escaped", "", "-", "--all", f"g{UNSAFE}", "a" * 5_000, "$(touch escaped)"]
WRITING_LINES = [
    "export --topic-regex .* --to target --processes 1 --no-progress",
    "export --topic-regex .* --to target --table delta --dry-run",
    "groups export --all --file groups.json",
    "groups export --group-regex .* --as csv --file groups.csv",
    "groups reset-offsets --all --all-topics --to-earliest --yes --backup-dir state --yes",
    "groups lag",
    "groups members billing",
    "topics list --format csv",
    "topics delete --topic-regex .* --yes",
    "records delete orders --to-end --yes",
    "reassign plan drain 1 --output plan.json",
    "reassign execute orders:0=1,0 --state-dir state",
    "cluster maintenance on 1 --state-dir state --yes --allow-unavailable",
    "cluster roll --restart-command 'echo {host}' --dry-run",
    "plan --export",
    "tables profile orders --no-progress",
    "profile add lying --pin-cluster-id",
    "topics offsets --topic-regex .*",
    "copy orders payments --dry-run",
    "cluster verify",
]


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MovingCluster]:
    """A cluster of two brokers; everything that commands write by default is below `tmp_path/home`."""
    home = tmp_path / "work" / "home"
    home.mkdir(parents=True)
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.chdir(tmp_path / "work")
    with MovingCluster(2) as cluster:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", cluster.bootstrap)
        cluster.place("orders", [0, 1], [1, 0])
        cluster.topics["orders"][0].append(build_batch([Record(0, 1_000, None, b"x")]))
        cluster.groups["billing"] = FakeGroup({TopicPartition("orders", 0): 0})
        yield cluster


def lied_about(cluster: MovingCluster, topics: list[str], groups: list[str], cluster_id: str = "fake") -> None:
    """OUTSIDE stands for the folder above that of the commands."""
    cluster.cluster_id = cluster_id
    above = str(Path.cwd().parent)
    for name in (topic.replace("OUTSIDE", above) for topic in topics):
        cluster.place(name, [0, 1])
        cluster.topics[name][0].append(build_batch([Record(0, 1_000, None, b"x")]))
    for name in (group.replace("OUTSIDE", above) for group in groups):
        cluster.groups[name] = FakeGroup({TopicPartition("orders", 0): 0})


def outside(tmp_path: Path) -> list[Path]:
    """Files beside the folder of the commands, and files with the names that the broker has invented."""
    beside = [path for path in tmp_path.iterdir() if path.name != "work"]
    invented = [path for path in tmp_path.rglob("*") if "escaped" in path.name]
    return [*beside, *invented]


def run(line: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capfd.readouterr()
    status = main([*shlex.split(line), "--timeout", "10s"])
    captured = capfd.readouterr()
    shown = captured.out + captured.err
    assert status in MEANINGS, line
    assert status is not ExitStatus.USAGE, f"{line}: {shown}"
    for word in ("Traceback", "internal error", "Task exception"):
        assert word not in shown, f"{line}: {shown}"
    assert unsafe_in(shown, "\n\t") == [], line
    return status, shown


@pytest.mark.parametrize("name", BAD_TOPICS)
def test_export_writes_nothing_for_a_name_that_no_topic_can_have(
    lying: MovingCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    lied_about(lying, [name], [])
    for line in (WRITING_LINES[0], f"export {name!r} --to target --processes 1 --no-progress" if name.strip() else ""):
        if not line or "\0" in line:
            continue
        status, shown = run(line, capfd)
        assert status != 0, line
        assert "topic" in shown, line
        assert outside(tmp_path) == [], line
        assert not list((tmp_path / "work").rglob("*.parquet")), line


@pytest.mark.parametrize("line", [*WRITING_LINES, *LINES])
def test_no_command_follows_the_names_of_a_lying_broker(
    lying: MovingCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str
) -> None:
    lied_about(lying, BAD_TOPICS, BAD_GROUPS)
    run(line, capfd)
    assert outside(tmp_path) == []


@pytest.mark.parametrize("line", [line for line in WRITING_LINES if line.startswith("groups")])
def test_the_name_of_a_group_is_no_path(
    lying: MovingCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str
) -> None:
    lied_about(lying, [], BAD_GROUPS)
    status, shown = run(line, capfd)
    assert status == 0, shown
    assert outside(tmp_path) == []


@pytest.mark.parametrize("cluster_id", BAD_CLUSTERS)
def test_the_id_of_a_cluster_is_no_path(
    lying: MovingCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], cluster_id: str
) -> None:
    lied_about(lying, [], [], cluster_id)
    for line in ("cluster describe", *(line for line in WRITING_LINES if "state" in line)):
        status, shown = run(line, capfd)
        assert status != 0, line
        assert "the id of the cluster" in shown, line
        assert outside(tmp_path) == [], line


def test_every_field_of_a_response_that_names_a_topic_or_a_partition_is_declared_as_one() -> None:
    """A guard for new messages; names of other things have other names of fields."""
    seen: set[type] = set()
    left = [api.response for api in all_apis().values()]
    roles = {
        "topic": Role.TOPIC,
        "topic_name": Role.TOPIC,
        "partition": Role.PARTITION,
        "partition_index": Role.PARTITION,
    }
    while left:
        cls = left.pop()
        if cls in seen:
            continue
        seen.add(cls)
        for field in definition_of(cls).fields:
            structs = [field.struct, field.element.struct if field.element else None]
            left += [struct for struct in structs if struct is not None]
            if field.name in roles and field.kind != "struct":
                assert field.role is roles[field.name], f"{cls.__name__}.{field.name}"
        kinds = {field.name: field for field in definition_of(cls).fields}
        if "name" in kinds and {"partitions", "partition_responses", "results"} & kinds.keys():
            assert kinds["name"].role is Role.TOPIC, cls.__name__
    assert len(seen) > 100


def test_a_name_that_the_request_has_may_be_invalid_in_the_response() -> None:
    answer = MetadataResponse(brokers=[], topics=[MetadataResponseTopic(error_code=17, name="a/b", partitions=[])])
    check_names("b:1", MetadataRequest(topics=[MetadataRequestTopic(name="a/b")]), answer)
    with pytest.raises(MalformedRequest, match="b:1: the response of the broker is refused, because topic name 'a/b'"):
        check_names("b:1", MetadataRequest(topics=None), answer)


@pytest.mark.parametrize("number", [-1, -(2**31)])
def test_a_negative_partition_is_refused(number: int) -> None:
    partition = DescribeLogDirsPartition(partition_index=number, partition_size=0, offset_lag=0, is_future_key=False)
    topic = DescribeLogDirsTopic(name="orders", partitions=[partition])
    answer = DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=0, log_dir="/data", topics=[topic])])
    with pytest.raises(MalformedRequest, match=f"the number of a partition is {number}"):
        check_names("b:1", DescribeLogDirsRequest(topics=None), answer)


CONFIGURED_LINES = [
    "configs describe topic orders",
    "configs describe broker 0 --format yaml",
    "configs diff topic orders payments",
    "cluster health",
    "topics describe --under-min-isr-partitions",
    "topics describe orders --format json",
    "topics delete orders --yes",
    "metrics show",
    "groups lag",
    "plan --export",
    "tables profile orders --no-progress",
    "reassign execute orders:0=1,0 --throttle 1k --dry-run",
    "elect --preferred",
    "export orders --to target --dry-run",
    "copy orders payments --with-config --dry-run",
]


@pytest.mark.parametrize("value", ["x", "9" * 5_000, f"\n- {UNSAFE}", "\u0663"])
def test_values_of_properties_are_only_text(
    lying: MovingCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], value: str
) -> None:
    numbers = ("min.insync.replicas", "retention.ms", "retention.bytes", "metrics.port", "max.message.bytes")
    words = ("cleanup.policy", "delete.topic.enable", "metrics.host", "leader.replication.throttled.replicas")
    lying.place("payments", [0, 1])
    for kind, resource in ((2, "orders"), (2, "payments"), (4, "0"), (4, "1"), (4, "")):
        lying.overrides[kind, resource] = dict.fromkeys((*numbers, *words, f"x{value[:40]}\n../x"), value)
    failures = []
    for line in CONFIGURED_LINES:
        try:
            run(line, capfd)
        except AssertionError as error:
            failures.append(str(error)[:300])
    assert failures == []
    assert outside(tmp_path) == []


@for_rows("host", ["-oProxyCommand=x", "a;b", "a b", "$(x)", "a/../../b", "..", f"a{UNSAFE}", "a\0b"])
def test_the_host_of_a_broker_is_one_harmless_word_of_a_restart_command(host: str) -> None:
    with pytest.raises(UsageError, match="must not be part of a command"):
        command_for("restart {host} /etc/{host}.conf", Broker(1, host, 9092))
    with pytest.raises(UsageError, match="must not be part of a command"):
        command_for("restart {rack}", Broker(1, "a", 9092, f"x{host}/.."))
    assert command_for("restart {host}", Broker(1, "b-1.example", 9092)) == ["restart", "b-1.example"]
