"""The output of Kafka's kafka-consumer-groups about resets, byte for byte, including the order of rows.  Pure.

ConsumerGroupCommand of 2.8, 3.9 and 4.3; tests compare with the tools themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kctl.admin.offset_reset import Reset, Scenario
from kctl.admin.reset_file import format_offsets
from kctl.commands.compat.hash_order import java_copy_order, java_merged_order, java_order, scala_map_order
from kctl.commands.compat.java_text import java_length, padded
from kctl.commands.compat.versions import KAFKA_3, KAFKA_4, KAFKA_28
from kctl.model import TopicPartition

_TITLES = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
_NAME_WIDTH = 15


def exported(resets: Iterable[Reset], *, with_group: bool) -> str:
    """The file of --export; Kafka's tool ends it with an empty line."""
    return format_offsets(_offsets(resets), with_group=with_group) + "\n"


def table(compat: str, resets: Iterable[Reset]) -> str:
    """The output of --reset-offsets without --export; that of 3.9 is one line."""
    rows = [_TITLES, *((group, tp.topic, str(tp.partition), str(new)) for group, tp, new in _offsets(resets))]
    widths = [30, 30, 10, 15]
    if compat == KAFKA_4:
        widths = [*(max(_NAME_WIDTH, *(java_length(row[index]) for row in rows)) for index in (0, 1)), 10, 0]
    lines = (" ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n" + "".join(line if compat == KAFKA_3 else f"{line}\n" for line in lines)


def warnings(compat: str, scenario: Scenario, resets: Iterable[Reset]) -> str:
    """The warnings since 3.8 on stdout about partitions without a record at or after the time."""
    if compat == KAFKA_28 or scenario is not Scenario.TIME:
        return ""
    return "".join(
        f"\nWarn: Partition {one.partition} from topic {one.topic} is empty. Falling back to latest known offset.\n"
        for one in resets
        if one.held is not None and one.new == one.held.end
    )


def in_order(compat: str, scenario: Scenario, resets: Iterable[Reset], topics: Sequence[str]) -> list[Reset]:
    """The resets in the order of Kafka's hash tables; `topics` are the values of --topic, empty for all topics."""
    of_group: dict[str, dict[TopicPartition, Reset]] = {}
    for one in resets:
        of_group.setdefault(one.group, {})[one.tp] = one
    is_java = compat != KAFKA_28
    groups = java_order(of_group) if is_java else scala_map_order(java_copy_order(of_group))
    ordered: list[Reset] = []
    for group in groups:
        found = of_group[group]
        ordered_tps = [tp for tp in _in_scope(found, topics) if tp in found]
        if scenario is Scenario.CURRENT:
            committed = [tp for tp in ordered_tps if found[tp].old is not None]
            others = [tp for tp in ordered_tps if found[tp].old is None]
            ordered_tps = java_merged_order(committed, others) if is_java else scala_map_order([*committed, *others])
        else:
            ordered_tps = java_order(ordered_tps) if is_java else scala_map_order(ordered_tps)
        ordered.extend(found[tp] for tp in ordered_tps)
    return ordered


def _in_scope(found: Iterable[TopicPartition], topics: Sequence[str]) -> list[TopicPartition]:
    """The partitions in the order in which the tool lists them: named partitions, then whole topics, or the committed
    ones.
    """
    if not topics:
        return java_order(found)
    named: list[TopicPartition] = []
    for text in topics:
        name, _, numbers = text.partition(":")
        if numbers:
            named.extend(TopicPartition(name, int(number)) for number in numbers.split(",") if number.isdecimal())
    whole = java_order([text for text in topics if ":" not in text])
    listed = [*named, *(tp for name in whole for tp in sorted(found) if tp.topic == name)]
    return list(dict.fromkeys([*listed, *sorted(found)]))


def _offsets(resets: Iterable[Reset]) -> list[tuple[str, TopicPartition, int]]:
    return [(one.group, one.tp, one.new) for one in resets if one.new is not None]
