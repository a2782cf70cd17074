"""Every property of Kafka's admin, consumer and producer clients (2.8.2 to 4.3.1), and what kctl does with it.

The commands check the properties of the clients that they use: each those of AdminClientConfig, one that reads records
those of ConsumerConfig, one that writes records those of ProducerConfig.  A property of another client is ignored, so
that a file may be shared; one that is in no client is reported.  docs/reference/client-properties.md shows this table.
Security properties are checked further by kctl.client.connections.login.sasl_settings and kctl.security.tls.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from kctl.client.properties.values import (
    Parse,
    acks,
    decimal,
    integer,
    level,
    long_integer,
    names,
    non_empty,
    offset_reset,
    one_of,
    only,
    refused,
    short_integer,
    switch,
    text,
)
from kctl.errors import ConfigError, UsageError
from kctl.records.compression import Codec

ALL = "every command and the Python client"
PYTHON = "the Python client"


class Client(StrEnum):
    """Kafka's clients; the values are the letters in the table."""

    ADMIN = "A"
    CONSUMER = "C"
    PRODUCER = "P"


class Use(StrEnum):
    """What kctl does with a property."""

    OBEYED = "obeyed"
    NO_MEANING = "no meaning here"
    REFUSED = "refused"


class ClientProperty(NamedTuple):
    """A property of Kafka's clients."""

    name: str
    clients: str
    """The letters of the clients that have it."""
    parse: Parse
    """The value of a text.  Raises UsageError for texts that Kafka refuses, and for those that kctl refuses."""
    use: Use
    text: str
    """By what it is obeyed; else why it has no meaning or is refused, with the remedy."""
    commands: tuple[str, ...] = ()
    """The commands that obey it, with the option that they need; ALL for every command."""

    def is_obeyed_by(self, command: str, *options: str) -> bool:
        """Return whether a command obeys it, with those of its options that `commands` names."""
        return ALL in self.commands or any(
            name == command or name in {f"{command} {option}" for option in options} for name in self.commands
        )


def _obeyed(name: str, clients: str, parse: Parse, by: str, remark: str = "") -> ClientProperty:
    """`by` lists commands; `remark` begins with its punctuation."""
    text = by if by in {ALL, PYTHON} else f"{by} and {PYTHON}"
    return ClientProperty(name, clients, parse, Use.OBEYED, text + remark, tuple(by.split(", ")))


def _unused(name: str, clients: str, parse: Parse, reason: str) -> ClientProperty:
    return ClientProperty(name, clients, parse, Use.NO_MEANING, reason)


def _refused(name: str, clients: str, remedy: str, parse: Parse = text) -> ClientProperty:
    return ClientProperty(name, clients, refused(remedy, parse), Use.REFUSED, remedy)


_WITH_TLS = ", with SSL and SASL_SSL"
_WITH_SASL = ", with SASL_PLAINTEXT and SASL_SSL"
_WITH_OAUTH = ", with OAUTHBEARER"
_READING = "consume, copy, perf consume, perf latency"
_GROUP = "consume --group"
_WRITING = "produce, copy, perf produce, perf latency"
_BYTES = ": as bytes; other classes are refused"
_NO_JAVA = "kctl loads no Java classes; remove it"
_BOOTSTRAPS = "bootstrap.servers are tried whenever no broker is connected"
_NO_METRICS = "the client keeps no metrics"
_OS_BUFFERS = "the operating system sizes the buffers of sockets"
_ONE_BACKOFF = "; others open a lost connection again after retry.backoff.ms"
_BROKER_VERIFIES = "the broker verifies tokens"
_NO_REFRESH = "a token is fetched when a connection needs one, not in the background"
_NO_ASSERTIONS = "signed assertions are not implemented; use a client secret or a token file"
_TICKET_CACHE = "tickets are renewed by the ticket cache or the key tab of the Kerberos library"
_OPENSSL = "Python's ssl module, which is OpenSSL, implements TLS"
_INTERNAL = "it is internal to Kafka's client"
_OF_SHARE_CONSUMER = ", of a ShareConsumer"
_SERIALIZERS = dict.fromkeys(("ByteArraySerializer", "StringSerializer", "ByteBufferSerializer", "BytesSerializer"))
_DESERIALIZERS = dict.fromkeys(
    ("ByteArrayDeserializer", "StringDeserializer", "ByteBufferDeserializer", "BytesDeserializer")
)

