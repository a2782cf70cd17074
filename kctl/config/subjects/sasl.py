"""SASL on listeners."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, at_least, between, one_of, prop
from kctl.config.kinds import CLASS, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING

_SECURITY = "org.apache.kafka.common.security"
_SERVER_CALLBACK_HANDLERS = (
    f"{_SECURITY}.plain.internals.PlainServerCallbackHandler",
    f"{_SECURITY}.scram.internals.ScramServerCallbackHandler",
    f"{_SECURITY}.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler",
)
"""Those whose work kctl does itself."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SaslProperties:
    """SASL on listeners."""

    __slots__ = ()

    sasl_enabled_mechanisms: tuple[str, ...] = prop(
        "sasl.enabled.mechanisms",
        LIST,
        default=("GSSAPI",),
        dynamic=Dynamic.PER_BROKER,
        doc="SASL mechanisms enabled for clients.",
    )
    sasl_mechanism_inter_broker_protocol: str = prop(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        default="GSSAPI",
        dynamic=Dynamic.PER_BROKER,
        doc="SASL mechanism between brokers.",
    )
    sasl_jaas_config: str | None = prop(
        "sasl.jaas.config",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="JAAS configuration of a SASL mechanism.",
    )
    sasl_login_class: str | None = prop(
        "sasl.login.class",
        CLASS,
        default=None,
        unused="kctl loads no Java classes; a broker that connects to others by SASL refuses it at start",
        doc="Java class that logs in.",
    )
    sasl_login_callback_handler_class: str | None = prop(
        "sasl.login.callback.handler.class",
        CLASS,
        default=None,
        doc="Source of the OAUTHBEARER tokens with which this broker connects to others, by the name of Kafka's "
        "class; other classes are refused.",
    )
    sasl_server_callback_handler_class: str | None = prop(
        "sasl.server.callback.handler.class",
        CLASS,
        one_of(*_SERVER_CALLBACK_HANDLERS),
        default=None,
        doc="Verifies credentials: Kafka's own handlers, for users of sasl.jaas.config, of SCRAM in ZooKeeper, or of "
        "sasl.oauthbearer.jwks.endpoint.url.  Other Java classes are refused, since other users would be accepted.",
    )
    sasl_client_callback_handler_class: str | None = prop(
        "sasl.client.callback.handler.class",
        CLASS,
        default=None,
        unused="kctl loads no Java classes; a broker that connects to others by SASL refuses it at start",
        doc="Java class that supplies credentials.",
    )
    sasl_kerberos_service_name: str | None = prop(
        "sasl.kerberos.service.name",
        STRING,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="Kerberos service name of the brokers to which this one connects.",
    )
    sasl_kerberos_kinit_cmd: str = prop(
        "sasl.kerberos.kinit.cmd",
        STRING,
        default="/usr/bin/kinit",
        dynamic=Dynamic.PER_BROKER,
        unused="the Kerberos library gets tickets with the keytab of sasl.jaas.config",
        doc="Program that renews Kerberos tickets.",
    )
    sasl_kerberos_ticket_renew_window_factor: float = prop(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        default=0.8,
        dynamic=Dynamic.PER_BROKER,
        unused="the Kerberos library gets a ticket when a new connection needs one",
        doc="Fraction of a ticket's lifetime after which it is renewed.",
    )
    sasl_kerberos_ticket_renew_jitter: float = prop(
        "sasl.kerberos.ticket.renew.jitter",
        DOUBLE,
        default=0.05,
        dynamic=Dynamic.PER_BROKER,
        unused="the Kerberos library gets a ticket when a new connection needs one",
        doc="Random part of the renewal time of a Kerberos ticket.",
    )
    sasl_kerberos_min_time_before_relogin: int = prop(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        default=60000,
        dynamic=Dynamic.PER_BROKER,
        unused="the Kerberos library gets a ticket when a new connection needs one",
        doc="Minimum time between two renewals of a Kerberos ticket, in milliseconds.",
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = prop(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        default=("DEFAULT",),
        dynamic=Dynamic.PER_BROKER,
        doc="Rules that map Kerberos principals to user names.",
    )
    sasl_login_refresh_window_factor: float = prop(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        between(0.5, 1.0),
        default=0.8,
        dynamic=Dynamic.PER_BROKER,
        doc="Part of the lifetime of an OAUTHBEARER token after which a new connection to another broker fetches "
        "a new one.",
    )
    sasl_login_refresh_window_jitter: float = prop(
        "sasl.login.refresh.window.jitter",
        DOUBLE,
        between(0.0, 0.25),
        default=0.05,
        dynamic=Dynamic.PER_BROKER,
        unused="a token is fetched when a connection needs one and the part sasl.login.refresh.window.factor of the "
        "last one's lifetime has passed",
        doc="Random part of the renewal time of an OAuth token.",
    )
    sasl_login_refresh_min_period_seconds: int = prop(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        default=60,
        dynamic=Dynamic.PER_BROKER,
        unused="a token is fetched when a connection needs one and the part sasl.login.refresh.window.factor of the "
        "last one's lifetime has passed",
        doc="Minimum time between two renewals of an OAuth token.",
    )
    sasl_login_refresh_buffer_seconds: int = prop(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        default=300,
        dynamic=Dynamic.PER_BROKER,
        unused="a token is fetched when a connection needs one and the part sasl.login.refresh.window.factor of the "
        "last one's lifetime has passed",
        doc="Time before the expiry of an OAuth token at which it is renewed.",
    )
    sasl_server_max_receive_size: int = prop(
        "sasl.server.max.receive.size",
        INT,
        at_least(1),
        default=524288,
        doc="Maximum size of a request or token before and during authentication on a SASL listener, in bytes.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = prop(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        default=None,
        doc="Where the keys that verify OAUTHBEARER tokens are: file:///path or https://host/path. "
        "Without it a listener with OAUTHBEARER does not start.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = prop(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        at_least(1),
        default=3600000,
        importance=Importance.LOW,
        doc="Interval at which the keys for OAUTHBEARER are read again.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = prop(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        at_least(1),
        default=100,
        importance=Importance.LOW,
        doc="First pause after a failed read of the keys for OAUTHBEARER; each further pause is twice as long.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = prop(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        at_least(1),
        default=10000,
        importance=Importance.LOW,
        doc="Longest pause after failed reads of the keys for OAUTHBEARER.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = prop(
        "sasl.oauthbearer.expected.audience",
        LIST,
        default=(),
        doc="Audiences (claim aud) of which an OAUTHBEARER token must have one.",
    )
    sasl_oauthbearer_expected_issuer: str | None = prop(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        default=None,
        doc="Issuer (claim iss) that an OAUTHBEARER token must have.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = prop(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        at_least(0),
        default=30,
        importance=Importance.LOW,
        doc="Accepted difference between the clocks of the issuer of OAUTHBEARER tokens and of the broker.",
    )
    sasl_oauthbearer_scope_claim_name: str = prop(
        "sasl.oauthbearer.scope.claim.name",
        STRING,
        default="scope",
        importance=Importance.LOW,
        doc="Claim of an OAUTHBEARER token with its scopes.",
    )
    sasl_oauthbearer_sub_claim_name: str = prop(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        default="sub",
        importance=Importance.LOW,
        doc="Claim of an OAUTHBEARER token with the name of the user.",
    )
    security_providers: str | None = prop(
        "security.providers",
        STRING,
        default=None,
        importance=Importance.LOW,
        unused="kctl loads no Java classes",
        doc="Java classes of security providers.",
    )
