"""Where clients and brokers reach this broker, and what a connection may do."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, prop
from kctl.config.kinds import INT, INT_MAX, LIST, LONG, STRING
from kctl.config.rules import at_least, in_range, one_of

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class NetworkProperties:
    """Listeners, connections and the threads that Kafka serves them with."""

    __slots__ = ()

    listeners: str | None = prop(
        "listeners",
        STRING,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        importance=Importance.HIGH,
        doc="Addresses to listen on: NAME://host:port, separated by commas. An empty host means every interface. "
        "Without this property the broker listens on host.name and port.",
    )
    advertised_listeners: str | None = prop(
        "advertised.listeners",
        STRING,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        importance=Importance.HIGH,
        doc="Addresses told to clients, when they differ from listeners: a proxy, a container, a public name.",
    )
    listener_security_protocol_map: str = prop(
        "listener.security.protocol.map",
        STRING,
        default=",".join(f"{name}:{name}" for name in SECURITY_PROTOCOLS),
        dynamic=Dynamic.PER_BROKER,
        doc="Which security protocol each listener name speaks, as NAME:PROTOCOL pairs.",
    )
    control_plane_listener_name: str | None = prop(
        "control.plane.listener.name",
        STRING,
        default=None,
        importance=Importance.HIGH,
        doc="Listener that only the controller uses to talk to this broker.",
    )
    inter_broker_listener_name: str | None = prop(
        "inter.broker.listener.name",
        STRING,
        default=None,
        doc="Listener that other brokers use. Without it, the one that speaks security.inter.broker.protocol.",
    )
    security_inter_broker_protocol: str = prop(
        "security.inter.broker.protocol",
        STRING,
        one_of(*SECURITY_PROTOCOLS),
        default="PLAINTEXT",
        doc="Security protocol among brokers, when inter.broker.listener.name does not decide it.",
    )
    host_name: str = prop(
        "host.name",
        STRING,
        default="127.0.0.1",
        importance=Importance.HIGH,
        doc="Host to listen on when listeners is not set; empty, Apache Kafka's default, means every interface. "
        "Here nothing listens beyond loopback unless told to.",
    )
    port: int = prop(
        "port",
        INT,
        in_range(0, 65535),
        default=9092,
        importance=Importance.HIGH,
        doc="Port to listen on when listeners is not set; 0 takes a free one.",
    )
    advertised_host_name: str | None = prop(
        "advertised.host.name",
        STRING,
        default=None,
        importance=Importance.HIGH,
        doc="Host told to clients when neither advertised.listeners nor listeners is set.",
    )
    advertised_port: int | None = prop(
        "advertised.port",
        INT,
        in_range(0, 65535),
        default=None,
        importance=Importance.HIGH,
        doc="Port told to clients when neither advertised.listeners nor listeners is set.",
    )

    socket_send_buffer_bytes: int = prop(
        "socket.send.buffer.bytes",
        INT,
        at_least(-1),
        default=102400,
        importance=Importance.HIGH,
        inert=True,
        doc="SO_SNDBUF of connections; -1 leaves the operating system's choice.",
    )
    socket_receive_buffer_bytes: int = prop(
        "socket.receive.buffer.bytes",
        INT,
        at_least(-1),
        default=102400,
        importance=Importance.HIGH,
        inert=True,
        doc="SO_RCVBUF of connections; -1 leaves the operating system's choice.",
    )
    socket_request_max_bytes: int = prop(
        "socket.request.max.bytes",
        INT,
        at_least(1),
        default=104857600,
        importance=Importance.HIGH,
        doc="Size of the largest request; a larger one closes its connection.",
    )
    max_connections_per_ip: int = prop(
        "max.connections.per.ip",
        INT,
        at_least(0),
        default=INT_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        inert=True,
        doc="Connections that one address may hold; 0 admits only the addresses in max.connections.per.ip.overrides.",
    )
    max_connections_per_ip_overrides: str = prop(
        "max.connections.per.ip.overrides",
        STRING,
        default="",
        dynamic=Dynamic.CLUSTER_WIDE,
        inert=True,
        doc="Exceptions from max.connections.per.ip, as host:count pairs.",
    )
    max_connections: int = prop(
        "max.connections",
        INT,
        at_least(0),
        default=INT_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        inert=True,
        doc="Connections that the broker holds at a time.",
    )
    max_connection_creation_rate: int = prop(
        "max.connection.creation.rate",
        INT,
        at_least(0),
        default=INT_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        inert=True,
        doc="New connections per second.",
    )
    connections_max_idle_ms: int = prop(
        "connections.max.idle.ms", LONG, default=600000, doc="Idle time after which a connection is closed."
    )
    connection_failed_authentication_delay_ms: int = prop(
        "connection.failed.authentication.delay.ms",
        INT,
        at_least(0),
        default=100,
        importance=Importance.LOW,
        inert=True,
        doc="Time before a connection that failed to authenticate is closed, against guessing.",
    )
    request_timeout_ms: int = prop(
        "request.timeout.ms",
        INT,
        at_least(1),
        default=30000,
        importance=Importance.HIGH,
        inert=True,
        doc="Time that a request of this broker to another one may take.",
    )
    socket_connection_setup_timeout_ms: int = prop(
        "socket.connection.setup.timeout.ms",
        LONG,
        at_least(1),
        default=10000,
        inert=True,
        doc="Time to establish a connection to another broker, at the first try.",
    )
    socket_connection_setup_timeout_max_ms: int = prop(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        at_least(1),
        default=30000,
        inert=True,
        doc="Upper bound of the time to establish a connection, which doubles from try to try.",
    )

    num_network_threads: int = prop(
        "num.network.threads",
        INT,
        at_least(1),
        default=3,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        inert=True,
        doc="Threads that Kafka reads and writes connections with; here one event loop does.",
    )
    num_io_threads: int = prop(
        "num.io.threads",
        INT,
        at_least(1),
        default=8,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        inert=True,
        doc="Threads that Kafka handles requests with; here one event loop does.",
    )
    background_threads: int = prop(
        "background.threads",
        INT,
        at_least(1),
        default=10,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        inert=True,
        doc="Threads for work that no request waits for.",
    )
    queued_max_requests: int = prop(
        "queued.max.requests",
        INT,
        at_least(1),
        default=500,
        importance=Importance.HIGH,
        inert=True,
        doc="Requests that may wait to be handled before connections are no longer read.",
    )
    queued_max_request_bytes: int = prop(
        "queued.max.request.bytes",
        LONG,
        default=-1,
        inert=True,
        doc="Bytes of the requests that may wait to be handled; -1 sets no bound.",
    )
    create_topic_policy_class_name: str | None = prop(
        "create.topic.policy.class.name",
        STRING,
        default=None,
        importance=Importance.LOW,
        inert=True,
        doc="Java class that judges new topics; without meaning here.",
    )
    alter_config_policy_class_name: str | None = prop(
        "alter.config.policy.class.name",
        STRING,
        default=None,
        importance=Importance.LOW,
        inert=True,
        doc="Java class that judges configuration changes; without meaning here.",
    )
    metric_reporters: tuple[str, ...] = prop(
        "metric.reporters",
        LIST,
        default=(),
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.LOW,
        inert=True,
        doc="Java classes that publish metrics; without meaning here.",
    )
