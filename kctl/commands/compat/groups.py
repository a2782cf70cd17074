"""What the verbs of `kctl groups` print with --compat, and the texts about resets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kctl.admin.groups.offsets import format_offsets
from kctl.client.outcome import Outcome
from kctl.commands.compat.texts import groups as texts
from kctl.commands.compat.texts.java import (
    KAFKA_3,
    KAFKA_4,
    KAFKA_28,
    java_copy_order,
    java_length,
    java_merged_order,
    java_order,
    padded,
    scala_map_order,
)
from kctl.commands.frame.exit_status import ExitStatus
from kctl.commands.groups.listing import GroupType, State, read_descriptions, read_groups
from kctl.commands.groups.resets import warn_of_failures
from kctl.commands.groups.selection import ResetRow, with_empty_name
from kctl.errors import ErrorCode
from kctl.lag.facts import GroupDescription
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.commands.compat.registration import Call
    from kctl.commands.frame.invocation import Invocation

_NAME_WIDTH = 15


def list_groups(
    call: Call,
    *,
    state: list[State] | None,
    type_: list[GroupType] | None,
    group_regex: str | None,
    verbose: bool,
    **_: Any,
) -> ExitStatus:
    """`kctl groups list`."""
    groups, failed = read_groups(call.run, state, type_, group_regex)
    text = texts.listed(call.version, groups, with_states=verbose or bool(state), with_types=bool(type_))
    call.run.console.verbatim(text)
    _warn_of_brokers(call.run, failed)
    return ExitStatus.FAILED if failed else ExitStatus.DONE


def describe_groups(
    call: Call,
    *,
    names: list[str] | None,
    show: str,
    all_: bool,
    group_regex: str | None,
    empty_name: bool,
    verbose: bool,
    **_: Any,
) -> ExitStatus:
    """`kctl groups describe`."""
    names = with_empty_name(names, empty_name=empty_name)
    groups, failed = read_descriptions(call.run, names, group_regex, all_=all_)
    status = ExitStatus.FAILED
    if groups or not failed:
        status = _describe(call.run, groups, show, call.version, verbose=verbose)
    _warn_of_brokers(call.run, failed)
    return ExitStatus.FAILED if failed else status


def reset_offsets(
    call: Call,
    *,
    names: list[str] | None,
    topic: list[str] | None,
    to_current: bool,
    to_datetime: int | None,
    by_duration: int | None,
    export: bool,
    execute: bool,
    dry_run: bool,
    **_: Any,
) -> Any:
    """`kctl groups reset-offsets`, which plans without --yes."""
    status, rows = call.collect_rows(export=False, dry_run=dry_run or not execute)
    warn_of_failures(call.run, rows)
    done = in_order(call.version, (row for row in rows if not row.error), topic or (), to_current=to_current)
    console = call.run.console
    if to_datetime is not None or by_duration is not None:
        console.verbatim(warnings_of_times(call.version, done))
    if export:
        console.verbatim(exported(done, with_group=len(set(names or ())) != 1))
    else:
        console.verbatim(table(call.version, done))
    return status


def _warn_of_brokers(run: Invocation, failed: Iterable[Outcome]) -> None:
    for broker in failed:
        run.console.warn(f"broker {broker.name} cannot list its groups: {broker.message}")


def _describe(
    run: Invocation, groups: Iterable[GroupDescription], show: str, compat: str, *, verbose: bool
) -> ExitStatus:
    """Print the output of --describe; `show` selects offsets, members or state."""
    groups = [texts.as_in(compat, group) for group in groups]
    if reason := texts.failure_of(groups):
        run.console.verbatim(f"\nError: Executing consumer group command failed due to {reason}\n")
        return ExitStatus.FAILED
    brokers = run.on_brokers(lambda client: client.metadata([])).brokers.values() if show == "state" else ()
    ids = {f"{broker.host}:{broker.port}": broker.node_id for broker in brokers}
    status = ExitStatus.DONE
    for group in groups:
        name = group.outcome.name
        if not group.outcome.is_done:
            status = ExitStatus.FAILED
            if group.outcome.error is not ErrorCode.GROUP_ID_NOT_FOUND:
                run.console.warn(f"{name}: {group.outcome.message}")
                continue
            run.console.verbatim(texts.unknown(name))
        elif not group.members:
            run.console.note(f"Consumer group '{name}' has no active members.")
        if show == "offsets":
            run.console.verbatim(texts.offsets(compat, group, verbose=verbose))
        elif show == "members":
            run.console.verbatim(texts.members(compat, group, verbose=verbose))
        elif group.outcome.is_done:
            run.console.verbatim(texts.state(compat, group, ids.get(group.coordinator, -1), verbose=verbose))
    return status


# The output of Kafka's kafka-consumer-groups about resets, byte for byte, including the order of rows. Pure.
#
# ConsumerGroupCommand of 2.8, 3.9 and 4.3; tests compare with the tools themselves.


_TITLES = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")


def exported(resets: Iterable[ResetRow], *, with_group: bool) -> str:
    """Return the file of --export; Kafka's tool ends it with an empty line."""
    return format_offsets(_offsets(resets), with_group=with_group) + "\n"


