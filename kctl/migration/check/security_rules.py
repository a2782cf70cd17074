"""Rules about authorizers, listeners, credentials and quotas.  Pure."""

from __future__ import annotations

from kctl.admin.doctor.findings import command, listed, named
from kctl.migration.check.facts import ClusterFacts, Problems, SecurityCounts, problem
from kctl.migration.check.release_rules import by_value
from kctl.output.quantities import counted
from kctl.zookeeper.paths import sanitize

AUTHORIZER = "authorizer.class.name"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ZOOKEEPER_AUTHORIZERS = frozenset(
    {"kafka.security.auth.SimpleAclAuthorizer", "kafka.security.authorizer.AclAuthorizer"}
)
MASTER_KEY, SECRET_KEY = "delegation.token.master.key", "delegation.token.secret.key"
SECURITY_MAP = "listener.security.protocol.map"
INTER_BROKER_LISTENER, INTER_BROKER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_LISTENER = "CONTROLLER"

_CLASSES = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "kafka.metrics.reporters",
    "metric.reporters",
    "principal.builder.class",
    "replica.selector.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "security.providers",
    "ssl.engine.factory.class",
)
_OF_KAFKA = ("org.apache.kafka.", "kafka.")
_PASSWORDS = ("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password", "sasl.jaas.config")
_PEM = ("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates")


def security(facts: ClusterFacts) -> Problems:
    """Find what authorization and authentication need in KRaft."""
    yield from _authorizers(facts)
    yield from _classes(facts)
    yield from _contents(facts)
    yield from _encrypted(facts)
    yield from _listeners(facts)


def counts_of(facts: ClusterFacts) -> SecurityCounts:
    """Return what is stored: by ZooKeeper if it was read, else by the brokers."""
    stored = facts.stored
    if stored is None:
        return facts.security
    return SecurityCounts(
        len(stored.acls), len({key.user for key in stored.scram}), len(stored.quotas), len(stored.tokens)
    )


def _authorizers(facts: ClusterFacts) -> Problems:
    classes = by_value({broker_id: value for broker_id, value in facts.values_of(AUTHORIZER).items() if value})
    look = command("configs", "describe", "broker", "--property", AUTHORIZER)
    for name, ids in classes.items():
        if name in ZOOKEEPER_AUTHORIZERS:
            yield problem(
                "removed-authorizer", named("broker", ids), f"{named('broker', ids)}: {AUTHORIZER}={name}", look=look
            )
        elif not name.startswith(_OF_KAFKA):
            yield problem(
                "custom-class", named("broker", ids), f"{named('broker', ids)}: {AUTHORIZER}={name}", look=look
            )
    acls = counts_of(facts).acls
    if acls and facts.broker_values and not classes:
        yield problem(
            "acls-without-authorizer",
            "ACLs",
            f"{counted(acls, 'ACL')} {'is' if acls == 1 else 'are'} stored, and no broker has an authorizer",
            look=command("acls", "list"),
        )


def _classes(facts: ClusterFacts) -> Problems:
    for name in _CLASSES:
        for value, ids in by_value(facts.values_of(name)).items():
            foreign = [item for item in value.split(",") if item.strip() and not item.strip().startswith(_OF_KAFKA)]
            if foreign:
                yield problem(
                    "custom-class",
                    named("broker", ids),
                    f"{named('broker', ids)}: {name}={listed(foreign)}",
                    look=command("configs", "describe", "broker", "--property", name),
                )


