"""Names with paths outside the data folder, from every source of names."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl.errors import ApiError, CorruptLog, ErrorCode
from kctl.model import TopicPartition
from kctl.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kctl.protocol.apis.stop_replica import StopReplicaResponse
from kctl.protocol.apis.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataResponse
from kctl.storage.files import ConfinedFiles, Files, PathOutsideLogDirectories, RealFiles
from kctl.storage.log_manager import LogManager
from kctl.storage.names import parse_log_directory_name
from kctl.storage.state.checkpoints import parse_offsets
from kctl.testing.sim_clock import ManualClock
from kctl.testing.sim_files import SimFiles
from kctl.zookeeper import znodes
from tests.hostile.conftest import Impostor
from tests.hostile.control_requests import (
    LEADER_AND_ISR_VERSION,
    STOP_REPLICA_VERSION,
    UPDATE_METADATA_VERSION,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from tests.peers.kctl_broker import KctlBroker
from tests.rows import for_rows

INVALID_TOPIC = ErrorCode.INVALID_TOPIC_EXCEPTION
BAD_NAMES = ["../../victim", "..", ".", "/tmp/victim", "a/../../victim", "a/b", "x\0y", "", "a" * 250, "straße"]
BAD_PARTITIONS = [-1, -(2**31)]
BAD_DIRECTORIES = [
    "..-0",
    ".-0",
    "orders-00",
    "orders-2147483648",
    "orders-99999999999999999999",
    "or ders-0",
    f"..-0.{'0' * 32}-delete",
    f"..-0.{'0' * 32}-future",
    f"{'a' * 250}-0.{'0' * 32}-future",
]


@pytest.fixture
def victim(controlled: KctlBroker) -> Path:
    """A log's directory beside the broker's data folder."""
    directory = controlled.data_dir.parent / "victim-0"
    directory.mkdir(exist_ok=True)
    (directory / "precious").write_text("do not touch")
    return directory


def is_untouched(directory: Path) -> bool:
    return [path.name for path in directory.iterdir()] == ["precious"]


def claims(impostor: Impostor) -> dict[str, int]:
    return {
        "controller": impostor.controller_id,
        "epoch": impostor.controller_epoch,
        "broker_epoch": impostor.broker_epoch,
    }


@for_rows("topic", BAD_NAMES)
def test_leader_and_isr_with_an_impossible_topic_is_refused(impostor: Impostor, topic: str) -> None:
    request = leader_and_isr(topic, 0, **claims(impostor))
    response = impostor.attacker.call(request, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION)
    assert [error.error_code for error in response.partition_errors] == [INVALID_TOPIC]


@pytest.mark.parametrize("partition", BAD_PARTITIONS)
def test_leader_and_isr_with_an_impossible_partition_is_refused(impostor: Impostor, partition: int) -> None:
    request = leader_and_isr("orders", partition, **claims(impostor))
    response = impostor.attacker.call(request, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION)
    assert [error.error_code for error in response.partition_errors] == [INVALID_TOPIC]


def test_leader_and_isr_with_a_path_in_the_topic_name_touches_no_file_outside(impostor: Impostor, victim: Path) -> None:
    request = leader_and_isr("../../victim", 0, **claims(impostor))
    impostor.attacker.call(request, LeaderAndIsrResponse, LEADER_AND_ISR_VERSION)
    stops = stop_replica("../../victim", 0, **claims(impostor))
    response = impostor.attacker.call(stops, StopReplicaResponse, STOP_REPLICA_VERSION)
    assert [error.error_code for error in response.partition_errors] == [INVALID_TOPIC]
    assert is_untouched(victim)
    assert not list(impostor.broker.data_dir.parent.glob("*-delete"))
    assert "Traceback" not in impostor.broker.log_text


@for_rows("topic", BAD_NAMES)
def test_update_metadata_with_an_impossible_topic_changes_nothing(impostor: Impostor, topic: str) -> None:
    host, _, port = impostor.broker.bootstrap.partition(":")
    endpoint = UpdateMetadataEndpoint(port=int(port), host=host, listener="PLAINTEXT", security_protocol=0)
    brokers = [UpdateMetadataBroker(id=impostor.broker_id, endpoints=[endpoint])]
    request = update_metadata(topic, 0, brokers=brokers, **claims(impostor))
    response = impostor.attacker.call(request, UpdateMetadataResponse, UPDATE_METADATA_VERSION)
    assert response.error_code == ErrorCode.NONE
    known = impostor.attacker.call(MetadataRequest(topics=None), MetadataResponse, 1)
    assert topic not in {topic.name for topic in known.topics}


@for_rows("name", BAD_NAMES)
def test_no_log_is_created_for_an_impossible_topic(name: str) -> None:
    logs = LogManager(["/data"], files=SimFiles(), clock=ManualClock(), random=random.Random(1))
    logs.load()
    with pytest.raises(ApiError) as refused:
        logs.get_or_create(TopicPartition(name, 0))
    assert refused.value.code is INVALID_TOPIC


@for_rows("name", BAD_DIRECTORIES)
def test_a_directory_with_an_impossible_name_is_no_log(name: str) -> None:
    assert parse_log_directory_name(name) is None


@pytest.mark.parametrize("line", ["../../victim 0 5", ".. 0 5", "orders -1 5", "orders 2147483648 5"])
def test_a_checkpoint_with_an_impossible_partition_is_corrupt(line: str) -> None:
    with pytest.raises(CorruptLog):
        parse_offsets(f"0\n1\n{line}\n".encode(), "checkpoint")


@for_rows("topic", BAD_NAMES)
def test_a_znode_that_names_an_impossible_topic_is_refused(topic: str) -> None:
    partition = {"topic": topic, "partition": 0, "replicas": [1]}
    data = json.dumps({"version": 1, "partitions": [partition]}).encode()
    with pytest.raises(ValueError, match="/admin"):
        znodes.decode_reassignment("/admin/reassign_partitions", data)
    with pytest.raises(ValueError, match="/admin"):
        znodes.decode_partitions("/admin/preferred_replica_election", data)


@for_rows(
    "partitions",
    ['{"-1": [1]}', '{"2147483648": [1]}', '{"0": [-1]}', '{"0": [2147483648]}', '{"0": [1e999]}', '{"0": ["/"]}'],
)
def test_a_topic_znode_with_impossible_partitions_or_replicas_is_refused(partitions: str) -> None:
    with pytest.raises(ValueError, match="/brokers/topics/t"):
        znodes.decode_topic("/brokers/topics/t", b'{"version":1,"partitions":%s}' % partitions.encode())


def test_a_deeply_nested_znode_is_refused() -> None:
    with pytest.raises(ValueError, match="/brokers/topics/t"):
        znodes.decode_topic("/brokers/topics/t", b"[" * 200_000)


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "real":
        return RealFiles(), str(tmp_path)
    return SimFiles(), "/tmp"


OUTSIDE = [
    "{base}/other",
    "{base}",
    "{base}/logs/../other",
    "{base}/logs-2/x",
    "{base}/logs/..",
    "/etc/passwd",
    "logs/x",
]


@for_rows("path", OUTSIDE)
def test_the_file_port_refuses_every_operation_outside_of_the_log_directories(
    disk: tuple[Files, str], path: str
) -> None:
    real, base = disk
    files = ConfinedFiles(real, [f"{base}/logs"])
    files.make_directory(f"{base}/logs")
    files.open(f"{base}/logs/inside", create=True).close()
    outside = path.format(base=base)
    attempts: list[Callable[[], object]] = [
        lambda: files.open(outside, create=True),
        lambda: files.list(outside),
        lambda: files.exists(outside),
        lambda: files.size(outside),
        lambda: files.modified_ms(outside),
        lambda: files.set_modified_ms(outside, 0),
        lambda: files.read(outside),
        lambda: files.write_atomically(outside, b""),
        lambda: files.make_directory(outside),
        lambda: files.rename(f"{base}/logs/inside", outside),
        lambda: files.rename(outside, f"{base}/logs/outside"),
        lambda: files.remove(outside),
        lambda: files.remove_tree(outside),
        lambda: files.sync_directory(outside),
        lambda: files.lock(outside),
    ]
    for attempt in attempts:
        with pytest.raises(PathOutsideLogDirectories):
            attempt()
    assert [entry.name for entry in files.list(f"{base}/logs")] == ["inside"]
