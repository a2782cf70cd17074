"""Replication throttles of a reassignment: required settings, previous values, and their restoration.  Pure.

A throttle consists of two rates on every involved broker, and for each topic the list of replicas to which they apply,
as `partition:broker`.  Kafka's tool clears all of them on all brokers at the end.  kctl records the new and the
previous values; on release it restores each rate, and removes the added entries from each list.  Values changed by
others in between stay.

Several reassignments may hold the same setting.  A later one recorded the earlier one's value as the previous value; if
the earlier one is released first, the later one inherits its previous value (`_heir`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kctl.admin.placement.plan import Move
from kctl.admin.topics.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kctl.model import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL_REPLICAS = "*"

FORMAT_VERSION = 1

Values = Mapping[tuple[ConfigResource, str], str | None]
"""Values set for a topic or broker itself, by property; None if not set."""

Changes = dict[ConfigResource, list[ConfigChange]]


@dataclass(frozen=True, slots=True)
class RateHold:
    """One rate of a broker: previous and new value."""

    broker_id: int
    name: str
    prior: str | None
    ours: str

    @property
    def setting(self) -> tuple[ConfigResource, str]:
        """The broker and the name of its property."""
        return ConfigResource(ResourceType.BROKER, str(self.broker_id)), self.name


@dataclass(frozen=True, slots=True)
class ListHold:
    """One list of throttled replicas: previous value, required entries, and added entries."""

    topic: str
    name: str
    prior: str | None
    requested: tuple[str, ...]
    owned: tuple[str, ...]

    @property
    def setting(self) -> tuple[ConfigResource, str]:
        """The topic and the name of its property."""
        return ConfigResource(ResourceType.TOPIC, self.topic), self.name


@dataclass(frozen=True, slots=True)
class ThrottleRecord:
    """All settings held by one reassignment, and its partitions."""

    created_ms: int
    partitions: tuple[TopicPartition, ...]
    rates: tuple[RateHold, ...] = ()
    lists: tuple[ListHold, ...] = ()

    @property
    def settings(self) -> list[tuple[ConfigResource, str]]:
        """All properties of brokers and topics that the reassignment has set."""
        return [rate.setting for rate in self.rates] + [list_hold.setting for list_hold in self.lists]


@dataclass(frozen=True, slots=True)
class Release:
    """The changes that release a record."""

    changes: Changes
    others: list[ThrottleRecord]
    """The other records in their order, with inherited values."""
    foreign: list[tuple[ConfigResource, str, str | None]] = field(default_factory=list)
    """Rates changed by others since, with their values, which stay."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Brokers to throttle, and the required entries of each list."""

    brokers: tuple[int, ...]
    lists: Mapping[tuple[str, str], tuple[str, ...]]

    @property
    def settings(self) -> list[tuple[ConfigResource, str]]:
        """All properties whose present values are required."""
        brokers = [ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in self.brokers]
        topics = [(ConfigResource(ResourceType.TOPIC, topic), name) for topic, name in self.lists]
        return [(broker, name) for broker in brokers for name in RATES] + topics


def throttle_needs(moves: Iterable[Move]) -> Needs:
    """Throttle all present replicas as leaders and added ones as followers.  ReassignPartitionsCommand (2.8).

    Partitions without added replicas copy nothing and need no throttle.
    """
    brokers: set[int] = set()
    lists: dict[tuple[str, str], tuple[str, ...]] = {}
    for move in sorted(moves, key=lambda move: move.tp):
        if not move.adding:
            continue
        brokers.update(move.current, move.adding)
        for name, replicas in ((LEADER_REPLICAS, move.current), (FOLLOWER_REPLICAS, move.adding)):
            entries = tuple(f"{move.tp.partition}:{replica}" for replica in sorted(replicas))
            lists[move.tp.topic, name] = lists.get((move.tp.topic, name), ()) + entries
    return Needs(tuple(sorted(brokers)), lists)


def hold(
    needs: Needs,
    bytes_per_s: int,
    present: Values,
    *,
    partitions: Iterable[TopicPartition],
    now_ms: int,
    before: ThrottleRecord | None = None,
) -> ThrottleRecord:
    """Return the record of a throttle to be set.

    `before` is the record of the same reassignment if its throttle is changed; its previous values are kept.  Brokers
    whose rates are not in `present` are omitted.
    """
    known_rates = {rate_hold.setting: rate_hold for rate_hold in before.rates} if before else {}
    known_lists = {list_hold.setting: list_hold for list_hold in before.lists} if before else {}
    rates = []
    for broker_id in needs.brokers:
        for name in RATES:
            fresh = RateHold(broker_id, name, None, str(bytes_per_s))
            if fresh.setting in present:
                known = known_rates.pop(fresh.setting, None)
                rates.append(replace(fresh, prior=known.prior if known else present[fresh.setting]))
    lists = []
    for (topic, name), requested in needs.lists.items():
        entry = ListHold(topic, name, None, requested, ())
        known_list = known_lists.pop(entry.setting, None)
        value = present.get(entry.setting)
        owned = set(known_list.owned if known_list else ()) | set(missing_entries(value, requested))
        prior = known_list.prior if known_list else value
        lists.append(replace(entry, prior=prior, owned=_sorted(owned)))
    return ThrottleRecord(
        created_ms=before.created_ms if before else now_ms,
        partitions=tuple(sorted({*partitions, *(before.partitions if before else ())})),
        rates=(*rates, *known_rates.values()),
        lists=(*lists, *known_lists.values()),
    )


