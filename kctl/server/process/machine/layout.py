"""The options of each broker of one machine, derived from the options of the service.

Process K has broker.id + K, the ports + K times the port step, the data folder DIR/process-K, and process-K in each
directory of log.dirs.  All have the machine as broker.rack, unless it is set, so that no machine has two replicas of a
partition as long as there are as many machines as replicas.

Pure, except for `unexpected_data`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kctl.errors import UsageError
from kctl.output.quantities import PORT_MAX
from kctl.server.process.data_folder import DataFolder, process_folder, process_folders
from kctl.server.process.starting import DEFAULT_PORT, StartOptions
from kctl.storage.names import META_PROPERTIES

_PORT_OF_LISTENER = re.compile(r":([0-9]{1,5})(?=\s*(?:,|\Z))")
_NUMBER = re.compile(r"\s*[0-9]{1,9}\s*")
_LISTENERS = ("listeners", "advertised.listeners")
_LOG_DIRS = ("log.dirs", "log.dir")
_METRICS = "the endpoint for metrics"
_PORTS = ("port", "advertised.port")


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """The options of a service of `count` brokers."""

    service: StartOptions
    """As for a single broker; its folder is the root of the others."""
    count: int
    port_step: int
    machine: str
    """The default of broker.rack."""

    @property
    def has_ensemble(self) -> bool:
        """Whether the brokers use a ZooKeeper ensemble; otherwise the service has an embedded one."""
        return bool(self.service.given.get("zookeeper.connect", "").strip())

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the endpoint for all brokers; None without one."""
        config = self.service.examine().config
        return (config.metrics_host, config.metrics_port) if config.metrics_port >= 0 else None

    def processes(self) -> list[StartOptions]:
        """Return the options of each broker.  Raises UsageError if ports are equal or too large."""
        found = [self._of_process(index) for index in range(self.count)]
        _check_ports(found, self.metrics_address)
        return found

    def _of_process(self, index: int) -> StartOptions:
        given = self.service.given
        shift = index * self.port_step
        folder = process_folder(self.service.folder, index)
        properties = {**given, "broker.rack": given.get("broker.rack", "").strip() or self.machine}
        if "host.name" in given and not {"listeners", "port"} & given.keys():
            properties["port"] = str(DEFAULT_PORT)
        elif not {"listeners", "port"} & given.keys() and self.service.secure is None:
            properties["listeners"] = f"PLAINTEXT://127.0.0.1:{DEFAULT_PORT}"
        for name in _LISTENERS:
            if name in properties:
                properties[name] = _PORT_OF_LISTENER.sub(lambda found: f":{_moved(found[1], shift)}", properties[name])
        for name in _PORTS:
            if _NUMBER.fullmatch(properties.get(name, "")):
                properties[name] = _moved(properties[name], shift)
        for name in _LOG_DIRS:
            if paths := _paths(properties.get(name, "")):
                properties[name] = ",".join(str(Path(path) / folder.path.name) for path in paths)
        if not self.has_ensemble:
            # All brokers of the cluster stop together, so that there may be no controller to wait for.
            properties.setdefault("controlled.shutdown.retry.backoff.ms", "500")
        first_id = given.get("broker.id", "" if self.has_ensemble else "0")
        if _NUMBER.fullmatch(first_id):
            properties["broker.id"] = str(int(first_id) + index)
        if self.metrics_address is not None:
            # The endpoint of the service reads these.
            properties |= {"metrics.host": "127.0.0.1", "metrics.port": "0"}
        port = DEFAULT_PORT if self.service.port is None else self.service.port
        return replace(
            self.service,
            folder=folder,
            file_properties={},
            overrides=properties,
            embedded_zookeeper_port=None,
            port=int(_moved(str(port), shift)),
            process=index,
        )


def unexpected_data(root: DataFolder, count: int | None, given: Mapping[str, str]) -> str | None:
    """Return why a service of `count` brokers, or one broker for None, must not start in a folder with the given
    properties; None if it may.

    Data that is not served looks like data that is lost.
    """
    existing = process_folders(root)
    if count is None:
        if not existing:
            return None
        return f"{root.path} has the data of {len(existing)} brokers: start them with --processes {len(existing)}"
    first = process_folder(root, 0).path.name
    if root.logs.exists():
        return f"{root.logs} has the data of a single broker: move it to {root.path / first / root.logs.name}"
    for log_dir in (Path(path) for name in _LOG_DIRS for path in _paths(given.get(name, ""))):
        if (log_dir / META_PROPERTIES).exists():
            return f"{log_dir} has the data of a single broker: move all files and folders in it to {log_dir / first}"
    if len(existing) > count:
        return (
            f"{root.path} has the data of {len(existing)} brokers: --processes {count} would leave some without a "
            f"broker; move their partitions with 'kctl reassign plan', then delete {existing[-1].path}"
        )
    return None


def _paths(text: str) -> list[str]:
    return [path.strip() for path in text.split(",") if path.strip()]


def _moved(port: str, shift: int) -> str:
    """Port 0, any free one, stays."""
    return str(int(port) + shift) if int(port) else "0"


def _check_ports(processes: list[StartOptions], metrics: tuple[str, int] | None) -> None:
    owners: dict[int, str] = {}
    for owner, port in _ports(processes, metrics):
        if port > PORT_MAX:
            raise UsageError(f"--processes {len(processes)}: {owner} would have port {port}; choose lower ports")
        other = owners.setdefault(port, owner)
        if other != owner:
            option = "--metrics-port" if other == _METRICS else "--port-step"
            both = f"{other} and {owner} would both have port {port}"
            raise UsageError(f"--processes {len(processes)}: {both}; choose another {option}")


def _ports(processes: list[StartOptions], metrics: tuple[str, int] | None) -> Iterator[tuple[str, int]]:
    if metrics is not None and metrics[1]:
        yield _METRICS, metrics[1]
    for index, options in enumerate(processes):
        properties = options.properties()
        text = properties.get("listeners", f":{properties.get('port', '')}")
        for port in map(int, _PORT_OF_LISTENER.findall(text)):
            if port:
                yield f"process {index}", port


def with_zookeeper(options: StartOptions, connect: str) -> Mapping[str, str]:
    """Return all properties of a broker that uses the ZooKeeper at `connect`."""
    return {**options.properties(), "zookeeper.connect": connect}