def table(compat: str, resets: Iterable[ResetRow]) -> str:
    """Return the output of --reset-offsets without --export; that of 3.9 is one line."""
    rows = [_TITLES, *((group, tp.topic, str(tp.partition), str(new)) for group, tp, new in _offsets(resets))]
    widths = [30, 30, 10, 15]
    if compat == KAFKA_4:
        widths = [*(max(_NAME_WIDTH, *(java_length(row[index]) for row in rows)) for index in (0, 1)), 10, 0]
    lines = (" ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n" + "".join(line if compat == KAFKA_3 else f"{line}\n" for line in lines)


def warnings_of_times(compat: str, resets: Iterable[ResetRow]) -> str:
    """Return the warnings since 3.8 on stdout about partitions without a record at or after the time."""
    if compat == KAFKA_28:
        return ""
    return "".join(
        f"\nWarn: Partition {reset.partition} from topic {reset.topic} is empty. Falling back to latest known offset.\n"
        for reset in resets
        if reset.log_end_offset is not None and reset.new_offset == reset.log_end_offset
    )


def in_order(compat: str, resets: Iterable[ResetRow], topics: Sequence[str], *, to_current: bool) -> list[ResetRow]:
    """Return the resets in the order of Kafka's hash tables; `topics` are the values of --topic, empty for all."""
    of_group: dict[str, dict[TopicPartition, ResetRow]] = {}
    for reset in resets:
        of_group.setdefault(reset.group, {})[_partition_of(reset)] = reset
    is_java = compat != KAFKA_28
    groups = java_order(of_group) if is_java else scala_map_order(java_copy_order(of_group))
    ordered: list[ResetRow] = []
    for group in groups:
        found = of_group[group]
        ordered_tps = [tp for tp in _in_scope(found, topics) if tp in found]
        if to_current:
            committed = [tp for tp in ordered_tps if found[tp].old_offset is not None]
            others = [tp for tp in ordered_tps if found[tp].old_offset is None]
            ordered_tps = java_merged_order(committed, others) if is_java else scala_map_order([*committed, *others])
        else:
            ordered_tps = java_order(ordered_tps) if is_java else scala_map_order(ordered_tps)
        ordered.extend(found[tp] for tp in ordered_tps)
    return ordered


def _in_scope(found: Iterable[TopicPartition], topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions in the order in which the tool lists them: named partitions, then whole topics, or the
    committed ones.
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


def _offsets(resets: Iterable[ResetRow]) -> list[tuple[str, TopicPartition, int]]:
    return [(reset.group, _partition_of(reset), reset.new_offset) for reset in resets if reset.new_offset is not None]


def _partition_of(reset: ResetRow) -> TopicPartition:
    """Return the partition of a row without an error."""
    assert reset.partition is not None
    return TopicPartition(reset.topic, reset.partition)
