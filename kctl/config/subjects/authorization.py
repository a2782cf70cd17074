"""Authorization, delegation tokens, and the encryption of passwords in ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.config.definition import Dynamic, Importance, at_least, one_of, prop
from kctl.config.kinds import BOOLEAN, CLASS, INT, LONG, PASSWORD, STRING

_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


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
        one_of(_PRINCIPAL_BUILDER),
        default=_PRINCIPAL_BUILDER,
        dynamic=Dynamic.PER_BROKER,
        doc="Builds the principal of a connection: Kafka's default builder, see ssl.principal.mapping.rules and "
        "sasl.kerberos.principal.to.local.rules.  Other Java classes are refused, since ACLs would not apply to the "
        "principals that they build.",
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