_COMMON = (
    _obeyed("bootstrap.servers", "ACP", text, ALL, "; --bootstrap-server takes precedence"),
    _obeyed("client.id", "ACP", text, ALL),
    _obeyed(
        "default.api.timeout.ms",
        "AC",
        integer(low=0),
        ALL,
        ": the time of one operation with its retries (30000); --timeout takes precedence",
    ),
    _obeyed(
        "request.timeout.ms",
        "ACP",
        integer(low=0),
        ALL,
        ": the time of one request, at most that of the operation",
    ),
    _obeyed("retry.backoff.ms", "ACP", long_integer(low=0), ALL, " (50)"),
    _obeyed("retry.backoff.max.ms", "ACP", long_integer(low=0), ALL, " (1000)"),
    _obeyed("socket.connection.setup.timeout.ms", "ACP", long_integer(), ALL, " (5000)"),
    _obeyed(
        "metadata.max.age.ms",
        "ACP",
        long_integer(low=0),
        f"{_WRITING}, consume, perf consume",
    ),
    _obeyed(
        "client.dns.lookup",
        "ACP",
        only(
            {"use_all_dns_ips": "use_all_dns_ips"},
            one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only", "default"),
            "kctl tries all addresses of a name: set use_all_dns_ips, or remove it",
        ),
        ALL,
        ": all addresses of a name are tried; other values are refused",
    ),
    _obeyed(
        "retries",
        "AP",
        integer(low=0),
        _WRITING,
        "; other operations are repeated until default.api.timeout.ms",
    ),
    _unused("connections.max.idle.ms", "ACP", long_integer(), "connections are kept until the client is closed"),
    _unused(
        "metadata.recovery.strategy",
        "ACP",
        one_of("rebootstrap", "none", ignores_case=True),
        _BOOTSTRAPS,
    ),
    _unused(
        "metadata.recovery.rebootstrap.trigger.ms",
        "ACP",
        long_integer(low=0),
        _BOOTSTRAPS,
    ),
    _obeyed("reconnect.backoff.ms", "ACP", long_integer(low=0), _WRITING, _ONE_BACKOFF),
    _obeyed("reconnect.backoff.max.ms", "ACP", long_integer(low=0), _WRITING, _ONE_BACKOFF),
    _unused("socket.connection.setup.timeout.max.ms", "ACP", long_integer(), "the time-out does not grow"),
    _unused("receive.buffer.bytes", "ACP", integer(low=-1), _OS_BUFFERS),
    _unused("send.buffer.bytes", "ACP", integer(low=-1), _OS_BUFFERS),
    _unused("auto.include.jmx.reporter", "ACP", switch, _NO_METRICS),
    _unused("metric.reporters", "ACP", names, _NO_METRICS),
    _unused("metrics.num.samples", "ACP", integer(low=1), _NO_METRICS),
    _unused("metrics.recording.level", "ACP", one_of("INFO", "DEBUG", "TRACE"), _NO_METRICS),
    _unused("metrics.sample.window.ms", "ACP", long_integer(low=0), _NO_METRICS),
    _obeyed("enable.metrics.push", "ACP", switch, PYTHON, "; commands send no metrics"),
    _refused("config.providers", "ACP", "no providers are loaded; write the values, or references in a profile"),
    _refused("security.providers", "ACP", _NO_JAVA),
    _refused("bootstrap.controllers", "A", "kctl connects to brokers; use bootstrap.servers"),
)
_CONSUMER = (
    _obeyed("auto.offset.reset", "C", offset_reset, "consume", "; --from takes precedence"),
    _obeyed("enable.auto.commit", "C", switch, _GROUP, ": with false nothing is committed"),
    _obeyed("auto.commit.interval.ms", "C", integer(low=0), _GROUP),
    _obeyed(
        "isolation.level",
        "C",
        one_of("read_committed", "read_uncommitted"),
        "consume, copy, export, tables profile, perf consume",
        "; --isolation-level takes precedence",
    ),
    _obeyed("client.rack", "C", text, _READING),
    _obeyed("fetch.min.bytes", "C", integer(low=0), _READING),
    _obeyed("fetch.max.wait.ms", "C", integer(low=0), _READING),
    _obeyed("fetch.max.bytes", "C", integer(low=0), _READING),
    _obeyed("max.partition.fetch.bytes", "C", integer(low=0), _READING),
    _obeyed("group.instance.id", "C", non_empty, _GROUP),
    _obeyed("session.timeout.ms", "C", integer(), _GROUP),
    _obeyed("heartbeat.interval.ms", "C", integer(), _GROUP),
    _obeyed("max.poll.interval.ms", "C", integer(low=1), _GROUP),
    _obeyed("partition.assignment.strategy", "C", text, _GROUP, "; --assignor takes precedence"),
    _obeyed(
        "group.protocol",
        "C",
        one_of("classic", "consumer", ignores_case=True),
        _GROUP,
    ),
    _obeyed("group.remote.assignor", "C", text, _GROUP, ", with group.protocol=consumer"),
    _obeyed(
        "group.id",
        "C",
        text,
        "consume",
        "; consume joins a group only with --group, and warns of a group.id without it",
    ),
    _obeyed("max.poll.records", "C", integer(low=1), PYTHON, "; commands show records as they arrive"),
    _obeyed(
        "key.deserializer",
        "C",
        only(_DESERIALIZERS, text, "records are read as bytes; for schemas use --decode, in Python key_deserializer"),
        "consume, copy",
        _BYTES,
    ),
    _obeyed(
        "value.deserializer",
        "C",
        only(_DESERIALIZERS, text, "records are read as bytes; for schemas use --decode, in Python value_deserializer"),
        "consume, copy",
        _BYTES,
    ),
    _unused("allow.auto.create.topics", "C", switch, "reading never creates a topic"),
    _unused("check.crcs", "C", switch, "checksums are always verified"),
    _unused("exclude.internal.topics", "C", switch, "topics are named, not subscribed to by a pattern"),
    _obeyed(
        "share.acknowledgement.mode", "C", one_of("implicit", "explicit", ignores_case=True), PYTHON, _OF_SHARE_CONSUMER
    ),
    _obeyed(
        "share.acquire.mode",
        "C",
        one_of("batch_optimized", "record_limit", ignores_case=True),
        PYTHON,
        _OF_SHARE_CONSUMER,
    ),
    _unused("internal.leave.group.on.close", "C", switch, _INTERNAL),
    _unused("internal.throw.on.fetch.stable.offset.unsupported", "C", switch, _INTERNAL),
)
_PRODUCER = (
    _obeyed("acks", "P", acks, _WRITING, "; --acks takes precedence; copy requires all"),
    _obeyed("enable.idempotence", "P", switch, _WRITING, "; copy requires true"),
    _obeyed(
        "compression.type",
        "P",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        _WRITING,
        "; --compression-codec takes precedence",
    ),
    _obeyed(
        "compression.gzip.level",
        "P",
        level(Codec.GZIP),
        _WRITING,
        ": 1 to 9, and -1 for 6",
    ),
    _obeyed(
        "compression.lz4.level",
        "P",
        level(Codec.LZ4),
        _WRITING,
        ": 1 to 17; without it the fast compressor is used",
    ),
    _obeyed(
        "compression.zstd.level",
        "P",
        level(Codec.ZSTD),
        _WRITING,
        ": -131072 to 22",
    ),
    _obeyed("batch.size", "P", integer(low=0), _WRITING, "; --batch-size takes precedence"),
    _obeyed("buffer.memory", "P", long_integer(low=0), _WRITING),
    _obeyed("delivery.timeout.ms", "P", integer(low=0), _WRITING),
    _obeyed("linger.ms", "P", long_integer(low=0), _WRITING, "; --linger takes precedence"),
    _obeyed("max.block.ms", "P", long_integer(low=0), PYTHON, "; commands wait for room in the buffer"),
    _obeyed("max.request.size", "P", integer(low=0), _WRITING, ": a larger record is refused"),
    _obeyed(
        "partitioner.class",
        "P",
        only(
            {
                "DefaultPartitioner": "DefaultPartitioner",
                "UniformStickyPartitioner": "UniformStickyPartitioner",
                "RoundRobinPartitioner": "RoundRobinPartitioner",
            },
            text,
            "kctl loads no Java classes; it implements DefaultPartitioner, UniformStickyPartitioner and "
            "RoundRobinPartitioner",
        ),
        "produce, copy --partitions hash",
        ": the partitioners of Kafka; others are refused",
    ),
    _obeyed("partitioner.ignore.keys", "P", switch, "produce, copy --partitions hash"),
    _obeyed("transaction.timeout.ms", "P", integer(), "produce --transactional-id, copy --transactional-id"),
    _obeyed(
        "transactional.id",
        "P",
        non_empty,
        PYTHON,
        "; commands refuse it without --transactional-id, which takes precedence",
    ),
    _obeyed(
        "key.serializer",
        "P",
        only(_SERIALIZERS, text, "only bytes are written; for schemas use --key-schema, in Python key_serializer"),
        "produce, copy",
        _BYTES,
    ),
    _obeyed(
        "value.serializer",
        "P",
        only(
            _SERIALIZERS,
            text,
            "only bytes are written; for schemas use --value-schema, in Python value_serializer",
        ),
        "produce, copy",
        _BYTES,
    ),
    _obeyed(
        "max.in.flight.requests.per.connection",
        "P",
        integer(low=1),
        _WRITING,
        "; without idempotence one batch of each partition is in flight, which keeps their order",
    ),
    _unused("metadata.max.idle.ms", "P", long_integer(low=5_000), "metadata is kept for metadata.max.age.ms"),
    _obeyed("partitioner.adaptive.partitioning.enable", "P", switch, "produce, copy --partitions hash"),
    _unused(
        "partitioner.availability.timeout.ms",
        "P",
        long_integer(low=0),
        "partitions with fewer batches waiting get more records without a key",
    ),
    _unused("internal.auto.downgrade.txn.commit", "P", switch, _INTERNAL),
    _refused("interceptor.classes", "CP", f"{_NO_JAVA}, in Python use interceptors of ProducerConfig", names),
    _obeyed(
        "transaction.two.phase.commit.enable",
        "P",
        only({"false": False}, switch, "two-phase commit is not implemented; remove it"),
        _WRITING,
        ": false; true is refused",
    ),
)
_SECURITY = (
    _obeyed(
        "security.protocol",
        "ACP",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", ignores_case=True),
        ALL,
    ),
    _obeyed("sasl.mechanism", "ACP", text, ALL, _WITH_SASL),
    _obeyed("sasl.jaas.config", "ACP", text, ALL, _WITH_SASL),
    _refused("sasl.client.callback.handler.class", "ACP", _NO_JAVA),
    _refused("sasl.login.class", "ACP", _NO_JAVA),
    _obeyed(
        "sasl.login.callback.handler.class",
        "ACP",
        text,
        ALL,
        f"{_WITH_OAUTH}: Kafka's own handlers; others are refused",
    ),
    _obeyed("sasl.login.connect.timeout.ms", "ACP", integer(), ALL, f"{_WITH_OAUTH} and a token endpoint"),
    _obeyed("sasl.login.read.timeout.ms", "ACP", integer(), ALL, f"{_WITH_OAUTH} and a token endpoint"),
    _obeyed("sasl.login.refresh.window.factor", "ACP", decimal(0.5, 1.0), ALL, f"{_WITH_OAUTH} and a token endpoint"),
    _unused("sasl.login.refresh.window.jitter", "ACP", decimal(0.0, 0.25), _NO_REFRESH),
    _unused("sasl.login.refresh.min.period.seconds", "ACP", short_integer(900), _NO_REFRESH),
    _unused("sasl.login.refresh.buffer.seconds", "ACP", short_integer(3_600), _NO_REFRESH),
    _unused("sasl.login.retry.backoff.ms", "ACP", long_integer(), "a command does not repeat a failed login"),
    _unused("sasl.login.retry.backoff.max.ms", "ACP", long_integer(), "a command does not repeat a failed login"),
    _obeyed("sasl.kerberos.service.name", "ACP", text, ALL, ", with GSSAPI"),
    _unused("sasl.kerberos.kinit.cmd", "ACP", text, _TICKET_CACHE),
    _unused("sasl.kerberos.min.time.before.relogin", "ACP", long_integer(), _TICKET_CACHE),
    _unused("sasl.kerberos.ticket.renew.jitter", "ACP", decimal(), _TICKET_CACHE),
    _unused("sasl.kerberos.ticket.renew.window.factor", "ACP", decimal(), _TICKET_CACHE),
    _obeyed("sasl.oauthbearer.token.endpoint.url", "ACP", text, ALL, _WITH_OAUTH),
    _obeyed("sasl.oauthbearer.client.credentials.client.id", "ACP", text, ALL, _WITH_OAUTH),
    _obeyed("sasl.oauthbearer.client.credentials.client.secret", "ACP", text, ALL, _WITH_OAUTH),
    _obeyed("sasl.oauthbearer.scope", "ACP", text, ALL, _WITH_OAUTH),
    _obeyed("sasl.oauthbearer.header.urlencode", "ACP", switch, ALL, _WITH_OAUTH),
    _obeyed(
        "sasl.oauthbearer.jwt.retriever.class", "ACP", text, ALL, f"{_WITH_OAUTH}: Kafka's own, except for assertions"
    ),
    _unused("sasl.oauthbearer.jwt.validator.class", "ACP", text, _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.clock.skew.seconds", "ACP", integer(), _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.expected.audience", "ACP", names, _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.expected.issuer", "ACP", text, _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.jwks.endpoint.refresh.ms", "ACP", long_integer(), _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "ACP", long_integer(), _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "ACP", long_integer(), _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.jwks.endpoint.url", "ACP", text, _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.scope.claim.name", "ACP", text, _BROKER_VERIFIES),
    _unused("sasl.oauthbearer.sub.claim.name", "ACP", text, _BROKER_VERIFIES),
    _refused(
        "sasl.oauthbearer.assertion.algorithm", "ACP", _NO_ASSERTIONS, one_of("ES256", "RS256", ignores_case=True)
    ),
    _refused("sasl.oauthbearer.assertion.claim.aud", "ACP", _NO_ASSERTIONS),
    _refused("sasl.oauthbearer.assertion.claim.exp.seconds", "ACP", _NO_ASSERTIONS, integer(low=0)),
    _refused("sasl.oauthbearer.assertion.claim.iss", "ACP", _NO_ASSERTIONS),
    _refused("sasl.oauthbearer.assertion.claim.jti.include", "ACP", _NO_ASSERTIONS, switch),
    _refused("sasl.oauthbearer.assertion.claim.nbf.seconds", "ACP", _NO_ASSERTIONS, integer(low=0)),
    _refused("sasl.oauthbearer.assertion.claim.sub", "ACP", _NO_ASSERTIONS),
    _refused("sasl.oauthbearer.assertion.file", "ACP", _NO_ASSERTIONS),
    _refused("sasl.oauthbearer.assertion.private.key.file", "ACP", _NO_ASSERTIONS),
    _refused("sasl.oauthbearer.assertion.private.key.passphrase", "ACP", _NO_ASSERTIONS),
    _refused("sasl.oauthbearer.assertion.template.file", "ACP", _NO_ASSERTIONS),
    *(
        _obeyed(f"ssl.{name}", "ACP", text, ALL, _WITH_TLS)
        for name in (
            *("keystore.location", "keystore.password", "keystore.type", "keystore.key", "keystore.certificate.chain"),
            *("key.password", "truststore.location", "truststore.password", "truststore.type"),
            *("truststore.certificates", "cipher.suites", "enabled.protocols", "endpoint.identification.algorithm"),
        )
    ),
    _refused("ssl.engine.factory.class", "ACP", _NO_JAVA),
    _unused("ssl.protocol", "ACP", text, "ssl.enabled.protocols selects the versions"),
    _unused("ssl.provider", "ACP", text, _OPENSSL),
    _unused("ssl.keymanager.algorithm", "ACP", text, _OPENSSL),
    _unused("ssl.trustmanager.algorithm", "ACP", text, _OPENSSL),
    _unused("ssl.secure.random.implementation", "ACP", text, _OPENSSL),
)
PROPERTIES: Mapping[str, ClientProperty] = {
    declared.name: declared for declared in (*_COMMON, *_CONSUMER, *_PRODUCER, *_SECURITY)
}
"""All properties by name."""

