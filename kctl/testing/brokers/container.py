"""A class with the methods of testcontainers' KafkaContainer, which starts a broker of kctl and no container.

    from kctl.testing import KafkaContainer  # was: from testcontainers.kafka import KafkaContainer

    with KafkaContainer() as kafka:
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})

The variables of `with_env` are read as by Kafka's images.  What concerns images and networks of containers has no
effect.
"""

from __future__ import annotations

from typing import Any, Self

from kctl.commands.broker.environment import properties_of_environment
from kctl.testing.brokers.kafka import KafkaBroker

_OF_THE_BROKER = frozenset(
    {
        *("listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name"),
        *("broker.id", "node.id", "zookeeper.connect", "log.dir", "log.dirs"),
    }
)
"""Properties that containers set for themselves, and a broker of a test has of its own."""


class KafkaContainer:
    """See the module's docstring; testcontainers 4.14."""

    def __init__(self, image: str = "", port: int = 9093, **_: Any) -> None:
        """Take the port that `get_exposed_port` is asked for; the image and other arguments have no effect."""
        self.image = image
        self.port = port
        self.env: dict[str, str] = {}
        self.broker: KafkaBroker | None = None
        """The broker, with all that brokers for tests have; None before `start`."""

    def with_env(self, key: str, value: str) -> Self:
        """Set a variable such as KAFKA_NUM_PARTITIONS."""
        self.env[key] = value
        return self

    def with_envs(self, **variables: str) -> Self:
        """Set several variables."""
        self.env.update(variables)
        return self

    def with_kraft(self, *_: object, **__: object) -> Self:
        """Do nothing: clients of brokers with ZooKeeper and with KRaft see the same."""
        return self

    with_cluster_id = with_name = with_network = with_network_aliases = with_kwargs = with_kraft
    with_exposed_ports = with_bind_ports = with_volume_mapping = with_command = waiting_for = with_kraft

    def start(self, *_: object, **__: object) -> Self:
        """Start the broker.  Raises BrokerFailed."""
        properties = {
            name: value
            for name, value in properties_of_environment(self.env).properties.items()
            if name not in _OF_THE_BROKER
        }
        broker = KafkaBroker(properties)
        broker.__enter__()
        self.broker = broker
        return self

    def stop(self, *_: object, **__: object) -> None:
        """Stop the broker and remove its data."""
        broker, self.broker = self.broker, None
        if broker is not None:
            broker.close()

    def get_bootstrap_server(self) -> str:
        """Return HOST:PORT for clients."""
        return self._started().bootstrap_servers

    def get_container_host_ip(self) -> str:
        """Return the host of the broker."""
        return self._started().host

    def get_exposed_port(self, port: int) -> int:
        """Return the port of the broker for the port of the container.  Raises ValueError for another one."""
        if int(port) != self.port:
            raise ValueError(f"port {port} is not exposed, only {self.port}")
        return self._started().port

    def get_logs(self) -> tuple[bytes, bytes]:
        """Return the output of the broker, and nothing as that on standard error."""
        return self._started().output.encode(), b""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> KafkaBroker:
        if self.broker is None:
            raise RuntimeError("the broker has not been started: call start() or use a with statement")
        return self.broker
