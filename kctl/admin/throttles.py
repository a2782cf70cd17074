"""Replication throttles of a reassignment: which are needed, what was there before, and how to give it back.  Pure.

A throttle is two rates on every broker that takes part, and for each topic the list of replicas that they apply to,
as `partition:broker`.  Kafka's tool clears all of them on all brokers when it is done.  We write down what we set
and what was there before; on release a rate goes back to what it was, and from a list go the entries that we added.
What somebody else has set meanwhile stays.

Several reassignments may hold the same setting.  One that began later took our value for what was there before; when
we are released first, it inherits what we found (`_heir`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kctl.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kctl.admin.reassignment_plan import Move
from kctl.model import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL_REPLICAS = "*"

FORMAT_VERSION = 1

Values = Mapping[tuple[ConfigResource, str], str | None]
"""What is set for exactly that topic or broker, by property; None where nothing is."""

Changes = dict[ConfigResource, list[ConfigChange]]


@dataclass(frozen=True, slots=True)
class RateHold:
    """One rate of one broker: what it was and what we made of it."""

    broker_id: int
    name: str
    prior: str | None
    ours: str

    @property
    def setting(self) -> tuple[ConfigResource, str]:
        return ConfigResource(ResourceType.BROKER, str(self.broker_id)), self.name


@dataclass(frozen=True, slots=True)
class ListHold:
    """One list of throttled replicas: what it was, the entries that we need, and those of them that we added."""

    topic: str
    name: str
    prior: str | None
    wanted: tuple[str, ...]
    owned: tuple[str, ...]

    @property
    def setting(self) -> tuple[ConfigResource, str]:
        return ConfigResource(ResourceType.TOPIC, self.topic), self.name


@dataclass(frozen=True, slots=True)
class ThrottleRecord:
    """All that one reassignment holds, and the partitions until whose arrival it does."""

    created_ms: int
    partitions: tuple[TopicPartition, ...]
    rates: tuple[RateHold, ...] = ()
    lists: tuple[ListHold, ...] = ()

    @property
    def settings(self) -> list[tuple[ConfigResource, str]]:
        return [rate.setting for rate in self.rates] + [one.setting for one in self.lists]


@dataclass(frozen=True, slots=True)
class Release:
    """How to give back what a record holds."""

    changes: Changes
    others: list[ThrottleRecord]
    """The other records in their order, with what they inherit."""
    foreign: list[tuple[ConfigResource, str, str | None]] = field(default_factory=list)
    """Rates that somebody has changed since, with the value that stays."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The brokers that are to keep to the rate, and the entries of each list."""

    brokers: tuple[int, ...]
    lists: Mapping[tuple[str, str], tuple[str, ...]]

    @property
    def settings(self) -> list[tuple[ConfigResource, str]]:
        """All properties whose values matter before anything is set."""
        brokers = [ConfigResource(ResourceType.BROKER, str(broker_id)) for broker_id in self.brokers]
        topics = [(ConfigResource(ResourceType.TOPIC, topic), name) for topic, name in self.lists]
        return [(broker, name) for broker in brokers for name in RATES] + topics


def throttle_needs(moves: Iterable[Move]) -> Needs:
    """Leaders may be any of the present replicas, followers are those that are added; ReassignPartitionsCommand (2.8).

    Partitions to which nothing is added copy nothing and need no throttle.
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
    """The record of a throttle that is about to be set.

    `before` is the record of the same reassignment when its throttle is set again: what was there before us stays
    what it says.  Brokers whose rates are not in `present` are left out.
    """
    known_rates = {one.setting: one for one in before.rates} if before else {}
    known_lists = {one.setting: one for one in before.lists} if before else {}
    rates = []
    for broker_id in needs.brokers:
        for name in RATES:
            fresh = RateHold(broker_id, name, None, str(bytes_per_s))
            if fresh.setting in present:
                known = known_rates.pop(fresh.setting, None)
                rates.append(replace(fresh, prior=known.prior if known else present[fresh.setting]))
    lists = []
    for (topic, name), wanted in needs.lists.items():
        entry = ListHold(topic, name, None, wanted, ())
        known_list = known_lists.pop(entry.setting, None)
        value = present.get(entry.setting)
        owned = set(known_list.owned if known_list else ()) | set(missing_entries(value, wanted))
        prior = known_list.prior if known_list else value
        lists.append(replace(entry, prior=prior, owned=_sorted(owned)))
    return ThrottleRecord(
        created_ms=before.created_ms if before else now_ms,
        partitions=tuple(sorted({*partitions, *(before.partitions if before else ())})),
        rates=(*rates, *known_rates.values()),
        lists=(*lists, *known_lists.values()),
    )


def changes_to_set(record: ThrottleRecord, present: Values) -> Changes:
    """What makes the throttle of a record real."""
    changes: Changes = {}
    for rate in record.rates:
        _add(changes, rate.setting, rate.ours)
    for one in record.lists:
        value = present.get(one.setting)
        if missing := missing_entries(value, one.wanted):
            _add(changes, one.setting, ",".join([*_entries(value), *missing]))
    return changes


def release(record: ThrottleRecord, present: Values, others: Sequence[ThrottleRecord]) -> Release:
    """What gives everything back.

    A broker may tell its rates a moment late, so finding the prior value is no reason not to write it once more.
    Settings that are not in `present` could not be read and are left out.
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
    for one in record.lists:
        if one.setting not in present:
            continue
        released = set(one.owned)
        for index, other in enumerate(heirs):
            came_later = other.created_ms >= record.created_ms
            heirs[index], inherited = _inherit_entries(other, one, released, came_later=came_later)
            released -= inherited
        if released:
            rest = [entry for entry in _entries(present[one.setting]) if entry not in released]
            _add(changes, one.setting, ",".join(rest) if rest or one.prior is not None else None)
    return Release(changes, heirs, foreign)


