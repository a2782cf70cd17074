"""Finds the dependents of topics that are to be deleted: groups, transactions, moves, applications, ACLs.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kctl.admin.topics.transactions import ActiveProducer
from kctl.lag.facts import GroupDescription
from kctl.model import TopicPartition
from kctl.output.quantities import counted
from kctl.security.acls import AclBinding

_STREAMS_SUFFIXES = ("-changelog", "-repartition")
_NAMED_MAX = 5


class DependentKind(StrEnum):
    """The kinds of dependents of a topic."""

    GROUP = "group"
    TRANSACTION = "transaction"
    REASSIGNMENT = "reassignment"
    ACL = "acl"
    STREAMS = "streams"
    """An application of Kafka Streams: the topic is internal to it, or it has internal topics made from the topic."""
    KAFKA = "kafka"
    """Kafka itself, for its internal topics."""


class Dependent(NamedTuple):
    """One thing that depends on a topic; `detail` is text for people."""

    kind: DependentKind
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Readings:
    """The state of a cluster in which dependents of topics are searched."""

    topics: Collection[str] = ()
    """The names of all topics of the cluster."""
    internal: Collection[str] = ()
    groups: Sequence[GroupDescription] = ()
    producers: Mapping[TopicPartition, Sequence[ActiveProducer]] = field(default_factory=dict)
    moving: Collection[TopicPartition] = ()
    acls: Sequence[AclBinding] = ()


def dependents_of(topic: str, readings: Readings) -> list[Dependent]:
    """Return the dependents of the topic: first those that use it now, then those that only name it."""
    return [
        *_kafka(topic, readings),
        *_groups(topic, readings.groups),
        *_transactions(topic, readings.producers),
        *_moves(topic, readings.moving),
        *_streams(topic, readings),
        *_acls(topic, readings.acls),
    ]


def _kafka(topic: str, readings: Readings) -> Iterator[Dependent]:
    if topic in readings.internal:
        yield Dependent(DependentKind.KAFKA, topic, "an internal topic of the brokers")


def _groups(topic: str, groups: Iterable[GroupDescription]) -> Iterator[Dependent]:
    for group in sorted(groups, key=lambda group: group.outcome.name):
        members = sum(_reads(group, index, topic) for index in range(len(group.members)))
        committed = sum(offset.tp.topic == topic and offset.committed_offset >= 0 for offset in group.offsets)
        if members or committed:
            parts = [_count(members, "active member"), _count(committed, "committed offset")]
            yield Dependent(DependentKind.GROUP, group.outcome.name, " and ".join(filter(None, parts)))


def _reads(group: GroupDescription, index: int, topic: str) -> bool:
    member = group.members[index]
    subscribed = member.subscribed_topics or ()
    return topic in subscribed or any(tp.topic == topic for tp in member.assignment)


def _transactions(topic: str, producers: Mapping[TopicPartition, Sequence[ActiveProducer]]) -> Iterator[Dependent]:
    opened = Counter(
        producer.producer_id
        for tp, found in producers.items()
        if tp.topic == topic
        for producer in found
        if producer.has_transaction
    )
    for producer_id, partitions in sorted(opened.items()):
        yield Dependent(
            DependentKind.TRANSACTION, f"producer {producer_id}", f"open in {_count(partitions, 'partition')}"
        )


def _moves(topic: str, moving: Iterable[TopicPartition]) -> Iterator[Dependent]:
    partitions = sum(tp.topic == topic for tp in moving)
    if partitions:
        yield Dependent(DependentKind.REASSIGNMENT, topic, f"{_count(partitions, 'partition')} being moved")


def _streams(topic: str, readings: Readings) -> Iterator[Dependent]:
    """Kafka Streams names its topics `<application id>-<name>-changelog`, and its group as the application."""
    for group in sorted(readings.groups, key=lambda group: group.outcome.name):
        application = group.outcome.name
        made = sorted(name for name in readings.topics if _is_internal_to(application, name))
        if _is_internal_to(application, topic):
            yield Dependent(DependentKind.STREAMS, application, "the topic is internal to this application")
        elif made and any(_groups(topic, [group])):
            shown = " ".join(made[:_NAMED_MAX]) + (" ..." if len(made) > _NAMED_MAX else "")
            yield Dependent(
                DependentKind.STREAMS, application, f"reads it and has {_count(len(made), 'internal topic')}: {shown}"
            )


def _is_internal_to(application: str, topic: str) -> bool:
    return topic.startswith(f"{application}-") and topic.endswith(_STREAMS_SUFFIXES)


def _acls(topic: str, acls: Iterable[AclBinding]) -> Iterator[Dependent]:
    principals: dict[str, list[str]] = {}
    for binding in sorted(acls):
        if binding.pattern.name == topic:
            entry = binding.entry
            principals.setdefault(entry.principal, []).append(f"{entry.permission.label} {entry.operation.label}")
    for principal, rules in principals.items():
        yield Dependent(DependentKind.ACL, principal, " and ".join(dict.fromkeys(rules)))


def _count(number: int, what: str) -> str:
    return "" if number == 0 else counted(number, what)
