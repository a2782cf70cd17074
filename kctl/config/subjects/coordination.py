"""Identity of the broker and its connection to ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Importance, at_least, known_version, one_of, prop
from kctl.config.kinds import BOOLEAN, INT, LIST, PASSWORD, STRING
from kctl.config.subjects.versions import KAFKA_RELEASES, LATEST_VERSION, VERSION_NAMES


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class CoordinationProperties:
    """Identity, protocol version and ZooKeeper."""

    __slots__ = ()

    broker_id: int = prop(
        "broker.id",
        INT,
        default=-1,
        importance=Importance.HIGH,
        doc="Id of this broker, unique in the cluster. -1 generates one above reserved.broker.max.id.",
    )
    broker_id_generation_enable: bool = prop(
        "broker.id.generation.enable", BOOLEAN, default=True, doc="Whether a broker id may be generated."
    )
    reserved_broker_max_id: int = prop(
        "reserved.broker.max.id",
        INT,
        at_least(0),
        default=1000,
        doc="Largest id that can be set as broker.id.",
    )
    broker_rack: str | None = prop(
        "broker.rack",
        STRING,
        default=None,
        doc="Rack of the broker; replicas of a partition are spread over racks.",
    )
    inter_broker_protocol_version: str = prop(
        "inter.broker.protocol.version",
        STRING,
        known_version(VERSION_NAMES),
        default=LATEST_VERSION,
        doc="Version of the inter-broker protocol; raise it after all brokers have been upgraded.",
    )
    served_release: str | None = prop(
        "served.release",
        STRING,
        one_of(*KAFKA_RELEASES),
        default=None,
        doc="Release of Apache Kafka whose APIs and versions the broker advertises and serves, with the error codes of "
        "that release, for tests of clients: see --as-version of kctl broker start. Not a property of Kafka.",
    )

    zookeeper_connect: str | None = prop(
        "zookeeper.connect",
        STRING,
        default=None,
        importance=Importance.HIGH,
        doc="ZooKeeper servers as host:port,host:port/chroot. If not set, the broker starts an embedded service.",
    )
    zookeeper_session_timeout_ms: int = prop(
        "zookeeper.session.timeout.ms",
        INT,
        at_least(1),
        default=18000,
        importance=Importance.HIGH,
        doc="Time without contact after which ZooKeeper expires the broker's session.",
    )
    zookeeper_connection_timeout_ms: int | None = prop(
        "zookeeper.connection.timeout.ms",
        INT,
        at_least(1),
        default=None,
        importance=Importance.HIGH,
        doc="Timeout of the first connection to ZooKeeper; zookeeper.session.timeout.ms if not set.",
    )
    zookeeper_sync_time_ms: int = prop(
        "zookeeper.sync.time.ms",
        INT,
        default=2000,
        importance=Importance.LOW,
        unused="Kafka 2.8 deprecates it and does not use it either: where a broker must see another's write, it has "
        "ZooKeeper bring its server up to date first",
        doc="How far a follower of the ensemble may be behind its leader.",
    )
    zookeeper_max_in_flight_requests: int = prop(
        "zookeeper.max.in.flight.requests",
        INT,
        at_least(1),
        default=10,
        importance=Importance.HIGH,
        unused="requests are sent as they arise, and a starting controller reads at most 500 znodes at a time",
        doc="Maximum number of requests in flight to ZooKeeper.",
    )
    zookeeper_set_acl: bool = prop(
        "zookeeper.set.acl",
        BOOLEAN,
        default=False,
        importance=Importance.HIGH,
        doc="Whether only brokers may change the znodes they create; needs zookeeper.ssl.keystore.location.",
    )
    zookeeper_clientCnxnSocket: str | None = prop(  # noqa: N815 - as Kafka spells it
        "zookeeper.clientCnxnSocket",
        STRING,
        default=None,
        unused="kctl loads no Java classes",
        doc="Java class of the ZooKeeper client's socket.",
    )
    zookeeper_ssl_client_enable: bool = prop(
        "zookeeper.ssl.client.enable",
        BOOLEAN,
        default=False,
        doc="Whether connections to ZooKeeper use TLS.",
    )
    zookeeper_ssl_keystore_location: str | None = prop(
        "zookeeper.ssl.keystore.location",
        STRING,
        default=None,
        doc="Keystore file for connections to ZooKeeper.",
    )
    zookeeper_ssl_keystore_password: str | None = prop(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        default=None,
        doc="Password of the keystore for ZooKeeper.",
    )
    zookeeper_ssl_keystore_type: str | None = prop(
        "zookeeper.ssl.keystore.type",
        STRING,
        default=None,
        doc="Format of the keystore for ZooKeeper.",
    )
    zookeeper_ssl_truststore_location: str | None = prop(
        "zookeeper.ssl.truststore.location",
        STRING,
        default=None,
        doc="Truststore for ZooKeeper's certificate.",
    )
    zookeeper_ssl_truststore_password: str | None = prop(
        "zookeeper.ssl.truststore.password",
        PASSWORD,
        default=None,
        doc="Password of the truststore for ZooKeeper.",
    )
    zookeeper_ssl_truststore_type: str | None = prop(
        "zookeeper.ssl.truststore.type",
        STRING,
        default=None,
        doc="Format of the truststore for ZooKeeper.",
    )
    zookeeper_ssl_protocol: str = prop(
        "zookeeper.ssl.protocol",
        STRING,
        default="TLSv1.2",
        unused="zookeeper.ssl.enabled.protocols names the allowed versions, of which the highest common one is used",
        doc="TLS version preferred.",
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = prop(
        "zookeeper.ssl.enabled.protocols",
        LIST,
        default=None,
        doc="Allowed TLS versions for connections to ZooKeeper; TLSv1.2 and TLSv1.3 if not set.",
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] | None = prop(
        "zookeeper.ssl.cipher.suites",
        LIST,
        default=None,
        doc="Allowed cipher suites for connections to ZooKeeper.",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = prop(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        default="HTTPS",
        doc="Algorithm that verifies the host name in ZooKeeper's certificate.",
    )
    zookeeper_ssl_crl_enable: bool = prop(
        "zookeeper.ssl.crl.enable",
        BOOLEAN,
        default=False,
        doc="Whether revocation is checked with revocation lists; true is refused.",
    )
    zookeeper_ssl_ocsp_enable: bool = prop(
        "zookeeper.ssl.ocsp.enable",
        BOOLEAN,
        default=False,
        doc="Whether revocation is checked with OCSP; true is refused.",
    )
