"""The pytest plugin that kctl installs: real Kafka-compatible brokers as fixtures, in any project's tests.

    def test_something(kafka_broker):
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})

Imported by pytest in every project that has kctl installed, so nothing is imported here before a fixture is used.
docs/pytest-plugin.md is the guide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kctl.testing.broker_process import BrokerProcess

    BrokerFactory = Callable[..., BrokerProcess]

_INI = "kafka_broker_properties"
_OPTION = "--kafka-broker-property"


def pytest_addoption(parser: pytest.Parser) -> None:
    """kafka_broker_properties in the configuration file, --kafka-broker-property on the command line."""
    parser.addini(_INI, "properties of the brokers that kctl starts, one name=value per line", type="linelist")
    parser.getgroup("kctl").addoption(
        _OPTION,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a property of the brokers that kctl starts; wins over {_INI}, may repeat",
    )


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A Kafka-compatible broker that serves for the whole test session; tests share it, so let them share no topic.

    Has bootstrap_servers, data_dir, output, stop(), kill(), start() and restart().
    """
    from kctl.testing.broker_process import BrokerProcess  # noqa: PLC0415 - only who uses it pays for it

    broker = BrokerProcess(tmp_path_factory.mktemp("kafka-broker"), _properties(pytestconfig))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def kafka_broker_factory(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """Starts brokers of a test's own: `kafka_broker_factory({"num.partitions": "3"})`; all end with the test."""
    from kctl.testing.broker_process import BrokerProcess  # noqa: PLC0415

    brokers: list[BrokerProcess] = []

    def start(properties: Mapping[str, str] | None = None, *, port: int = 0) -> BrokerProcess:
        given = {**_properties(pytestconfig), **(properties or {})}
        broker = BrokerProcess(tmp_path_factory.mktemp("kafka-broker"), given, port=port)
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.stop()


def _properties(config: pytest.Config) -> dict[str, str]:
    """Raises UsageError for what is no name=value."""
    properties = {}
    for line in [*config.getini(_INI), *config.getoption(_OPTION)]:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"{line!r} is not a property: write name=value")
        properties[name.strip()] = value.strip()
    return properties
