"""pytest plugin with Kafka-compatible brokers as fixtures.

    def test_something(kafka_broker):
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})

pytest imports this module in every project with kctl installed, so kctl is imported only when a fixture is used.  See
docs/pytest-plugin.md.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import pytest

if TYPE_CHECKING:
    from kctl.testing.brokers.broker_process import BrokerOptions, BrokerProcess
    from kctl.testing.brokers.kafka import KafkaCluster
    from kctl.testing.brokers.warm_process import WarmProcess

    BrokerFactory = Callable[..., BrokerProcess]

_INI = "kafka_broker_properties"
_SCOPE = "kafka_broker_scope"
_CONTROL = "kafka_broker_control"
_SECURITY = "kafka_broker_security"
_OPTION = "--kafka-broker-property"
_TOPIC = "kafka_topic"
_TOPIC_NAME_CHARACTERS_MAX = 200
_WARM: pytest.StashKey[WarmProcess] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add kafka_broker_properties to the configuration file and --kafka-broker-property to the command line."""
    parser.addini(_INI, "properties of the brokers that kctl starts, one name=value per line", type="linelist")
    parser.addini(
        _SCOPE, "how long kafka_broker and kafka_cluster live: session, module or function", default="session"
    )
    parser.addini(_CONTROL, "whether kafka_broker and kafka_cluster have faults on demand", type="bool", default=False)
    parser.addini(
        _SECURITY, "security of a second listener of kafka_broker and kafka_cluster, such as scram-tls", default=""
    )
    parser.getgroup("kctl").addoption(
        _OPTION,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a property of the brokers that kctl starts; overrides {_INI}, repeatable",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of kafka_topic."""
    config.addinivalue_line(
        "markers", f"{_TOPIC}(partitions=1, configs=None): the topic that the fixture {_TOPIC} creates for a test"
    )


_LOG_LINES_MAX = 200
_NAMES = ("kctl.testing.brokers.broker_process", "kctl.testing.brokers.kafka")
_LOGGED: pytest.StashKey[dict[str, int]] = pytest.StashKey()
"""The bytes that the brokers of a test had logged when it began, by their folders."""


def _brokers_of(item: pytest.Item) -> list[BrokerProcess]:
    """Return the brokers among the fixtures of a test; imports nothing."""
    process, kafka = (sys.modules.get(name) for name in _NAMES)
    brokers: list[BrokerProcess] = []
    for value in getattr(item, "funcargs", {}).values():
        if process is not None and isinstance(value, process.BrokerProcess):
            brokers.append(value)
        elif kafka is not None and isinstance(value, kafka.KafkaCluster):
            brokers.extend(value.brokers)
    return list(dict.fromkeys(brokers))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Note what the brokers of the test have logged before it."""
    item.stash[_LOGGED] = {str(broker.data_dir): broker.output_bytes for broker in _brokers_of(item)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the topics and groups of the brokers, and what they have logged, to the report of a test that has failed."""
    report = yield
    if report.failed and call.when == "call":
        for broker in _brokers_of(item):
            name = f"Kafka broker {broker.bootstrap_servers}"
            try:
                state = broker.describe() if broker.is_running else "it does not run"
            except Exception as error:  # The report of the test matters more.
                state = f"it does not respond: {error}"
            report.sections.append((f"{name}, topics and groups", state or "none"))
            lines = broker.output_since(item.stash[_LOGGED].get(str(broker.data_dir), 0)).splitlines()
            report.sections.append((f"{name}, log of this test", "\n".join(lines[-_LOG_LINES_MAX:])))
    return report


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    """Return the scope of brokers.  Raises UsageError."""
    scope = config.getini(_SCOPE)
    if scope not in {"session", "module", "function"}:
        raise pytest.UsageError(f"{_SCOPE}={scope}: {fixture_name} has the scopes session, module and function")
    return scope


@pytest.fixture(scope=_scope)
def kafka_broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Start a Kafka-compatible broker, by default for the whole session; use different topics in each test.

    Has bootstrap_servers, data_dir, output, stop(), kill(), start() and restart().  It stops with pytest, also if
    that is killed.
    """
    from kctl.testing.brokers.broker_process import BrokerProcess  # noqa: PLC0415 - only who uses it pays for it

    warm = None if _scope("kafka_broker", pytestconfig) == "session" else _warm(pytestconfig)
    broker = BrokerProcess(
        tmp_path_factory.mktemp("kafka-broker"),
        _properties(pytestconfig),
        warm=warm,
        control=pytestconfig.getini(_CONTROL),
        **_security(pytestconfig),
    )
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def kafka_secure_broker(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Start the same with TLS and SCRAM: clients need its client_properties, or librdkafka_properties."""
    from kctl.testing.brokers.broker_process import BrokerProcess  # noqa: PLC0415

    broker = BrokerProcess(tmp_path_factory.mktemp("kafka-secure-broker"), _properties(pytestconfig), secure=True)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope=_scope)
