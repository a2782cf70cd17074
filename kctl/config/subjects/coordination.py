"""Who the broker is and how it reaches ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Importance, prop
from kctl.config.kinds import BOOLEAN, INT, LIST, PASSWORD, STRING
from kctl.config.rules import at_least, known_version
from kctl.config.subjects.versions import LATEST_VERSION, VERSION_NAMES


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class CoordinationProperties:
    """Identity, protocol version and ZooKeeper."""

    __slots__ = ()

    broker_id: int = prop(
        "broker.id",
        INT,
        default=-1,
        importance=Importance.HIGH,
        doc="Number of this broker, unique in the cluster. -1 asks for a free one above reserved.broker.max.id.",
    )
    broker_id_generation_enable: bool = prop(
        "broker.id.generation.enable", BOOLEAN, default=True, doc="Whether ZooKeeper may choose the broker's id."
    )
    reserved_broker_max_id: int = prop(
        "reserved.broker.max.id",
        INT,
        at_least(0),
        default=1000,
        doc="The highest id that a configuration may choose itself.",
    )
    broker_rack: str | None = prop(
        "broker.rack",
        STRING,
        default=None,
        doc="Where the broker stands; replicas of a partition are spread over racks.",
    )
    inter_broker_protocol_version: str = prop(
        "inter.broker.protocol.version",
        STRING,
        known_version(VERSION_NAMES),
        default=LATEST_VERSION,
        doc="Version of the protocol among brokers; raise it once every broker runs the newer software.",
    )

    zookeeper_connect: str | None = prop(
        "zookeeper.connect",
        STRING,
        default=None,
        importance=Importance.HIGH,
        doc="ZooKeeper servers as host:port,host:port/chroot. Without it the broker embeds a service of its own.",
    )
    zookeeper_session_timeout_ms: int = prop(
        "zookeeper.session.timeout.ms",
        INT,
        at_least(1),
        default=18000,
        importance=Importance.HIGH,
        doc="Silence after which ZooKeeper takes the broker for dead.",
    )
    zookeeper_connection_timeout_ms: int | None = prop(
        "zookeeper.connection.timeout.ms",
        INT,
        at_least(1),
        default=None,
        importance=Importance.HIGH,
        doc="How long the first connection may take; the session timeout when it is not set.",
    )
    zookeeper_max_in_flight_requests: int = prop(
        "zookeeper.max.in.flight.requests",
        INT,
        at_least(1),
        default=10,
        importance=Importance.HIGH,
        inert=True,
        doc="How many requests may wait for ZooKeeper's answers at a time.",
    )
    zookeeper_set_acl: bool = prop(
        "zookeeper.set.acl",
        BOOLEAN,
        default=False,
        importance=Importance.HIGH,
        inert=True,
        doc="Whether znodes are created so that only brokers may change them.",
    )
    zookeeper_clientCnxnSocket: str | None = prop(  # noqa: N815 - as Kafka spells it
        "zookeeper.clientCnxnSocket",
        STRING,
        default=None,
        inert=True,
        doc="Java class of the ZooKeeper client's socket; without meaning here.",
    )
    zookeeper_ssl_client_enable: bool = prop(
        "zookeeper.ssl.client.enable",
        BOOLEAN,
        default=False,
        inert=True,
        doc="Whether ZooKeeper is reached through TLS.",
    )
    zookeeper_ssl_keystore_location: str | None = prop(
        "zookeeper.ssl.keystore.location", STRING, default=None, inert=True, doc="File with the key shown to ZooKeeper."
    )
    zookeeper_ssl_keystore_password: str | None = prop(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        default=None,
        inert=True,
        doc="Password of the file with the key shown to ZooKeeper.",
    )
    zookeeper_ssl_keystore_type: str | None = prop(
        "zookeeper.ssl.keystore.type",
        STRING,
        default=None,
        inert=True,
        doc="Format of the file with the key shown to ZooKeeper.",
    )
    zookeeper_ssl_truststore_location: str | None = prop(
        "zookeeper.ssl.truststore.location",
        STRING,
        default=None,
        inert=True,
        doc="File with the certificates that ZooKeeper's own is held against.",
    )
    zookeeper_ssl_truststore_password: str | None = prop(
        "zookeeper.ssl.truststore.password",
        PASSWORD,
        default=None,
        inert=True,
        doc="Password of the file that ZooKeeper's certificate is held against.",
    )
    zookeeper_ssl_truststore_type: str | None = prop(
        "zookeeper.ssl.truststore.type",
        STRING,
        default=None,
        inert=True,
        doc="Format of the file that ZooKeeper's certificate is held against.",
    )
    zookeeper_ssl_protocol: str = prop(
        "zookeeper.ssl.protocol", STRING, default="TLSv1.2", inert=True, doc="TLS version to negotiate with ZooKeeper."
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = prop(
        "zookeeper.ssl.enabled.protocols", LIST, default=None, inert=True, doc="TLS versions allowed towards ZooKeeper."
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] | None = prop(
        "zookeeper.ssl.cipher.suites", LIST, default=None, inert=True, doc="Cipher suites allowed towards ZooKeeper."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = prop(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        default="HTTPS",
        inert=True,
        doc="How ZooKeeper's certificate is held against its host name.",
    )
    zookeeper_ssl_crl_enable: bool = prop(
        "zookeeper.ssl.crl.enable", BOOLEAN, default=False, inert=True, doc="Whether revocation lists are consulted."
    )
    zookeeper_ssl_ocsp_enable: bool = prop(
        "zookeeper.ssl.ocsp.enable", BOOLEAN, default=False, inert=True, doc="Whether OCSP is asked for revocations."
    )
