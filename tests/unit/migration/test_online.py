"""A migration without a stop: what is removed, its document, and offsets of groups when records are gone."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from kctl.admin.copy.stretches import OffsetMap
from kctl.admin.state.diff import PresentState, PresentTopic
from kctl.admin.state.document import DesiredState, DesiredTopic
from kctl.admin.topics.offsets import OffsetRange
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.consuming.committed_offsets import CommittedOffset
from kctl.client.consuming.fetching.batches import FetchLimits
from kctl.client.consuming.positions import Position
from kctl.errors import UsageError
from kctl.migration.online.group_offsets import carried_from, translate
from kctl.migration.online.mirroring import Mirror, MirroredPartition, Names
from kctl.migration.online.plan import OnlinePlan, Selection, format_plan, parse_plan
from kctl.migration.online.settings import removals
from kctl.model import TopicPartition
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tests.unit.client.fake_cluster import FakeCluster, FakePartition

TP = TopicPartition("orders", 0)
LIMITS = FetchLimits(max_wait_ms=1)


def acl(principal: str) -> AclBinding:
    pattern = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    return AclBinding(pattern, AclEntry(principal, "*", Operation.READ, Permission.ALLOW))


def test_only_what_the_source_had_and_has_no_more_is_removed() -> None:
    alice, bob, of_target = acl("User:alice"), acl("User:bob"), acl("User:target")
    entity = (("user", "shop"),)
    before = DesiredState(
        {"orders": DesiredTopic(1, 1, {"retention.ms": "1", "segment.ms": "2"}), "gone": DesiredTopic(1, 1, {})},
        [alice, bob],
        {entity: {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}},
    )
    now = DesiredState(
        {"orders": DesiredTopic(1, 1, {"segment.ms": "2"})}, [bob], {entity: {"consumer_byte_rate": 2.0}}
    )
    configs = {"retention.ms": "1", "segment.ms": "2", "max.message.bytes": "9"}
    present = PresentState(
        {"orders": PresentTopic(1, frozenset({1}), configs)},
        [alice, bob, of_target],
        {entity: {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0, "request_percentage": 5.0}},
    )
    changes = removals(before, now, present)
    assert [(change.target, change.item) for change in changes] == [
        ("orders", "retention.ms"),
        (alice, None),
        (entity, "producer_byte_rate"),
    ]
    assert removals(before, DesiredState({}, None, None), present) == []  # ACLs and quotas that could not be read


def test_a_plan_is_read_as_it_was_written_and_a_changed_one_is_refused() -> None:
    state = DesiredState({"orders": DesiredTopic(3, 1, {"retention.ms": "-1"})}, [acl("User:alice")], None)
    plan = OnlinePlan("old:9092", "new:9092", "a", "b", Selection(("shop-*", "b?"), ("shop-x",)), Selection(), state)
    text = format_plan(plan)
    assert parse_plan(json.loads(text), "move.json") == plan
    for wrong in (text.replace("new:9092", "other:9092"), text.replace('"version": 1', '"version": 2'), "[]"):
        with pytest.raises(UsageError, match=r"move\.json"):
            parse_plan(json.loads(wrong), "move.json")
    names = ["shop-a", "shop-x", "b1", "b", "xshop-a", "b12"]
    assert [name for name in names if plan.topics.has(name)] == ["shop-a", "b1"]


def test_commits_of_a_migration_are_told_from_those_of_the_group() -> None:
    assert carried_from(CommittedOffset(5, metadata="copied from orders-0 at 17")) == 17
    for metadata in ("", "copied from orders-0 at ", "copied from orders-0 at 1x", "mine", "copied from at 1"):
        assert carried_from(CommittedOffset(5, metadata=metadata)) is None


def append(log: FakePartition, offset: int, value: int) -> None:
    log.end = offset
    log.append(build_batch([Record(0, 1, b"k", b"%d" % value, ())]))


class Copy:
    """A partition with gaps, its copy with markers, and what compaction has left of both."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.places: dict[int, int] = {}
        self.map = OffsetMap()
        self.map.begin(0, 0)
        source = target = 0
        for _ in range(6):
            for _ in range(chance.randrange(1, 7)):
                source += chance.choice((0, 0, 0, 1, 2))
                self.map.sent(source)
                self.map.delivered(target, 1)
                self.places[source] = target
                source, target = source + 1, target + 1
            source, target = source + chance.randrange(2), target + 1
        kept = [stretch for stretch in self.map.stretches[1:] if chance.random() < 0.3]
        self.map = OffsetMap([self.map.stretches[0], *kept])
        removed = 0.0 if seed % 2 else 0.3
        self.here = [offset for offset in self.places if chance.random() >= removed]
        self.there = [offset for offset in self.places if chance.random() >= removed]
        self.ends = source + 1, target + 1

    def fill(self, source: FakeCluster, target: FakeCluster) -> None:
        for cluster, offsets, end, at in (
            (source, self.here, self.ends[0], lambda offset: offset),
            (target, self.there, self.ends[1], self.places.__getitem__),
        ):
            log = cluster.create(TP.topic)[0]
            for offset in offsets:
                append(log, at(offset), offset)
            log.end = end - 1
            log.append(build_batch([Record(0, 1, b"\0\0\0\1", b"\0" * 6, ())], is_control=True))


def check(copy: Copy, offset: int, outcome: tuple[int, bool]) -> None:
    place, is_exact = outcome
    read = [source for source in copy.there if copy.places[source] >= place]
    following = [source for source in copy.here if source >= offset]
    if not following:
        assert all(source >= offset for source in read)
        return
    wanted = [source for source in copy.there if source >= following[0]]
    if is_exact:
        # What lies between is gone from the source only: there, the group would not read it either.
        assert read in (wanted, [source for source in copy.there if source >= offset])
    else:
        assert following[0] not in copy.there
        assert set(read) >= set(wanted)


def test_a_group_continues_at_the_same_record_whatever_either_side_has_removed() -> None:
    async def translated(source: FakeCluster, target: FakeCluster, copy: Copy) -> None:
        async with (
            ClusterClient(source.settings(), AsyncioTransport()) as here,
            ClusterClient(target.settings(), AsyncioTransport()) as there,
        ):
            mirror = Mirror(here, there, Names.of("a"), lambda _: True, limits=LIMITS)
            range_ = OffsetRange(0, copy.ends[0])
            mirror.partitions[TP] = MirroredPartition(Position(copy.ends[0]), copy.map, range_, copy.ends[0])
            for offset in range(copy.ends[0] + 1):
                check(copy, offset, await translate(mirror, TP, copy.map.pair_before(offset), offset))

    for seed in range(8):
        copy = Copy(seed)
        with FakeCluster() as source, FakeCluster() as target:
            copy.fill(source, target)
            asyncio.run(translated(source, target, copy))
