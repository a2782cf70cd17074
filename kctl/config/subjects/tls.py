"""TLS on listeners."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, one_of, prop
from kctl.config.kinds import CLASS, LIST, PASSWORD, STRING


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TlsProperties:
    """TLS on listeners; listener.name.NAME.ssl... overrides a property for one listener."""

    __slots__ = ()

    ssl_protocol: str = prop(
        "ssl.protocol",
        STRING,
        default="TLSv1.3",
        dynamic=Dynamic.PER_BROKER,
        unused="ssl.enabled.protocols names the allowed versions, of which the highest common one is used",
        doc="TLS version preferred.",
    )
    ssl_enabled_protocols: tuple[str, ...] = prop(
        "ssl.enabled.protocols",
        LIST,
        default=("TLSv1.2", "TLSv1.3"),
        dynamic=Dynamic.PER_BROKER,
        doc="TLS versions allowed: TLSv1.2, TLSv1.3; older ones are ignored.",
    )
    ssl_provider: str | None = prop(
        "ssl.provider",
        STRING,
        default=None,
        dynamic=Dynamic.PER_BROKER,
        unused="TLS is that of OpenSSL",
        doc="Java security provider.",
    )
    ssl_cipher_suites: tuple[str, ...] = prop(
        "ssl.cipher.suites",
        LIST,
        default=(),
        dynamic=Dynamic.PER_BROKER,
        doc="Allowed cipher suites, as Java or OpenSSL names them; empty for those with ECDHE and AES-GCM or ChaCha20.",
    )
    ssl_client_auth: str = prop(
        "ssl.client.auth",
        STRING,
        one_of("required", "requested", "none"),
        default="none",
        dynamic=Dynamic.PER_BROKER,
        doc="Whether clients must present a certificate.",
    )
    ssl_keystore_type: str = prop(
        "ssl.keystore.type",
        STRING,
        default="JKS",
        dynamic=Dynamic.PER_LISTENER,
        doc="Format of the keystore: JKS, PKCS12 or PEM; the file itself decides.",
    )
    ssl_keystore_location: str | None = prop(
        "ssl.keystore.location",
        STRING,
        default=None,
        dynamic=Dynamic.PER_LISTENER,
        doc="Keystore file with the broker's key and certificate.",
    )
    ssl_keystore_password: str | None = prop(
        "ssl.keystore.password",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_LISTENER,
        doc="Password of the keystore.",
    )
    ssl_key_password: str | None = prop(
        "ssl.key.password",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_LISTENER,
        doc="Password of the key in the keystore.",
    )
    ssl_keystore_key: str | None = prop(
        "ssl.keystore.key",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_LISTENER,
        doc="The broker's key as PEM text.",
    )
    ssl_keystore_certificate_chain: str | None = prop(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_LISTENER,
        doc="The broker's certificates, as PEM text.",
    )
    ssl_truststore_type: str = prop(
        "ssl.truststore.type",
        STRING,
        default="JKS",
        dynamic=Dynamic.PER_LISTENER,
        doc="Format of the truststore: JKS, PKCS12 or PEM; the file itself decides.",
    )
    ssl_truststore_location: str | None = prop(
        "ssl.truststore.location",
        STRING,
        default=None,
        dynamic=Dynamic.PER_LISTENER,
        doc="Truststore file.",
    )
    ssl_truststore_password: str | None = prop(
        "ssl.truststore.password",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_LISTENER,
        doc="Password of the truststore.",
    )
    ssl_truststore_certificates: str | None = prop(
        "ssl.truststore.certificates",
        PASSWORD,
        default=None,
        dynamic=Dynamic.PER_LISTENER,
        doc="The trusted certificates as PEM text.",
    )
    ssl_keymanager_algorithm: str = prop(
        "ssl.keymanager.algorithm",
        STRING,
        default="SunX509",
        dynamic=Dynamic.PER_BROKER,
        unused="TLS is that of OpenSSL",
        doc="Java's key manager.",
    )
    ssl_trustmanager_algorithm: str = prop(
        "ssl.trustmanager.algorithm",
        STRING,
        default="PKIX",
        dynamic=Dynamic.PER_BROKER,
        unused="TLS is that of OpenSSL",
        doc="Java's trust manager.",
    )
    ssl_endpoint_identification_algorithm: str = prop(
        "ssl.endpoint.identification.algorithm",
        STRING,
        default="https",
        dynamic=Dynamic.PER_BROKER,
        importance=Importance.LOW,
        doc="Algorithm that verifies the host name in a broker's certificate; empty disables the check.",
    )
    ssl_secure_random_implementation: str | None = prop(
        "ssl.secure.random.implementation",
        STRING,
        default=None,
        dynamic=Dynamic.PER_BROKER,
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
        one_of("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"),
        default=None,
        dynamic=Dynamic.PER_BROKER,
        importance=Importance.LOW,
        doc="Creates TLS engines: Kafka's default factory, which is implemented by OpenSSL.  Other Java classes are "
        "refused, since certificates that they refuse would be accepted.",
    )