_HIDDEN = "[hidden]"
_SECRET = re.compile(r"password|passphrase|secret|jaas|keystore\.key|certificate")
_OWN = ("kctl.", "schema.registry.", "basic.auth.", "bearer.auth.")
"""Prefixes of the properties of kctl and of schema registries (kctl.admin.records.selection,
kctl.client.registry.schema)."""
_LIBRDKAFKA = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
    "sasl.kerberos.keytab": "sasl.jaas.config",
    "sasl.kerberos.principal": "sasl.jaas.config",
    "sasl.oauthbearer.config": "sasl.jaas.config",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.location": "ssl.truststore.location with ssl.truststore.type=PEM",
    "ssl.ca.pem": "ssl.truststore.certificates with ssl.truststore.type=PEM",
    "ssl.certificate.location": "ssl.keystore.location with ssl.keystore.type=PEM",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain with ssl.keystore.type=PEM",
    "ssl.key.location": "ssl.keystore.location with ssl.keystore.type=PEM",
    "ssl.key.pem": "ssl.keystore.key with ssl.keystore.type=PEM",
    "enable.ssl.certificate.verification": "ssl.truststore.location",
    "queue.buffering.max.ms": "linger.ms",
    "queue.buffering.max.kbytes": "buffer.memory",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "partitioner": "partitioner.class",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "broker.address.family": "bootstrap.servers with addresses of that family",
}
"""Names of librdkafka, and what says the same here."""