def without(record: ThrottleRecord, settings: Iterable[tuple[ConfigResource, str]]) -> ThrottleRecord:
    """What a record still holds once `settings` are given back."""
    done = set(settings)
    return replace(
        record,
        rates=tuple(one for one in record.rates if one.setting not in done),
        lists=tuple(one for one in record.lists if one.setting not in done),
    )


def missing_entries(value: str | None, wanted: Iterable[str]) -> list[str]:
    """The wanted entries that a list does not have; none when it stands for all replicas."""
    present = _entries(value)
    return [] if ALL_REPLICAS in present[:1] else [entry for entry in wanted if entry not in present]


def record_to_json(record: ThrottleRecord) -> dict[str, Any]:
    """As it is kept in a file."""
    return {
        "version": FORMAT_VERSION,
        "created_ms": record.created_ms,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in record.partitions],
        "rates": [
            {"broker": one.broker_id, "name": one.name, "prior": one.prior, "ours": one.ours} for one in record.rates
        ],
        "lists": [
            {
                "topic": one.topic,
                "name": one.name,
                "prior": one.prior,
                "wanted": list(one.wanted),
                "owned": list(one.owned),
            }
            for one in record.lists
        ],
    }


def record_from_json(document: Mapping[str, Any]) -> ThrottleRecord:
    """The record of a file.  Raises ValueError, KeyError or TypeError when it is none that we know."""
    if document["version"] != FORMAT_VERSION:
        raise ValueError(f"version {document['version']} is not known")
    return ThrottleRecord(
        created_ms=document["created_ms"],
        partitions=tuple(TopicPartition(one["topic"], one["partition"]) for one in document["partitions"]),
        rates=tuple(RateHold(one["broker"], one["name"], one["prior"], one["ours"]) for one in document["rates"]),
        lists=tuple(
            ListHold(one["topic"], one["name"], one["prior"], tuple(one["wanted"]), tuple(one["owned"]))
            for one in document["lists"]
        ),
    )


def _heir(rate: RateHold, record: ThrottleRecord, others: Sequence[ThrottleRecord]) -> int | None:
    """The record that was set on top of ours, if there is one."""
    for index, other in enumerate(others):
        if other.created_ms >= record.created_ms and any(
            one.setting == rate.setting and one.prior == rate.ours for one in other.rates
        ):
            return index
    return None


def _inherit_rate(record: ThrottleRecord, released: RateHold) -> ThrottleRecord:
    rates = tuple(
        replace(one, prior=released.prior) if one.setting == released.setting else one for one in record.rates
    )
    return replace(record, rates=rates)


def _inherit_entries(
    record: ThrottleRecord, released: ListHold, entries: set[str], *, came_later: bool
) -> tuple[ThrottleRecord, set[str]]:
    """Entries that another record needs become its own; one that came later took ours for what was there before."""
    inherited: set[str] = set()
    lists = []
    for one in record.lists:
        if one.setting == released.setting:
            needed = entries & set(one.wanted)
            inherited |= needed
            prior = released.prior if came_later else one.prior
            lists.append(replace(one, prior=prior, owned=_sorted({*one.owned, *needed})))
        else:
            lists.append(one)
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
