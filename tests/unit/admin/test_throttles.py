"""Throttles: required settings, previous settings, and their restoration."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kctl.admin.placement.plan import Move
from kctl.admin.placement.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATES,
    Changes,
    ThrottleRecord,
    Values,
    changes_to_set,
    hold,
    record_from_json,
    record_to_json,
    release,
    throttle_needs,
)
from kctl.admin.topics.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kctl.model import TopicPartition

TP = TopicPartition("orders", 0)
OTHER_TP = TopicPartition("orders", 1)
TOPIC = ConfigResource(ResourceType.TOPIC, "orders")
MOVE = Move(TP, target=(1, 2), current=(0, 1), leader=0)
OTHER_MOVE = Move(OTHER_TP, target=(2,), current=(0,), leader=0)


def broker(number: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(number))


class Cluster:
    """Properties and records, as set by throttles."""

    def __init__(self, values: Values | None = None) -> None:
        self.values: dict[tuple[ConfigResource, str], str | None] = dict(values or {})

    def throttle(
        self, *moves: Move, rate: int, now_ms: int = 0, before: ThrottleRecord | None = None
    ) -> ThrottleRecord:
        needs = throttle_needs(moves)
        present = {setting: self.values.get(setting) for setting in needs.settings}
        tps = [move.tp for move in moves]
        record = hold(needs, rate, present, partitions=tps, now_ms=now_ms, before=before)
        self.apply(changes_to_set(record, present))
        return record

    def release(self, record: ThrottleRecord, *others: ThrottleRecord) -> list[ThrottleRecord]:
        """Restores the settings; returns the other records with the settings they inherit."""
        what = release(record, {setting: self.values.get(setting) for setting in record.settings}, others)
        self.apply(what.changes)
        return what.others

    def apply(self, changes: Changes) -> None:
        for resource, some in changes.items():
            for change in some:
                self.values[resource, change.name] = change.value
        self.values = {setting: value for setting, value in self.values.items() if value is not None}


def test_throttle_sets_rates_on_all_brokers_involved_and_lists_by_role() -> None:
    needs = throttle_needs([MOVE, OTHER_MOVE])
    assert needs.brokers == (0, 1, 2)
    assert needs.lists == {
        ("orders", LEADER_REPLICAS): ("0:0", "0:1", "1:0"),
        ("orders", FOLLOWER_REPLICAS): ("0:2", "1:2"),
    }


def test_partition_that_copies_nothing_needs_no_throttle() -> None:
    needs = throttle_needs([Move(TP, target=(1, 0), current=(0, 1)), Move(OTHER_TP, target=(0,), current=(0, 1))])
    assert (needs.brokers, needs.lists) == ((), {})


def test_release_removes_settings_that_were_unset_before() -> None:
    cluster = Cluster()
    record = cluster.throttle(MOVE, rate=1000)
    assert cluster.values[broker(2), RATES[0]] == "1000"
    assert cluster.values[TOPIC, FOLLOWER_REPLICAS] == "0:2"
    cluster.release(record)
    assert cluster.values == {}


def test_release_restores_earlier_settings() -> None:
    before: Values = {(broker(0), RATES[0]): "777", (TOPIC, LEADER_REPLICAS): "7:1,0:0", (broker(9), RATES[1]): "5"}
    cluster = Cluster(before)
    record = cluster.throttle(MOVE, rate=1000)
    assert cluster.values[TOPIC, LEADER_REPLICAS] == "7:1,0:0,0:1"
    cluster.release(record)
    assert cluster.values == before


def test_wildcard_list_is_not_changed() -> None:
    before: Values = {(TOPIC, LEADER_REPLICAS): "*", (TOPIC, FOLLOWER_REPLICAS): "*"}
    cluster = Cluster(before)
    record = cluster.throttle(MOVE, rate=1000)
    assert {key: value for key, value in cluster.values.items() if key[0] == TOPIC} == before
    cluster.release(record)
    assert cluster.values == before


def test_settings_changed_meanwhile_are_kept() -> None:
    cluster = Cluster()
    record = cluster.throttle(MOVE, rate=1000)
    cluster.values[broker(0), RATES[0]] = "5"
    cluster.values[TOPIC, LEADER_REPLICAS] = "0:0,0:1,8:8"
    what = release(record, cluster.values, [])
    assert what.foreign == [(broker(0), RATES[0], "5")]
    cluster.apply(what.changes)
    assert cluster.values == {(broker(0), RATES[0]): "5", (TOPIC, LEADER_REPLICAS): "8:8"}


def test_rate_not_yet_reported_by_a_broker_is_removed_too() -> None:
    record = Cluster().throttle(MOVE, rate=1000)
    what = release(record, dict.fromkeys(record.settings), [])
    assert ConfigChange(RATES[0], ConfigOperation.DELETE) in what.changes[broker(0)]
    assert ConfigChange(LEADER_REPLICAS, ConfigOperation.DELETE) in what.changes[TOPIC]


def test_unreadable_setting_is_kept_for_a_later_release() -> None:
    record = Cluster().throttle(MOVE, rate=1000)
    present = {setting: "1000" for setting in record.settings if setting[0] == broker(1)}
    assert release(record, present, []).changes.keys() == {broker(1)}


def test_same_move_with_another_rate_keeps_the_state_before_the_first() -> None:
    cluster = Cluster({(broker(0), RATES[0]): "777"})
    first = cluster.throttle(MOVE, rate=1000)
    second = cluster.throttle(MOVE, rate=2000, before=first)
    assert cluster.values[broker(0), RATES[0]] == "2000"
    cluster.release(second)
    assert cluster.values == {(broker(0), RATES[0]): "777"}


@pytest.mark.parametrize("rates", [(1000, 2000), (1000, 1000)])
@pytest.mark.parametrize("first_is_first", [True, False])
def test_two_concurrent_moves_restore_everything_in_either_order(rates: tuple[int, int], first_is_first: bool) -> None:
    cluster = Cluster({(broker(0), RATES[0]): "777"})
    first = cluster.throttle(MOVE, rate=rates[0], now_ms=1)
    second = cluster.throttle(OTHER_MOVE, rate=rates[1], now_ms=2)
    earlier, later = (first, second) if first_is_first else (second, first)
    (later,) = cluster.release(earlier, later)
    assert cluster.values[broker(0), RATES[1]] == str(rates[1] if first_is_first else rates[0])
    cluster.release(later)
    assert cluster.values == {(broker(0), RATES[0]): "777"}


def test_list_entry_of_two_moves_is_removed_with_the_second() -> None:
    cluster = Cluster()
    first = cluster.throttle(MOVE, rate=1000, now_ms=1)
    second = cluster.throttle(MOVE, OTHER_MOVE, rate=1000, now_ms=2)
    (second,) = cluster.release(first, second)
    assert cluster.values[TOPIC, FOLLOWER_REPLICAS] == "0:2,1:2"
    cluster.release(second)
    assert cluster.values == {}


def test_broker_whose_rates_are_not_known_is_left_out() -> None:
    needs = throttle_needs([MOVE])
    present = {setting: None for setting in needs.settings if setting[0] != broker(2)}
    record = hold(needs, 1000, present, partitions=[TP], now_ms=0)
    assert {rate.broker_id for rate in record.rates} == {0, 1}


def test_record_survives_its_file() -> None:
    record = Cluster({(broker(0), RATES[0]): "777", (TOPIC, LEADER_REPLICAS): ""}).throttle(MOVE, rate=1000)
    assert record_from_json(json.loads(json.dumps(record_to_json(record)))) == record
    with pytest.raises(ValueError, match="version 2"):
        record_from_json({**record_to_json(record), "version": 2})


def test_list_that_was_empty_before_is_empty_again() -> None:
    cluster = Cluster({(TOPIC, LEADER_REPLICAS): ""})
    cluster.release(cluster.throttle(MOVE, rate=1000))
    assert cluster.values == {(TOPIC, LEADER_REPLICAS): ""}


def test_released_record_holds_nothing() -> None:
    record = Cluster().throttle(MOVE, rate=1000)
    assert replace(record, rates=(), lists=()).settings == []