def _contents(facts: ClusterFacts) -> Problems:
    counts = counts_of(facts)
    present = [
        counted(count, noun)
        for count, noun in (
            (counts.acls, "ACL"),
            (counts.scram_users, "SCRAM user"),
            (counts.quotas, "quota"),
            (counts.tokens, "delegation token"),
        )
        if count
    ]
    if present:
        yield problem(
            "security-contents",
            "security",
            f"{', '.join(present)} are to be carried over",
            look=command("acls", "list"),
        )
    stored = facts.stored
    if stored is not None:
        names = {name for entity in stored.quotas for _, name in entity.parts if name is not None}
        escaped = sorted(name for name in names | {key.user for key in stored.scram} if sanitize(name) != name)
        if escaped:
            yield problem(
                "escaped-names",
                listed(escaped),
                f"{counted(len(escaped), 'name')} of users or clients {'is' if len(escaped) == 1 else 'are'} stored "
                "percent-encoded",
                listed(f"{name} as {sanitize(name)}" for name in escaped),
                look=command("quotas", "describe"),
                impact=len(escaped),
            )
    old_keys = sorted(
        broker_id
        for broker_id, values in facts.broker_properties.items()
        if MASTER_KEY in values and SECRET_KEY not in values
    )
    if old_keys or (counts.tokens and not facts.broker_properties):
        yield problem(
            "delegation-tokens",
            named("broker", old_keys) if old_keys else "tokens",
            f"{named('broker', old_keys)} {'has' if len(old_keys) == 1 else 'have'} {MASTER_KEY}"
            if old_keys
            else f"{counted(counts.tokens or 0, 'delegation token')}, and the properties of the brokers are unknown",
            look=command("tokens", "describe"),
        )


def _encrypted(facts: ClusterFacts) -> Problems:
    secret = {
        str(broker_id): sorted(name for name, entry in values.items() if entry.is_dynamic and _is_password(name))
        for broker_id, values in facts.broker_properties.items()
    }
    if facts.stored is not None:
        for broker, values in facts.stored.broker_configs.items():
            key = "all" if broker is None else str(broker)
            secret[key] = sorted({*secret.get(key, ()), *filter(_is_password, values)})
    shown = [f"broker {key}: {listed(names)}" for key, names in secret.items() if names]
    if shown:
        yield problem(
            "encrypted-passwords",
            "brokers",
            "dynamic properties of brokers have passwords",
            *shown,
            look=command("configs", "describe", "broker"),
            impact=len(shown),
        )


def _is_password(name: str) -> bool:
    return name.endswith((*_PASSWORDS, *_PEM))


def protocols_of(text: str | None) -> dict[str, str]:
    """Return the security protocol of each listener in a listener.security.protocol.map."""
    pairs = (item.partition(":") for item in (text or "").split(",") if item.strip())
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def inter_broker_security(values: dict[str, str | None] | None) -> tuple[str, str]:
    """Return the security protocol between brokers, and the SASL mechanism or an empty text."""
    values = values or {}
    listener = values.get(INTER_BROKER_LISTENER)
    protocol = values.get(INTER_BROKER_PROTOCOL) or "PLAINTEXT"
    if listener:
        protocol = protocols_of(values.get(SECURITY_MAP)).get(listener.upper(), protocol)
    mechanism = values.get(INTER_BROKER_MECHANISM) or "GSSAPI"
    return protocol, mechanism if protocol.startswith("SASL_") else ""


def controller_listener_name(facts: ClusterFacts) -> str:
    """Return a name for the listener of controllers that no listener of the brokers has."""
    taken = {
        name for values in facts.broker_values.values() for name in protocols_of(values.get(SECURITY_MAP))
    }  # fmt: skip
    name = CONTROLLER_LISTENER
    while name in taken:
        name = f"KRAFT_{name}"
    return name


def _listeners(facts: ClusterFacts) -> Problems:
    if not facts.broker_values:
        return
    look = command("configs", "describe", "broker", "--property", SECURITY_MAP)
    used: dict[tuple[str, str], list[int]] = {}
    for broker_id, values in facts.broker_values.items():
        used.setdefault(inter_broker_security(dict(values)), []).append(broker_id)
    for (protocol, mechanism), ids in used.items():
        if mechanism.startswith("SCRAM-"):
            yield problem(
                "scram-between-brokers",
                named("broker", ids),
                f"{named('broker', ids)} log in to other brokers by {mechanism}",
                look=look,
            )
        yield problem(
            "controller-listener",
            named("broker", ids),
            f"brokers are connected to each other by {protocol}{f' with {mechanism}' if mechanism else ''}: choose "
            "the security of the listener of the controllers",
            f"a free name: {controller_listener_name(facts)}",
            "with an authorizer, super.users of all nodes needs the principal by which they connect to controllers: "
            "User:ANONYMOUS with PLAINTEXT"
            if facts.values_of(AUTHORIZER)
            else "",
            look=look,
        )
