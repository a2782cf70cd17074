"""Ids, ports, folders and racks of the brokers of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.errors import UsageError
from kctl.server.process.data_folder import DataFolder, process_folders
from kctl.server.process.machine.layout import MachineOptions, unexpected_data, with_zookeeper
from kctl.server.process.starting import StartOptions

ENSEMBLE = {"zookeeper.connect": "zk1:2181", "broker.id": "10"}


def machine(given: dict[str, str], count: int = 3, port_step: int = 1, folder: Path = Path("/data")) -> MachineOptions:
    return MachineOptions(StartOptions(DataFolder(folder), given, {}), count, port_step, "host-a")


def values(options: MachineOptions, name: str) -> list[str | None]:
    """The value of a property for each broker."""
    return [dict(with_zookeeper(process, "zk:2181")).get(name) for process in options.processes()]


def test_ids_ports_and_folders_count_up() -> None:
    options = machine({**ENSEMBLE, "listeners": "PLAINTEXT://:9092"})
    assert values(options, "broker.id") == ["10", "11", "12"]
    assert values(options, "listeners") == ["PLAINTEXT://:9092", "PLAINTEXT://:9093", "PLAINTEXT://:9094"]
    assert values(options, "log.dirs") == [f"/data/process-{index}/logs" for index in range(3)]
    assert values(options, "broker.rack") == ["host-a"] * 3
    assert [process.process for process in options.processes()] == [0, 1, 2]
    assert [process.examine().problems for process in options.processes()] == [()] * 3


def test_without_properties_the_brokers_are_those_of_one_development_machine() -> None:
    options = machine({}, count=2)
    assert values(options, "broker.id") == ["0", "1"]
    assert values(options, "listeners") == ["PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9093"]
    assert values(options, "offsets.topic.replication.factor") == ["1", "1"]
    assert not options.has_ensemble


def test_each_listener_and_its_advertised_port_move_by_the_step() -> None:
    given = {
        **ENSEMBLE,
        "listeners": "INSIDE://[::]:9092, OUTSIDE://:9093",
        "advertised.listeners": "INSIDE://kafka1:9092,OUTSIDE://example.com:443",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    options = machine(given, count=2, port_step=10)
    assert values(options, "listeners") == [given["listeners"], "INSIDE://[::]:9102, OUTSIDE://:9103"]
    assert values(options, "advertised.listeners")[1] == "INSIDE://kafka1:9102,OUTSIDE://example.com:453"
    with pytest.raises(UsageError, match=r"process 0 and process 1 would both have port 9093; choose another --port-s"):
        machine(given, count=2).processes()


def test_old_properties_of_ports_move_too() -> None:
    options = machine({**ENSEMBLE, "host.name": "a", "port": "9092", "advertised.port": "19092"}, count=2)
    assert values(options, "port") == ["9092", "9093"]
    assert values(options, "advertised.port") == ["19092", "19093"]
    assert values(options, "listeners") == [None, None]
    assert values(machine({**ENSEMBLE, "host.name": "a"}, count=2), "port") == ["9092", "9093"]


def test_port_0_stays_a_free_port() -> None:
    assert values(machine({"listeners": "PLAINTEXT://127.0.0.1:0"}), "listeners") == ["PLAINTEXT://127.0.0.1:0"] * 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"listeners": "PLAINTEXT://:65534"}, "process 2 would have port 65536; choose lower ports"),
        ({"metrics.port": "9094"}, "process 2 would both have port 9094; choose another --metrics-port"),
        ({"port": "65535"}, "process 1 would have port 65536"),
    ],
)
def test_impossible_ports_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        machine({**ENSEMBLE, **given}).processes()


def test_each_log_directory_has_a_folder_for_each_broker() -> None:
    options = machine({**ENSEMBLE, "log.dirs": "/a/kafka, /b/kafka"}, count=2)
    assert values(options, "log.dirs") == [
        "/a/kafka/process-0,/b/kafka/process-0",
        "/a/kafka/process-1,/b/kafka/process-1",
    ]


def test_given_rack_is_kept_and_generated_ids_too() -> None:
    options = machine({"zookeeper.connect": "zk1:2181", "broker.rack": "zone-1"}, count=2)
    assert values(options, "broker.rack") == ["zone-1"] * 2
    assert values(options, "broker.id") == [None, None]


def test_one_endpoint_for_metrics_reads_those_of_the_brokers_on_loopback() -> None:
    options = machine({"metrics.port": "9644", "metrics.host": "0.0.0.0"})
    assert options.metrics_address == ("0.0.0.0", 9644)
    assert values(options, "metrics.port") == ["0"] * 3
    assert values(options, "metrics.host") == ["127.0.0.1"] * 3
    assert values(machine({}), "metrics.port") == [None] * 3


def test_data_that_no_broker_would_serve_prevents_the_start(tmp_path: Path) -> None:
    root = DataFolder(tmp_path)
    assert unexpected_data(root, None, {}) is None
    assert unexpected_data(root, 2, {}) is None
    for index in (10, 9, 0):
        (tmp_path / f"process-{index}").mkdir()
    (tmp_path / "process-other").mkdir()
    assert [folder.path.name for folder in process_folders(root)] == ["process-0", "process-9", "process-10"]
    assert "start them with --processes 3" in str(unexpected_data(root, None, {}))
    assert "would leave some without a broker" in str(unexpected_data(root, 2, {}))
    assert unexpected_data(root, 3, {}) is None
    (tmp_path / "logs").mkdir()
    assert f"move it to {tmp_path}/process-0/logs" in str(unexpected_data(root, 3, {}))


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_data_of_a_single_broker_in_its_log_dirs_prevents_the_start(tmp_path: Path, name: str) -> None:
    root = DataFolder(tmp_path / "data")
    given = {name: f"{tmp_path}/a, {tmp_path}/b"}
    (tmp_path / "a" / "process-0").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    assert unexpected_data(root, 2, given) is None
    (tmp_path / "b" / "meta.properties").write_text("version=0\n")
    assert f"in it to {tmp_path}/b/process-0" in str(unexpected_data(root, 2, given))
    assert unexpected_data(root, None, given) is None
