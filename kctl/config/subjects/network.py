"""Listeners and limits of connections."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import COUNT_BY_ADDRESS, Dynamic, Importance, at_least, in_range, one_of, prop
from kctl.config.kinds import INT, INT_MAX, LIST, LONG, STRING

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
        "Without this property the broker listens on host.name and port. While the broker runs, listeners can be added "
        "and removed; the address of an open one cannot change.",
    )
    advertised_listeners: str | None = prop(
        "advertised.listeners",
        STRING,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        importance=Importance.HIGH,
        doc="Addresses that clients connect to, if they differ from listeners: a proxy, a container, a public name.",
    )
    listener_security_protocol_map: str = prop(
        "listener.security.protocol.map",
        STRING,
        default=",".join(f"{name}:{name}" for name in SECURITY_PROTOCOLS),
        dynamic=Dynamic.PER_BROKER,
        doc="Security protocol of each listener, as NAME:PROTOCOL pairs. That of an open listener cannot change.",
    )
    control_plane_listener_name: str | None = prop(
        "control.plane.listener.name",
        STRING,
        default=None,
        importance=Importance.HIGH,
        doc="Listener for the controller's requests to this broker.",
    )
    inter_broker_listener_name: str | None = prop(
        "inter.broker.listener.name",
        STRING,
        default=None,
        doc="Listener for other brokers; if not set, the one with the protocol security.inter.broker.protocol.",
    )
    security_inter_broker_protocol: str = prop(
        "security.inter.broker.protocol",
        STRING,
        one_of(*SECURITY_PROTOCOLS),
        default="PLAINTEXT",
        doc="Security protocol between brokers, if inter.broker.listener.name is not set.",
    )
    host_name: str = prop(
        "host.name",
        STRING,
        default="127.0.0.1",
        importance=Importance.HIGH,
        doc="Host to listen on when listeners is not set; empty, Apache Kafka's default, means every interface. "
        "The default here is the loopback address.",
    )
    port: int = prop(
        "port",
        INT,
        in_range(0, 65535),
        default=9092,
        importance=Importance.HIGH,
        doc="Port to listen on if listeners is not set; 0 for a free port.",
    )
    advertised_host_name: str | None = prop(
        "advertised.host.name",
        STRING,
        default=None,
        importance=Importance.HIGH,
        doc="Host that clients connect to, if neither advertised.listeners nor listeners is set.",
    )
    advertised_port: int | None = prop(
        "advertised.port",
        INT,
        in_range(0, 65535),
        default=None,
        importance=Importance.HIGH,
        doc="Port that clients connect to, if neither advertised.listeners nor listeners is set.",
    )

    socket_send_buffer_bytes: int = prop(
        "socket.send.buffer.bytes",
        INT,
        at_least(-1),
        default=102400,
        importance=Importance.HIGH,
        doc="SO_SNDBUF of accepted connections, -1 for the operating system's default; applied if it is set, "
        "since the operating system adapts the buffer otherwise.",
    )
    socket_receive_buffer_bytes: int = prop(
        "socket.receive.buffer.bytes",
        INT,
        at_least(-1),
        default=102400,
        importance=Importance.HIGH,
        doc="SO_RCVBUF of accepted connections, -1 for the operating system's default; applied if it is set, "
        "since the operating system adapts the buffer otherwise.",
    )
    socket_request_max_bytes: int = prop(
        "socket.request.max.bytes",
        INT,
        at_least(1),
        default=104857600,
        importance=Importance.HIGH,
        doc="Maximum size of a request; a larger one closes the connection.",
    )
    max_connections_per_ip: int = prop(
        "max.connections.per.ip",
        INT,
        at_least(0),
        default=INT_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Maximum connections per IP address; 0 allows only addresses in max.connections.per.ip.overrides.",
    )
    max_connections_per_ip_overrides: str = prop(
        "max.connections.per.ip.overrides",
        STRING,
        COUNT_BY_ADDRESS,
        default="",
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Exceptions from max.connections.per.ip, as address:count pairs; host names are resolved when it is set.",
    )
    max_connections: int = prop(
        "max.connections",
        INT,
        at_least(0),
        default=INT_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Maximum connections of the broker; listener.name.NAME.max.connections of one listener.",
    )
    max_connection_creation_rate: int = prop(
        "max.connection.creation.rate",
        INT,
        at_least(0),
        default=INT_MAX,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Maximum rate of new connections per second; listener.name.NAME.max.connection.creation.rate of one "
        "listener.",
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
        doc="Delay before a connection is closed after failed authentication.",
    )
    request_timeout_ms: int = prop(
        "request.timeout.ms",
        INT,
        at_least(1),
        default=30000,
        importance=Importance.HIGH,
        doc="Timeout of requests that write the markers of transactions.",
    )
    socket_connection_setup_timeout_ms: int = prop(
        "socket.connection.setup.timeout.ms",
        LONG,
        at_least(1),
        default=10000,
        doc="Timeout of the first attempt to connect to another broker.",
    )
    socket_connection_setup_timeout_max_ms: int = prop(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        at_least(1),
        default=30000,
        doc="Maximum timeout of an attempt to connect to another broker; the timeout doubles with each failed attempt.",
    )

    num_network_threads: int = prop(
        "num.network.threads",
        INT,
        at_least(1),
        default=3,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        unused="one event loop serves all connections; a machine with more cores runs more brokers",
        doc="Kafka's network threads; kctl uses one event loop.",
    )
    num_io_threads: int = prop(
        "num.io.threads",
        INT,
        at_least(1),
        default=8,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        unused="one event loop handles all requests; a machine with more cores runs more brokers",
        doc="Kafka's request handler threads; kctl uses one event loop.",
    )
    background_threads: int = prop(
        "background.threads",
        INT,
        at_least(1),
        default=10,
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.HIGH,
        unused="periodic work runs on the event loop, and what blocks in threads that need no number",
        doc="Threads for background tasks.",
    )
    queued_max_requests: int = prop(
        "queued.max.requests",
        INT,
        at_least(1),
        default=500,
        importance=Importance.HIGH,
        unused="a connection has one request in progress and its others wait in its own receive buffer, see "
        "queued.max.request.bytes",
        doc="Maximum number of queued requests before the broker stops reading from connections.",
    )
    queued_max_request_bytes: int = prop(
        "queued.max.request.bytes",
        LONG,
        default=-1,
        doc="Bytes of received requests above which the broker stops reading from connections; -1 for no limit.",
    )
    create_topic_policy_class_name: str | None = prop(
        "create.topic.policy.class.name",
        STRING,
        default=None,
        importance=Importance.LOW,
        doc="Name of a policy for the creation of topics, in the entry point group kctl.create_topic_policies; "
        "see docs/policies.md. Java classes cannot be loaded.",
    )
    alter_config_policy_class_name: str | None = prop(
        "alter.config.policy.class.name",
        STRING,
        default=None,
        importance=Importance.LOW,
        doc="Name of a policy for changes of configurations, in the entry point group kctl.alter_config_policies;"
        " see docs/policies.md. Java classes cannot be loaded.",
    )
    metric_reporters: tuple[str, ...] = prop(
        "metric.reporters",
        LIST,
        default=(),
        dynamic=Dynamic.CLUSTER_WIDE,
        importance=Importance.LOW,
        unused="kctl loads no Java classes; see metrics.port",
        doc="Java classes that publish metrics.",
    )
