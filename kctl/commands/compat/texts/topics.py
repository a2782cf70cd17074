"""The output of Kafka's kafka-topics, byte for byte.  Pure.

TopicCommand of 2.8, 3.9 and 4.3; tests compare with the tools themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kctl.admin.placement.reassignment import Ongoing
from kctl.admin.topics.configs import ConfigEntry
from kctl.admin.topics.topics import EligibleLeaders
from kctl.client.metadata import Partition, Topic
from kctl.commands.compat.texts.java import KAFKA_3, KAFKA_28, java_order
from kctl.model import NO_LEADER, TopicPartition, uuid_text

_DEFAULT = "DEFAULT_CONFIG"
_COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both.\n"
)


def listed(names: Iterable[str]) -> str:
    """Return the output of --list."""
    return "\n".join(sorted(names)) + "\n"


def created(name: str) -> str:
    """Return the output of --create."""
    return (_COLLISION if "." in name or "_" in name else "") + f"Created topic {name}.\n"


def failed(message: str) -> str:
    """Return the output if a topic cannot be created or described."""
    return f"Error while executing topic command : {message}\n"


def missing(compat: str, name: str) -> str:
    """Return the output of --describe for a topic that is not listed; 3.9 prints its name as an Optional of Java."""
    shown = f"Optional[{name}]" if compat == KAFKA_3 else name
    return failed(f"Topic '{shown}' does not exist as expected")


def with_overrides(
    topics: Sequence[Topic],
    configs: Mapping[str, Sequence[ConfigEntry]],
    ongoing: Mapping[TopicPartition, Ongoing],
) -> str:
    """Return the output of --describe --topics-with-overrides: lines of topics with a property whose value is no
    default.

    As in Kafka's tool, a value that is set for brokers counts too.
    """
    by_name = {topic.name: topic for topic in topics}
    names = [name for name in _in_order(by_name) if any(config.source != _DEFAULT for config in configs.get(name, ()))]
    return "".join(f"{_topic_line(by_name[name], configs[name], ongoing)}\n" for name in names)


def _in_order(by_name: Mapping[str, Topic]) -> list[str]:
    """Return the order of a map of futures, from which a map of the results is made."""
    return java_order(java_order(sorted(by_name), room=len(by_name)), room=len(by_name))


def described(
    compat: str,
    topics: Sequence[Topic],
    configs: Mapping[str, Sequence[ConfigEntry]],
    ongoing: Mapping[TopicPartition, Ongoing],
    selected: Mapping[str, Sequence[int]] | None = None,
    eligible: Mapping[TopicPartition, EligibleLeaders] | None = None,
) -> str:
    """Return the output of --describe; `selected` are the partitions that a filter selects, which come without topic
    lines.

    `configs` are all properties of the topics, in the order of the response.  `eligible` are the eligible leader
    replicas, of brokers that return them.
    """
    by_name = {topic.name: topic for topic in topics}
    lines: list[str] = []
    for topic in (by_name[name] for name in _in_order(by_name)):
        if selected is None:
            lines.append(_topic_line(topic, configs.get(topic.name, ()), ongoing))
        lines += [
            _partition_line(compat, topic.name, partition, ongoing.get(place), (eligible or {}).get(place))
            for partition in topic.partitions
            if selected is None or partition.partition in selected.get(topic.name, ())
            for place in (TopicPartition(topic.name, partition.partition),)
        ]
    return "".join(f"{line}\n" for line in lines)


def _topic_line(topic: Topic, entries: Sequence[ConfigEntry], ongoing: Mapping[TopicPartition, Ongoing]) -> str:
    by_name = {entry.name: entry for entry in entries}
    overridden = [by_name[name] for name in java_order(by_name) if by_name[name].source != _DEFAULT]
    first = topic.partitions[0]
    adding = ongoing[TopicPartition(topic.name, 0)].adding if TopicPartition(topic.name, 0) in ongoing else ()
    cells = [
        f"Topic: {topic.name}",
        *([f"TopicId: {uuid_text(topic.topic_id)}"] if topic.topic_id.int else []),
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {len(first.replicas) - len(adding)}",
        "Configs: " + ",".join(f"{config.name}={_java_text(config.value)}" for config in overridden),
    ]
    return "\t".join(cells)


def _partition_line(
    compat: str, name: str, partition: Partition, ongoing: Ongoing | None, eligible: EligibleLeaders | None
) -> str:
    cells = [
        "",
        f"Topic: {name}",
        f"Partition: {partition.partition}",
        f"Leader: {'none' if partition.leader == NO_LEADER else partition.leader}",
        f"Replicas: {_numbers(partition.replicas)}",
        f"Isr: {_numbers(partition.isr)}",
    ]
    if ongoing is not None:
        cells += [f"Adding Replicas: {_numbers(ongoing.adding)}", f"Removing Replicas: {_numbers(ongoing.removing)}"]
    if compat != KAFKA_28:
        elr, last_known = ("N/A", "N/A") if eligible is None else map(_numbers, eligible)
        cells += [f"Elr: {elr}", f"LastKnownElr: {last_known}"]
    return "\t".join(cells)


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _java_text(value: str | None) -> str:
    return "null" if value is None else value
