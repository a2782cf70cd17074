"""The steps of both ways for one cluster, with the lines for its properties files.  Pure.

Apache's own migration: KIP-866, and "ZooKeeper to KRaft Migration" in the documentation of 3.9.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kctl.admin.doctor.findings import named
from kctl.migration.check.facts import ClusterFacts
from kctl.migration.check.kinds import Way
from kctl.migration.check.release_rules import BRIDGE_RELEASE, PROTOCOL, by_value, is_own, least_release, release_text
from kctl.migration.check.security_rules import (
    AUTHORIZER,
    INTER_BROKER_LISTENER,
    INTER_BROKER_PROTOCOL,
    SECURITY_MAP,
    STANDARD_AUTHORIZER,
    ZOOKEEPER_AUTHORIZERS,
    controller_listener_name,
    inter_broker_security,
    protocols_of,
)
from kctl.migration.target.property_table import PROPERTIES, Scope
from kctl.output.quantities import counted

BRIDGE = release_text(BRIDGE_RELEASE)
FIRST_CONTROLLER_ID = 3000
CONTROLLERS_OF_SEVERAL_BROKERS = 3
MIGRATION = "zookeeper.metadata.migration.enable"
TRACE = "TRACE"
"""A security protocol of 0.11, for tests, in its default map; later releases refuse it."""
HIDDEN = "<AS ON THE BROKERS>"
"""The value of a password: no broker shows it."""
_DONE_TEXT = "Completed migration of metadata from ZooKeeper to KRaft"


class Controller(NamedTuple):
    """A controller that is to be added."""

    node_id: int
    address: str
    """HOST:PORT."""


class FileChange(NamedTuple):
    """What a step changes in the properties file of one node."""

    node: str
    set: Mapping[str, str]
    remove: tuple[str, ...] = ()


class Step(NamedTuple):
    """A step: what to do, and how to go back from it."""

    title: str
    actions: tuple[str, ...]
    """In this order: command lines, or what to do, or what to wait for."""
    files: tuple[FileChange, ...] = ()
    way_back: str = ""


def steps_of(
    way: Way, facts: ClusterFacts, controllers: Sequence[str] = (), zookeeper: str | None = None
) -> list[Step]:
    """Return the steps of a way for this cluster.

    `controllers` are addresses of the nodes that become controllers, `zookeeper` the ensemble where no broker names it.
    """
    chosen = choose_controllers(facts, controllers)
    if way is Way.OFFLINE:
        return list(_offline(facts, chosen, zookeeper))
    return list(_bridge(facts, chosen, zookeeper))


def choose_controllers(facts: ClusterFacts, addresses: Sequence[str]) -> list[Controller]:
    """Return controllers with ids that no broker has; without addresses three, or one for a single broker."""
    brokers = {broker.broker_id for broker in facts.snapshot.brokers}
    count = CONTROLLERS_OF_SEVERAL_BROKERS if len(brokers) > 1 else 1
    places = list(addresses) or [f"CONTROLLER_HOST_{number + 1}:9093" for number in range(count)]
    first = max(FIRST_CONTROLLER_ID, max(brokers, default=0) + 1)
    return [Controller(first + at, place) for at, place in enumerate(places)]


def _bridge(facts: ClusterFacts, controllers: Sequence[Controller], zookeeper: str | None) -> Iterator[Step]:
    brokers = sorted(facts.broker_values)
    releases = [release for broker in facts.snapshot.brokers if (release := least_release(broker)) is not None]
    listener = controller_listener_name(facts)
    if is_own(facts) or (releases and min(releases) < BRIDGE_RELEASE):
        yield _to_bridge_release(facts, brokers)
    elif any(not value.startswith(BRIDGE) for value in facts.values_of(PROTOCOL).values()):
        yield Step(
            f"Raise {PROTOCOL} to {BRIDGE}",
            (f"restart one broker after the other with {PROTOCOL}={BRIDGE}",),
            tuple(FileChange(f"broker {broker_id}", {PROTOCOL: BRIDGE}) for broker_id in brokers),
            f"none below {BRIDGE}",
        )
    cluster_id = shlex.quote(facts.snapshot.cluster_id or "CLUSTER_ID")
    yield Step(
        f"Start {counted(len(controllers), 'controller')} of {BRIDGE}, to wait for the brokers",
        (
            f"on each: bin/kafka-storage.sh format --cluster-id {cluster_id} --config controller.properties",
            "on each: bin/kafka-server-start.sh controller.properties",
        ),
        tuple(
            FileChange(f"controller {controller.node_id}", _controller_lines(facts, controllers, controller, zookeeper))
            for controller in controllers
        ),
        "stop the controllers and delete their directories",
    )
    yield Step(
        "Connect the brokers to the controllers: the migration begins with the last one",
        (
            "restart one broker after the other",
            "after each: kctl topics describe --under-replicated-partitions, until it shows none",
            f"wait until the log of the active controller says: {_DONE_TEXT}",
            "check: MBean kafka.controller:type=KafkaController,name=ZkMigrationState is 1 (MIGRATION)",
        ),
        tuple(
            FileChange(
                f"broker {broker_id}",
                {
                    **({"broker.id": str(broker_id)} if _has_generated_id(facts, broker_id) else {}),
                    PROTOCOL: BRIDGE,
                    MIGRATION: "true",
                    **_quorum_lines(facts, broker_id, controllers, listener),
                },
            )
            for broker_id in brokers
        ),
        "stop the controllers; delete the znodes /controller and /migration; wait until a broker is the controller "
        "(kctl cluster describe); take these lines out and restart one broker after the other. A broker that had to be "
        "killed starts when ZooKeeper has expired its session",
    )
    yield Step(
        "Turn the brokers into brokers of KRaft",
        ("restart one broker after the other, as before",),
        tuple(
            FileChange(
                f"broker {broker_id}",
                {"process.roles": "broker", "node.id": str(broker_id), **_standard_authorizer(facts, broker_id)},
                (
                    "broker.id",
                    PROTOCOL,
                    MIGRATION,
                    *_static(facts, broker_id, lambda name: name.startswith("zookeeper.") and name != MIGRATION),
                    *_static(facts, broker_id, lambda name: name in _NOT_IN_KRAFT),
                ),
            )
            for broker_id in brokers
        ),
        "restart one broker after the other with the lines of the step before, after __cluster_metadata-0 was deleted "
        "from its metadata.log.dir; then as from that step",
    )
    yield Step(
        "End the migration: after it nobody can go back to ZooKeeper",
        (
            "wait as long as you want to be able to go back; then restart one controller after the other",
            "check: ZkMigrationState is 3 (POST_MIGRATION), then switch ZooKeeper off",
        ),
        tuple(
            FileChange(
                f"controller {controller.node_id}",
                {},
                (
                    MIGRATION,
                    *(
                        name
                        for name in _controller_lines(facts, controllers, controller, zookeeper)
                        if name.startswith("zookeeper.") and name != MIGRATION
                    ),
                ),
            )
            for controller in controllers
        ),
        "none",
    )
    yield Step(
        f"Upgrade to {facts.target}",
        (
            f"restart controllers, then brokers, one after the other, with {facts.target}, which needs Java 17",
            f"kctl features upgrade --metadata-version {facts.target}",
        ),
        tuple(
            FileChange(f"broker {broker_id}", {}, names)
            for broker_id in brokers
            if (names := _removed_in_target(facts, broker_id))
        ),
        f"{BRIDGE} until the metadata version is raised",
    )


_NOT_IN_KRAFT = frozenset({"broker.id.generation.enable", "reserved.broker.max.id", "control.plane.listener.name"})


def _to_bridge_release(facts: ClusterFacts, brokers: Sequence[int]) -> Step:
    protocols = by_value(facts.values_of(PROTOCOL))
    now = ", ".join(f"{value} ({named('broker', ids)})" for value, ids in protocols.items()) or "unknown"
    own = "stop each of kctl's brokers and start Apache Kafka on its directories; " if is_own(facts) else ""
    return Step(
        f"Upgrade the brokers to {BRIDGE}",
        (
            f"{own}restart one broker after the other with {BRIDGE}, and {PROTOCOL} as it is now: {now}",
            f"when all run: restart one broker after the other with {PROTOCOL}={BRIDGE}",
        ),
        tuple(
            FileChange(
                f"broker {broker_id}",
                {PROTOCOL: protocol} if (protocol := facts.values_of(PROTOCOL).get(broker_id)) else {},
                _static(facts, broker_id, _is_removed_before_4),
            )
            for broker_id in brokers
        ),
        f"the release before, until {PROTOCOL} is raised",
    )


def _is_removed_before_4(name: str) -> bool:
    row = PROPERTIES[Scope.BROKER].get(name)
    return row is not None and row.removed_in is not None and row.removed_in.startswith("3.")


def _removed_in_target(facts: ClusterFacts, broker_id: int) -> tuple[str, ...]:
    kept = {MIGRATION, PROTOCOL, "broker.id", *_NOT_IN_KRAFT}

    def is_removed(name: str) -> bool:
        row = PROPERTIES[Scope.BROKER].get(name)
        return (
            row is not None
            and row.removed_in is not None
            and not _is_removed_before_4(name)
            and name not in kept
            and not name.startswith("zookeeper.")
        )

    return _static(facts, broker_id, is_removed)


def _static(facts: ClusterFacts, broker_id: int, selects: Callable[[str], bool]) -> tuple[str, ...]:
    entries = facts.broker_properties.get(broker_id, {})
    return tuple(sorted(name for name, entry in entries.items() if not entry.is_dynamic and selects(name)))


def _has_generated_id(facts: ClusterFacts, broker_id: int) -> bool:
    return "broker.id" not in facts.broker_properties.get(broker_id, {})


def _quorum_lines(
    facts: ClusterFacts, broker_id: int, controllers: Sequence[Controller], listener: str
) -> dict[str, str]:
    """Return the lines by which a node finds the controllers."""
    values = dict(facts.broker_values.get(broker_id, {}))
    protocol, mechanism = inter_broker_security(values)
    known = ",".join(
        f"{name}:{security}" for name, security in protocols_of(values.get(SECURITY_MAP)).items() if name != TRACE
    )
    return {
        "controller.quorum.voters": ",".join(f"{node.node_id}@{node.address}" for node in controllers),
        "controller.listener.names": listener,
        SECURITY_MAP: f"{known},{listener}:{protocol}" if known else f"{listener}:{protocol}",
        **({"sasl.mechanism.controller.protocol": mechanism} if mechanism else {}),
    }


def _standard_authorizer(facts: ClusterFacts, broker_id: int) -> dict[str, str]:
    name = facts.values_of(AUTHORIZER).get(broker_id)
    return {AUTHORIZER: STANDARD_AUTHORIZER} if name in ZOOKEEPER_AUTHORIZERS else {}


_COPIED = (
    *("ssl.", "sasl.", "listener.name.", "super.users", "allow.everyone.if.no.acl.found", "principal.builder.class"),
    *("delegation.token.master.key", "delegation.token.secret.key", "password.encoder.", "zookeeper."),
    *("create.topic.policy.class.name", "alter.config.policy.class.name", "client.quota.callback.class"),
    *(INTER_BROKER_LISTENER, INTER_BROKER_PROTOCOL),
)
"""How the names of properties begin that a controller needs as the brokers have them."""


def _controller_lines(
    facts: ClusterFacts, controllers: Sequence[Controller], controller: Controller, zookeeper: str | None
) -> dict[str, str]:
    """Return the whole properties file of a controller that can connect to the brokers and to ZooKeeper."""
    model = min(facts.broker_values, default=-1)
    entries = facts.broker_properties.get(model, {})
    listener = controller_listener_name(facts)
    copied = {
        name: HIDDEN if entry.value is None else entry.value
        for name, entry in sorted(entries.items())
        if not entry.is_dynamic and name.startswith(_COPIED)
    }
    authorizer = facts.values_of(AUTHORIZER).get(model)
    if authorizer in ZOOKEEPER_AUTHORIZERS:
        authorizer = STANDARD_AUTHORIZER
    return {
        "process.roles": "controller",
        "node.id": str(controller.node_id),
        "listeners": f"{listener}://:{controller.address.rpartition(':')[2]}",
        **_quorum_lines(facts, model, controllers, listener),
        "log.dirs": "/var/lib/kafka-controller",
        **({AUTHORIZER: authorizer} if authorizer else {}),
        **({} if "zookeeper.connect" in copied else {"zookeeper.connect": zookeeper or "ZOOKEEPER_HOST:2181"}),
        **copied,
        MIGRATION: "true",
    }


def _offline(facts: ClusterFacts, controllers: Sequence[Controller], zookeeper: str | None) -> Iterator[Step]:
    brokers = sorted(facts.broker_values) or sorted(broker.broker_id for broker in facts.snapshot.brokers)
    ensemble = zookeeper or next(iter(facts.values_of("zookeeper.connect").values()), "ZOOKEEPER_HOST:2181")
    yield Step(
        "Stop the clients, take a fingerprint, and stop all brokers; ZooKeeper keeps running",
        (
            "kctl migrate verify --save before.json",
            *(f"stop broker {broker_id}, and wait until its process has ended" for broker_id in brokers),
        ),
        way_back="start the brokers",
    )
    yield Step(
        "Take the inventory of each broker, on its host",
        tuple(
            f"kctl migrate inventory --broker-config /etc/kafka/server.properties --output broker-{broker_id}.json"
            for broker_id in brokers
        ),
        way_back="start the brokers: nothing was changed",
    )
    inventories = " ".join(f"--inventory broker-{broker_id}.json" for broker_id in brokers)
    nodes = " ".join(
        f"--controller {controller.node_id}@{controller.address}=/var/lib/kafka-controller"
        for controller in controllers
    )
    options = f"--zookeeper {shlex.quote(ensemble)} {inventories} {nodes} --target {facts.target}"
    yield Step(
        "Make the plan",
        (f"kctl migrate plan {options} --output plan.json",),
        way_back="start the brokers: nothing was changed",
    )
    yield Step(
        "Convert each node, on its host, with this plan",
        tuple(
            f"kctl migrate convert --plan plan.json --node {node_id} --yes"
            for node_id in (*brokers, *(controller.node_id for controller in controllers))
        ),
        way_back="on each host: kctl migrate revert --plan plan.json --node ID --yes; then start the old brokers",
    )
    yield Step(
        f"Start {facts.target}: the controllers, then the brokers, with the properties files that convert has written",
        ("before clients write: kctl migrate verify --compare before.json",),
        way_back="docs/migrate.md has it, also for after clients have written",
    )