def check_properties(properties: Mapping[str, str], client: Client) -> dict[str, Any]:
    """Return the values of the properties of this client that are given.

    Raises ConfigError for the first invalid one.
    """
    found: dict[str, Any] = {}
    for name, given in properties.items():
        if (replacement := _LIBRDKAFKA.get(name)) is not None:
            raise ConfigError(name, _HIDDEN, f"is a name of librdkafka; use {replacement}")
        declared = PROPERTIES.get(name)
        if declared is None or client.value not in declared.clients:
            continue
        try:
            found[name] = declared.parse(given.strip())
        except UsageError as error:
            raise ConfigError(name, _HIDDEN if _SECRET.search(name) else given, str(error)) from None
    return found


def unknown_names(properties: Mapping[str, str]) -> list[str]:
    """Return the names that neither Kafka's clients nor kctl know, each with the nearest known one, as text for
    messages.
    """
    unknown = [name for name in properties if name not in PROPERTIES and not name.startswith(_OWN)]
    if not unknown:
        return []
    from difflib import get_close_matches  # noqa: PLC0415 - most files have no unknown names

    texts = []
    for name in unknown:
        near = get_close_matches(name.replace("_", ".").lower(), PROPERTIES, n=1)
        texts.append(f"'{name}'" + (f" (is '{near[0]}' meant?)" if near else ""))
    return texts


def not_obeyed(properties: Mapping[str, str], command: str, *options: str) -> list[str]:
    """Return the given properties that other commands obey and this one, with these options, does not."""
    return [
        name
        for name in properties
        if (declared := PROPERTIES.get(name)) is not None
        and declared.use is Use.OBEYED
        and not declared.is_obeyed_by(command, *options)
    ]