def changes_to_set(record: ThrottleRecord, present: Values) -> Changes:
    """Return the config changes that set the throttle of a record."""
    changes: Changes = {}
    for rate in record.rates:
        _add(changes, rate.setting, rate.ours)
    for list_hold in record.lists:
        value = present.get(list_hold.setting)
        if missing := missing_entries(value, list_hold.requested):
            _add(changes, list_hold.setting, ",".join([*_entries(value), *missing]))
    return changes


def release(record: ThrottleRecord, present: Values, others: Sequence[ThrottleRecord]) -> Release:
    """Return the config changes that release a record.

    A broker may return stale rates, so the previous value is written even if it seems to be set already.  Settings
    that are not in `present` could not be read and are omitted.
    """
    changes: Changes = {}
    heirs = list(others)
    foreign: list[tuple[ConfigResource, str, str | None]] = []
    for rate in record.rates:
        if rate.setting not in present:
            continue
        value = present[rate.setting]
        heir = _heir(rate, record, heirs)
        if heir is not None:
            heirs[heir] = _inherit_rate(heirs[heir], rate)
        elif value in {rate.ours, rate.prior}:
            _add(changes, rate.setting, rate.prior)
        else:
            foreign.append((*rate.setting, value))
    for list_hold in record.lists:
        if list_hold.setting not in present:
            continue
        released = set(list_hold.owned)
        for index, other in enumerate(heirs):
            came_later = other.created_ms >= record.created_ms
            heirs[index], inherited = _inherit_entries(other, list_hold, released, came_later=came_later)
            released -= inherited
        if released:
            rest = [entry for entry in _entries(present[list_hold.setting]) if entry not in released]
            _add(changes, list_hold.setting, ",".join(rest) if rest or list_hold.prior is not None else None)
    return Release(changes, heirs, foreign)


def without(record: ThrottleRecord, settings: Iterable[tuple[ConfigResource, str]]) -> ThrottleRecord:
    """Return the record without the released `settings`."""
    done = set(settings)
    return replace(
        record,
        rates=tuple(rate_hold for rate_hold in record.rates if rate_hold.setting not in done),
        lists=tuple(list_hold for list_hold in record.lists if list_hold.setting not in done),
    )


def missing_entries(value: str | None, requested: Iterable[str]) -> list[str]:
    """Return the required entries missing in a list; none if it stands for all replicas."""
    present = _entries(value)
    return [] if ALL_REPLICAS in present[:1] else [entry for entry in requested if entry not in present]


def record_to_json(record: ThrottleRecord) -> dict[str, Any]:
    """Format a record for its file."""
    return {
        "version": FORMAT_VERSION,
        "created_ms": record.created_ms,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in record.partitions],
        "rates": [
            {"broker": rate_hold.broker_id, "name": rate_hold.name, "prior": rate_hold.prior, "ours": rate_hold.ours}
            for rate_hold in record.rates
        ],
        "lists": [
            {
                "topic": list_hold.topic,
                "name": list_hold.name,
                "prior": list_hold.prior,
                "wanted": list(list_hold.requested),
                "owned": list(list_hold.owned),
            }
            for list_hold in record.lists
        ],
    }


def record_from_json(document: Mapping[str, Any]) -> ThrottleRecord:
    """Parse a record.  Raises ValueError, KeyError or TypeError if it is invalid."""
    if document["version"] != FORMAT_VERSION:
        raise ValueError(f"version {document['version']} is not supported")
    return ThrottleRecord(
        created_ms=document["created_ms"],
        partitions=tuple(
            TopicPartition(partition["topic"], partition["partition"]) for partition in document["partitions"]
        ),
        rates=tuple(
            RateHold(entry["broker"], entry["name"], entry["prior"], entry["ours"]) for entry in document["rates"]
        ),
        lists=tuple(
            ListHold(entry["topic"], entry["name"], entry["prior"], tuple(entry["wanted"]), tuple(entry["owned"]))
            for entry in document["lists"]
        ),
    )


def _heir(rate: RateHold, record: ThrottleRecord, others: Sequence[ThrottleRecord]) -> int | None:
    """Return the record whose previous value is the one set by this record, or None."""
    for index, other in enumerate(others):
        if other.created_ms >= record.created_ms and any(
            rate_hold.setting == rate.setting and rate_hold.prior == rate.ours for rate_hold in other.rates
        ):
            return index
    return None


def _inherit_rate(record: ThrottleRecord, released: RateHold) -> ThrottleRecord:
    rates = tuple(
        replace(rate_hold, prior=released.prior) if rate_hold.setting == released.setting else rate_hold
        for rate_hold in record.rates
    )
    return replace(record, rates=rates)


def _inherit_entries(
    record: ThrottleRecord, released: ListHold, entries: set[str], *, came_later: bool
) -> tuple[ThrottleRecord, set[str]]:
    """Pass entries to other records that require them, and that saw them as previous entries."""
    inherited: set[str] = set()
    lists = []
    for list_hold in record.lists:
        if list_hold.setting == released.setting:
            needed = entries & set(list_hold.requested)
            inherited |= needed
            prior = released.prior if came_later else list_hold.prior
            lists.append(replace(list_hold, prior=prior, owned=_sorted({*list_hold.owned, *needed})))
        else:
            lists.append(list_hold)
    return replace(record, lists=tuple(lists)), inherited


def _add(changes: Changes, setting: tuple[ConfigResource, str], value: str | None) -> None:
    resource, name = setting
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    changes.setdefault(resource, []).append(ConfigChange(name, operation, value))


def _entries(value: str | None) -> list[str]:
    return [entry.strip() for entry in (value or "").split(",") if entry.strip()]


def _sorted(entries: Iterable[str]) -> tuple[str, ...]:
    def numbers(entry: str) -> Iterator[int]:
        return map(int, entry.split(":"))

    return tuple(sorted(entries, key=lambda entry: tuple(numbers(entry))))
