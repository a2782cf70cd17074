"""The fingerprint of a cluster, its document, and the comparison of two of them.

Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from kctl.errors import UsageError
from kctl.migration.documents import canonical_json, digest_of_json
from kctl.migration.target.properties import translate_topic
from kctl.model import TopicPartition

FINGERPRINT_KIND = "kctl-migration-fingerprint"
VERSION = 1


class Subject(StrEnum):
    """What an item of a fingerprint is about."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    REPLICAS = "replicas"
    TOPIC_CONFIG = "topic config"
    BROKER_CONFIG = "broker config"
    GROUP_OFFSET = "group offset"
    ACL = "acl"
    SCRAM = "scram"
    QUOTA = "quota"
    TOKEN = "token"  # noqa: S105 - what is compared
    TRANSACTION = "transaction"
    RECORDS = "records"
    COMMITTED_RECORDS = "committed records"


class Item(NamedTuple):
    """The key of a value in a fingerprint."""

    subject: Subject
    name: str


class Range(NamedTuple):
    """The offsets [start, end) of a partition that are hashed."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Values by item, and what could not be read.  No value is a secret."""

    values: Mapping[Item, str]
    unread: Mapping[str, str]
    """The reason by what was not read: a subject, or the name of a partition."""
    ranges: Mapping[Subject, Mapping[TopicPartition, Range]]
    """What was hashed, for each of the subjects with records."""


class Status(StrEnum):
    """The result for an item."""

    EQUAL = "equal"
    TRANSLATED = "translated"
    """4.x has the property in another form, as the plan says."""
    DIFFERS = "differs"
    MISSING = "missing"
    NEW = "new"
    """It was not there before."""
    NOT_COMPARED = "not compared"


class Compared(NamedTuple):
    """One item of both fingerprints."""

    subject: str
    name: str
    status: Status
    before: str | None
    after: str | None


def compare(before: Fingerprint, after: Fingerprint) -> list[Compared]:
    """Return the result for each item of both, and for what one of them could not read."""
    unread = dict(after.unread) | dict(before.unread)
    compared = [
        Compared(what, "", Status.NOT_COMPARED, before.unread.get(what), after.unread.get(what))
        for what in sorted(unread)
    ]
    translated = _translated(before)
    for item in sorted(before.values.keys() | after.values.keys()):
        if _is_unread(item, unread):
            continue
        old, new = before.values.get(item), after.values.get(item)
        compared.append(Compared(item.subject, item.name, _status(item, old, new, translated), old, new))
    return compared


def _is_unread(item: Item, unread: Mapping[str, str]) -> bool:
    """Return whether the subject, the item, or the topic or group that its name begins with could not be read."""
    owner = item.name.rpartition(" ")[0]
    return bool({item.subject.value, f"{item.subject} {item.name}", f"{item.subject} {owner}"} & unread.keys())


def _status(item: Item, old: str | None, new: str | None, translated: Mapping[Item, str | None]) -> Status:
    if old == new:
        return Status.EQUAL
    if item in translated and translated[item] == new:
        return Status.TRANSLATED
    return Status.MISSING if new is None else Status.NEW if old is None else Status.DIFFERS


def _translated(before: Fingerprint) -> dict[Item, str | None]:
    """Return the properties of topics that 4.x has in another form, None for those that it does not have."""
    configs: dict[str, dict[str, str]] = defaultdict(dict)
    for item, value in before.values.items():
        if item.subject is Subject.TOPIC_CONFIG:
            topic, _, name = item.name.partition(" ")
            configs[topic][name] = value
    changed: dict[Item, str | None] = {}
    for topic, config in configs.items():
        carried, _ = translate_topic(config)
        for name in carried.keys() | config.keys():
            if carried.get(name) != config.get(name):
                changed[Item(Subject.TOPIC_CONFIG, f"{topic} {name}")] = carried.get(name)
    return changed


def counts(compared: list[Compared]) -> Iterator[tuple[str, Status, int]]:
    """Yield how many items of each subject have each status."""
    for (subject, status), count in sorted(Counter((row.subject, row.status) for row in compared).items()):
        yield subject, status, count


def is_different(compared: list[Compared]) -> bool:
    """Return whether something is lost or differs."""
    return any(row.status in {Status.DIFFERS, Status.MISSING} for row in compared)


def fingerprint_text(fingerprint: Fingerprint) -> str:
    """Return the document."""
    document = {
        "kind": FINGERPRINT_KIND,
        "version": VERSION,
        "values": [[item.subject.value, item.name, value] for item, value in sorted(fingerprint.values.items())],
        "unread": dict(fingerprint.unread),
        "ranges": {
            subject.value: [[tp.topic, tp.partition, *range_] for tp, range_ in sorted(ranges.items())]
            for subject, ranges in fingerprint.ranges.items()
        },
    }
    return canonical_json(document | {"digest": digest_of_json(document)}) + "\n"


def parse_fingerprint(document: Any, name: str) -> Fingerprint:
    """Return the fingerprint in a document.  Raises UsageError, naming the file `name`."""
    try:
        rest = {key: value for key, value in document.items() if key != "digest"}
        if document["kind"] != FINGERPRINT_KIND or document["version"] != VERSION:
            raise ValueError(f"its kind is not {FINGERPRINT_KIND}, version {VERSION}")
        if digest_of_json(rest) != document["digest"]:
            raise ValueError("it was changed or is incomplete: its digest differs")
        return Fingerprint(
            {Item(Subject(subject), str(key)): str(value) for subject, key, value in document["values"]},
            {str(what): str(reason) for what, reason in document["unread"].items()},
            {
                Subject(subject): {
                    TopicPartition(str(topic), int(partition)): Range(int(start), int(end))
                    for topic, partition, start, end in ranges
                }
                for subject, ranges in document["ranges"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{name} is not a fingerprint of 'kctl migrate verify --save': {type(error).__name__}: {error}"
        ) from None
