"""TLS, SASL, authorization and delegation tokens."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, prop
from kctl.config.kinds import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING
from kctl.config.rules import at_least, between, one_of


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AuthorizationProperties:
    """Authorization, delegation tokens, and the secret with which passwords in ZooKeeper are encrypted."""

    __slots__ = ()

    authorizer_class_name: str = prop(
        "authorizer.class.name",
        STRING,
        default="",
        importance=Importance.LOW,
        doc="Authorizer: kafka.security.authorizer.AclAuthorizer, or the name of a plug-in; empty allows all requests.",
    )
    super_users: str = prop(
        "super.users", STRING, default="", doc="Principals that may do everything, separated by semicolons."
    )
    allow_everyone_if_no_acl_found: bool = prop(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        default=False,
        doc="Whether resources without an ACL are open to all users.",
    )
    principal_builder_class: str = prop(
        "principal.builder.class",
        CLASS,
        default="org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        dynamic=Dynamic.PER_BROKER,
        unused="kctl loads no Java classes; principals are those of Kafka's default builder, see "
        "ssl.principal.mapping.rules and sasl.kerberos.principal.to.local.rules",
        doc="Java class that builds the principal of a connection.",
    )
    connections_max_reauth_ms: int = prop(
        "connections.max.reauth.ms",
        LONG,
        at_least(0),
        default=0,
        doc="Time after which a SASL connection must reauthenticate; 0 disables this.",
    )
    delegation_token_master_key: str | None = prop(
        "delegation.token.master.key",
        PASSWORD,
        default=None,
        doc="Older name of delegation.token.secret.key.",
    )
    delegation_token_secret_key: str | None = prop(
        "delegation.token.secret.key",
        PASSWORD,
        default=None,
        doc="Secret that signs delegation tokens, the same on every broker; if not set, tokens are disabled.",
    )
    delegation_token_max_lifetime_ms: int = prop(
        "delegation.token.max.lifetime.ms",
        LONG,
        at_least(1),
        default=604800000,
        doc="Maximum lifetime of a token, after which it cannot be renewed.",
    )
    delegation_token_expiry_time_ms: int = prop(
        "delegation.token.expiry.time.ms",
        LONG,
        at_least(1),
        default=86400000,
        doc="Time after which a token expires unless it is renewed.",
    )
    delegation_token_expiry_check_interval_ms: int = prop(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        at_least(1),
        default=3600000,
        importance=Importance.LOW,
        doc="Interval of the removal of expired tokens.",
    )
    password_encoder_secret: str | None = prop(
        "password.encoder.secret",
        PASSWORD,
        default=None,
        doc="Secret that encrypts passwords among dynamic properties, the same on every broker; without it they are "
        "refused.",
    )
    password_encoder_old_secret: str | None = prop(
        "password.encoder.old.secret",
        PASSWORD,
        default=None,
        doc="The previous password.encoder.secret, while it is being changed.",
    )
    password_encoder_keyfactory_algorithm: str | None = prop(
        "password.encoder.keyfactory.algorithm",
        STRING,
        default=None,
        importance=Importance.LOW,
        doc="Key derivation function for password.encoder.secret.",
    )
    password_encoder_cipher_algorithm: str = prop(
        "password.encoder.cipher.algorithm",
        STRING,
        default="AES/CBC/PKCS5Padding",
        importance=Importance.LOW,
        doc="Cipher for passwords in dynamic configurations.",
    )
    password_encoder_key_length: int = prop(
        "password.encoder.key.length",
        INT,
        at_least(8),
        default=128,
        importance=Importance.LOW,
        doc="Length of the key derived from password.encoder.secret, in bits.",
    )
    password_encoder_iterations: int = prop(
        "password.encoder.iterations",
        INT,
        at_least(1024),
        default=4096,
        importance=Importance.LOW,
        doc="Iterations of the key derivation for password.encoder.secret.",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TlsProperties:
    """TLS on listeners; listener.name.NAME.ssl... overrides a property for one listener."""

    __slots__ = ()

    ssl_protocol: str = prop(
        "ssl.protocol",
        STRING,
        default="TLSv1.3",
        unused="ssl.enabled.protocols names the allowed versions, of which the highest common one is used",
        doc="TLS version preferred.",
    )
    ssl_enabled_protocols: tuple[str, ...] = prop(
        "ssl.enabled.protocols",
        LIST,
        default=("TLSv1.2", "TLSv1.3"),
        doc="TLS versions allowed: TLSv1.2, TLSv1.3; older ones are ignored.",
    )
    ssl_provider: str | None = prop(
        "ssl.provider", STRING, default=None, unused="TLS is that of OpenSSL", doc="Java security provider."
    )
    ssl_cipher_suites: tuple[str, ...] = prop(
        "ssl.cipher.suites",
        LIST,
        default=(),
        doc="Allowed cipher suites, as Java or OpenSSL names them; empty for the defaults of OpenSSL.",
    )
    ssl_client_auth: str = prop(
        "ssl.client.auth",
        STRING,
        one_of("required", "requested", "none"),
        default="none",
        doc="Whether clients must present a certificate.",
    )
    ssl_keystore_type: str = prop(
        "ssl.keystore.type",
        STRING,
        default="JKS",
        dynamic=Dynamic.PER_BROKER,
        doc="Format of the keystore: JKS, PKCS12 or PEM; the file itself decides.",
    )
    ssl_keystore_location: str | None = prop(
        "ssl.keystore.location",
        STRING,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="Keystore file with the broker's key and certificate.",
    )
    ssl_keystore_password: str | None = prop(
        "ssl.keystore.password",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="Password of the keystore.",
    )
    ssl_key_password: str | None = prop(
        "ssl.key.password",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="Password of the key in the keystore.",
    )
    ssl_keystore_key: str | None = prop(
        "ssl.keystore.key",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="The broker's key as PEM text.",
    )
    ssl_keystore_certificate_chain: str | None = prop(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="The broker's certificates, as PEM text.",
    )
    ssl_truststore_type: str = prop(
        "ssl.truststore.type",
        STRING,
        default="JKS",
        dynamic=Dynamic.PER_BROKER,
        doc="Format of the truststore: JKS, PKCS12 or PEM; the file itself decides.",
    )
    ssl_truststore_location: str | None = prop(
        "ssl.truststore.location",
        STRING,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="Truststore file.",
    )
    ssl_truststore_password: str | None = prop(
        "ssl.truststore.password",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="Password of the truststore.",
    )
    ssl_truststore_certificates: str | None = prop(
        "ssl.truststore.certificates",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        doc="The trusted certificates as PEM text.",
    )
    ssl_keymanager_algorithm: str = prop(
        "ssl.keymanager.algorithm",
        STRING,
        default="SunX509",
        unused="TLS is that of OpenSSL",
        doc="Java's key manager.",
    )
    ssl_trustmanager_algorithm: str = prop(
        "ssl.trustmanager.algorithm",
        STRING,
        default="PKIX",
        unused="TLS is that of OpenSSL",
        doc="Java's trust manager.",
    )
    ssl_endpoint_identification_algorithm: str = prop(
        "ssl.endpoint.identification.algorithm",
        STRING,
        default="https",
        importance=Importance.LOW,
        doc="Algorithm that verifies the host name in a broker's certificate; empty disables the check.",
    )
    ssl_secure_random_implementation: str | None = prop(
        "ssl.secure.random.implementation",
        STRING,
        default=None,
        importance=Importance.LOW,
        unused="random numbers are those of the operating system",
        doc="Java's source of random numbers.",
    )
    ssl_principal_mapping_rules: str = prop(
        "ssl.principal.mapping.rules",
        STRING,
        default="DEFAULT",
        importance=Importance.LOW,
        doc="Rules that map distinguished names of certificates to user names.",
    )
    ssl_engine_factory_class: str | None = prop(
        "ssl.engine.factory.class",
        CLASS,
        default=None,
        importance=Importance.LOW,
        unused="kctl loads no Java classes; TLS is that of OpenSSL",
        doc="Java class that creates TLS engines.",
    )


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
        default=None,
        unused="kctl loads no Java classes; the credentials are those of SCRAM in ZooKeeper, of sasl.jaas.config, of"
        " Kerberos, or of sasl.oauthbearer.jwks.endpoint.url",
        doc="Java class that verifies credentials.",
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