def kafka_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Start three brokers with one ZooKeeper, by default for the whole session.

    Has bootstrap_servers, brokers (each as kafka_broker), move_leader(), stop() and start().
    """
    from kctl.testing.brokers.kafka import KafkaCluster  # noqa: PLC0415

    with KafkaCluster(
        properties=_properties(pytestconfig),
        data_dir=tmp_path_factory.mktemp("kafka-cluster"),
        control=pytestconfig.getini(_CONTROL),
        **_security(pytestconfig),
    ) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: BrokerProcess) -> str:
    """Create an empty topic for one test on kafka_broker, and return its name.

    `@pytest.mark.kafka_topic(partitions=3, configs={"cleanup.policy": "compact"})` sets its properties.
    """
    from kctl.admin import AdminClient, AdminConfig, NewTopic  # noqa: PLC0415

    marker = request.node.get_closest_marker(_TOPIC)
    wanted: dict[str, Any] = {"partitions": 1, "configs": None, **(marker.kwargs if marker else {})}
    if (marker is not None and marker.args) or len(wanted) > 2:
        raise pytest.UsageError(f"the marker {_TOPIC} takes partitions= and configs= only")
    # Topic names have letters, digits, '.', '_' and '-'; the number makes those of repeated tests different.
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:_TOPIC_NAME_CHARACTERS_MAX].strip("-")
    name = f"{words}-{uuid.uuid4().hex[:8]}"
    topic = NewTopic(name, partitions=wanted["partitions"], configs=wanted["configs"] or {})
    with AdminClient(AdminConfig(bootstrap_servers=kafka_broker.bootstrap_servers)) as admin:
        admin.create_topics([topic]).require()
    return name


@pytest.fixture
def kafka_broker_factory(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """Start brokers for one test: `kafka_broker_factory({"num.partitions": "3"})`; they stop at its end.

    `kafka_broker_factory(secure=True)` starts one with TLS and SCRAM, whose `client_properties` clients need;
    `kafka_broker_factory(control=True)` one with faults on demand (docs/testing/faults.md).  The other arguments are
    those of `kctl.testing.KafkaBroker`, such as `security="scram"` (docs/testing/security.md).
    """
    from kctl.testing.brokers.broker_process import BrokerProcess  # noqa: PLC0415

    brokers: list[BrokerProcess] = []

    def start(properties: Mapping[str, str] | None = None, **options: Unpack[BrokerOptions]) -> BrokerProcess:
        given = {**_properties(pytestconfig), **(properties or {})}
        options.setdefault("warm", _warm(pytestconfig))
        broker = BrokerProcess(tmp_path_factory.mktemp("kafka-broker"), given, **options)
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.stop()


def _warm(config: pytest.Config) -> WarmProcess:
    """Return the process from which brokers of single tests are forked; it ends with pytest."""
    from kctl.testing.brokers.warm_process import WarmProcess  # noqa: PLC0415

    if _WARM not in config.stash:
        config.stash[_WARM] = WarmProcess()
        config.add_cleanup(config.stash[_WARM].close)
    return config.stash[_WARM]


def _security(config: pytest.Config) -> dict[str, Any]:
    """Return the argument of brokers; it refuses other names than those of docs/testing/security.md."""
    name = config.getini(_SECURITY)
    return {"security": name} if name else {}


def _properties(config: pytest.Config) -> dict[str, str]:
    """Parse properties.  Raises UsageError if one is not name=value."""
    properties = {}
    for line in [*config.getini(_INI), *config.getoption(_OPTION)]:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise pytest.UsageError(f"{line!r} is not a property: write name=value")
        properties[name.strip()] = value.strip()
    return properties
