"""Brokers and clusters for tests of other projects; deterministic simulation of time, network, disk and ZooKeeper.

Tests of other projects use `KafkaBroker` and `KafkaCluster` from here, or the fixtures of `pytest_plugin`
(docs/pytest-plugin.md).

Reading order: sim_process, sim_loop (asyncio under virtual time), sim_clock, sim_link and sim_transport (one
connection), sim_network (hosts, faults), sim_files, sim_zookeeper, sim_listening, sim_cluster (whole
brokers); brokers and pytest_plugin (for other projects).  Nothing else in kctl imports from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.testing.brokers.broker_process import BrokerFailed
    from kctl.testing.brokers.client_settings import sign_token
    from kctl.testing.brokers.container import KafkaContainer
    from kctl.testing.brokers.control import ControlFailed
    from kctl.testing.brokers.kafka import KafkaBroker, KafkaCluster
    from kctl.testing.brokers.seed import SeedError
    from kctl.testing.brokers.snapshot import Snapshot

__all__ = [
    "BrokerFailed",
    "ControlFailed",
    "KafkaBroker",
    "KafkaCluster",
    "KafkaContainer",
    "SeedError",
    "Snapshot",
    "sign_token",
]

_MODULES = {
    "ControlFailed": "brokers.control",
    "BrokerFailed": "brokers.broker_process",
    "KafkaBroker": "brokers.kafka",
    "KafkaCluster": "brokers.kafka",
    "KafkaContainer": "brokers.container",
    "SeedError": "brokers.seed",
    "sign_token": "brokers.client_settings",
    "Snapshot": "brokers.snapshot",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is used: pytest imports this package in every project with kctl installed."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
