"""pytest plugin with Kafka-compatible brokers as fixtures.

    def test_something(kafka_broker):
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})

pytest imports this module in every project with kctl installed, so kctl is imported only when a fixture is used.  See
docs/pytest-plugin.md.
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
    """Add kafka_broker_properties to the configuration file and --kafka-broker-property to the command line."""
    parser.addini(_INI, "properties of the brokers that kctl starts, one name=value per line", type="linelist")
    parser.getgroup("kctl").addoption(
        _OPTION,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a property of the brokers that kctl starts; overrides {_INI}, repeatable",
    )


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Start a Kafka-compatible broker for the whole session, shared by all tests; use different topics in each test.

    Has bootstrap_servers, data_dir, output, stop(), kill(), start() and restart().  It stops with pytest, also if
    that is killed.
    """
    from kctl.testing.broker_process import BrokerProcess  # noqa: PLC0415 - only who uses it pays for it

    broker = BrokerProcess(tmp_path_factory.mktemp("kafka-broker"), _properties(pytestconfig))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def kafka_secure_broker(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Start the same with TLS and SCRAM: clients need its client_properties, or librdkafka_properties."""
    from kctl.testing.broker_process import BrokerProcess  # noqa: PLC0415

    broker = BrokerProcess(tmp_path_factory.mktemp("kafka-secure-broker"), _properties(pytestconfig), secure=True)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def kafka_broker_factory(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """Start brokers for one test: `kafka_broker_factory({"num.partitions": "3"})`; they stop at its end.

    `kafka_broker_factory(secure=True)` starts one with TLS and SCRAM, whose `client_properties` clients need.
    """
    from kctl.testing.broker_process import BrokerProcess  # noqa: PLC0415

    brokers: list[BrokerProcess] = []

    def start(
        properties: Mapping[str, str] | None = None, *, port: int | None = None, secure: bool = False
    ) -> BrokerProcess:
        given = {**_properties(pytestconfig), **(properties or {})}
        broker = BrokerProcess(tmp_path_factory.mktemp("kafka-broker"), given, port=port, secure=secure)
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.stop()


def _properties(config: pytest.Config) -> dict[str, str]:
    """Parse properties.  Raises UsageError if one is not name=value."""
    properties = {}
    for line in [*config.getini(_INI), *config.getoption(_OPTION)]:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"{line!r} is not a property: write name=value")
        properties[name.strip()] = value.strip()
    return properties
