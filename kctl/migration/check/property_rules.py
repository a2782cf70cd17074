"""Rules about properties of topics and brokers that the target refuses, has forgotten or changed.  Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kctl.admin.doctor.findings import command, listed, named
from kctl.migration.check.facts import BrokerProperty, ClusterFacts, Problems, problem
from kctl.migration.target.property_table import (
    PROPERTIES,
    SEGMENT_BYTES_MIN,
    Property,
    Scope,
    is_removed,
    minimum_text,
    new_default,
    refusal_of,
)
from kctl.output.quantities import counted

BROKER_ID = "broker.id"
NO_ID = "-1"


def properties(facts: ClusterFacts) -> Problems:
    """Find properties that stop brokers of the target, or that mean something else there."""
    yield from _refused_topic_values(facts)
    yield from _refused_broker_values(facts)
    yield from _generated_ids(facts)
    yield from _forgotten_topic_properties(facts)
    yield from _forgotten_broker_properties(facts)
    yield from _changed_defaults(facts)


def all_topic_properties(facts: ClusterFacts) -> Mapping[str, Mapping[str, str]]:
    """Return the own properties of topics: from the brokers, and from ZooKeeper those that they do not show."""
    if facts.stored is None:
        return facts.topic_properties
    stored = {name: topic.config for name, topic in facts.stored.topics.items()}
    return {
        name: {**stored.get(name, {}), **facts.topic_properties.get(name, {})}
        for name in {**stored, **facts.topic_properties}
    }


def _refused_topic_values(facts: ClusterFacts) -> Problems:
    topics: dict[tuple[str, str], list[str]] = defaultdict(list)
    own = all_topic_properties(facts)
    for topic, values in sorted(own.items()):
        for name, value in values.items():
            row = PROPERTIES[Scope.TOPIC].get(name)
            refusal = None if row is None else refusal_of(row, value, facts.target)
            if refusal is not None:
                topics[name, refusal].append(topic)
    for (name, refusal), names in topics.items():
        yield problem(
            "small-segments" if name == "segment.bytes" and _is_too_small(refusal) else "refused-topic-value",
            listed(names),
            f"{name} of {counted(len(names), 'topic')} has a value that brokers of {facts.target} refuse: {refusal}",
            listed(f"{topic}: {name}={own[topic][name]}" for topic in names),
            look=command("configs", "describe", "topic", names[0], "--property", name),
            repair=f"kctl configs alter topic {names[0]} --set {name}=VALUE, or --delete {name}"
            + (f"; the same for {counted(len(names) - 1, 'other topic')}" if len(names) > 1 else ""),
            impact=len(names),
        )


def _is_too_small(refusal: str) -> bool:
    return refusal == minimum_text(SEGMENT_BYTES_MIN)


def _refused_broker_values(facts: ClusterFacts) -> Problems:
    for (row, value), ids in _brokers_by_value(facts).items():
        refusal = None if value is None else refusal_of(row, value, facts.target)
        if refusal is None:
            continue
        is_dynamic = any(facts.broker_properties[broker_id][row.name].is_dynamic for broker_id in ids)
        yield problem(
            "small-segments" if row.name == "log.segment.bytes" and _is_too_small(refusal) else "refused-broker-value",
            named("broker", ids),
            f"{row.name} of {named('broker', ids)} has a value that {facts.target} refuses: {refusal}",
            f"{row.name}={value}",
            look=command("configs", "describe", "broker", "--property", row.name),
            repair=f"kctl configs alter broker --delete {row.name}"
            if is_dynamic
            else f"change {row.name} in the properties files of {named('broker', ids)}",
            impact=len(ids),
        )


def _forgotten_topic_properties(facts: ClusterFacts) -> Problems:
    topics: dict[Property, list[str]] = defaultdict(list)
    for topic, values in sorted(all_topic_properties(facts).items()):
        for name in values:
            row = PROPERTIES[Scope.TOPIC].get(name)
            if row is not None and is_removed(row, facts.target):
                topics[row].append(topic)
    for row, names in topics.items():
        yield problem(
            "forgotten-topic-property",
            listed(names),
            f"{counted(len(names), 'topic')} {'has' if len(names) == 1 else 'have'} {row.name}, which {facts.target} "
            "does not have",
            f"instead: {row.instead}",
            listed(names),
            look=command("configs", "describe", "topic", names[0], "--property", row.name),
            impact=len(names),
        )


def _forgotten_broker_properties(facts: ClusterFacts) -> Problems:
    brokers: dict[Property, set[int]] = defaultdict(set)
    for (row, _), ids in _brokers_by_value(facts).items():
        if is_removed(row, facts.target):
            brokers[row].update(ids)
    if brokers:
        everywhere = {broker_id for ids in brokers.values() for broker_id in ids}
        names = [row.name for row in brokers]
        yield problem(
            "forgotten-broker-property",
            named("broker", everywhere),
            f"{named('broker', everywhere)} {'has' if len(everywhere) == 1 else 'have'} "
            f"{counted(len(names), 'property', 'properties')} that {facts.target} does not have",
            *(f"{row.name} ({named('broker', ids)}); instead: {row.instead}" for row, ids in brokers.items()),
            look=command("configs", "describe", "broker"),
            impact=len(names),
        )


def _brokers_by_value(facts: ClusterFacts) -> dict[tuple[Property, str | None], list[int]]:
    """Return the brokers that have each property of the table, by its value, in the order of the table."""
    brokers: dict[tuple[Property, str | None], list[int]] = defaultdict(list)
    for row in PROPERTIES[Scope.BROKER].values():
        for broker_id, values in facts.broker_properties.items():
            entry: BrokerProperty | None = values.get(row.name)
            if entry is not None:
                brokers[row, entry.value].append(broker_id)
    return brokers


def _generated_ids(facts: ClusterFacts) -> Problems:
    generated = sorted(
        broker_id
        for broker_id, values in facts.broker_values.items()
        if values.get(BROKER_ID) is not None and BROKER_ID not in facts.broker_properties.get(broker_id, {})
    )
    if generated:
        yield problem(
            "generated-broker-id",
            named("broker", generated),
            f"the {'id' if len(generated) == 1 else 'ids'} of {named('broker', generated)} "
            f"{'is' if len(generated) == 1 else 'are'} not in the properties of the broker",
            look=command("configs", "describe", "broker", "--property", BROKER_ID),
            repair="; ".join(f"broker.id={broker_id}" for broker_id in generated[:5])
            + ": write it into the properties",
            impact=len(generated),
        )


def _changed_defaults(facts: ClusterFacts) -> Problems:
    topics = all_topic_properties(facts)
    for row in PROPERTIES[Scope.TOPIC].values():
        default = new_default(row, facts.target)
        if default is None or not topics:
            continue
        without = [name for name, values in topics.items() if row.name not in values]
        set_by_broker = any(f"log.{row.name}" in values for values in facts.broker_properties.values())
        if without and not set_by_broker:
            yield problem(
                "changed-default",
                row.name,
                f"{row.name} is {default} by default in {facts.target}: {row.effect}",
                f"{counted(len(without), 'topic')} {'does' if len(without) == 1 else 'do'} not set it",
                look=command("configs", "describe", "topic", min(without)),
                repair=f"log.{row.name} in the properties of the brokers keeps the old value for all topics",
                impact=len(without),
            )
