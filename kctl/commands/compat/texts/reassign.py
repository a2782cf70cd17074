"""The output of Kafka's kafka-reassign-partitions, byte for byte, for scripts that parse it.  Pure.

ReassignPartitionsCommand of 2.8, and of 3.9 and 4.3, which print the same; tests compare with the tools themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kctl.admin.placement.documents import Assignment, LogDirTargets, format_reassignment
from kctl.admin.placement.log_dirs import ReplicaSizes
from kctl.admin.placement.plan import MoveState
from kctl.admin.placement.reassignment import Ongoing
from kctl.commands.compat.texts.java import KAFKA_28
from kctl.model import TopicPartition

EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment.\n"
)

VERIFY_WARNING = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


def current_assignment(assignment: Assignment) -> str:
    """Return the first lines of --execute."""
    return (
        f"Current partition replica assignment\n\n{format_reassignment(assignment)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
    )


def throttle_set(bytes_per_s: int) -> str:
    """Return the lines of --execute --throttle."""
    return f"{VERIFY_WARNING}\nThe inter-broker throttle limit was set to {bytes_per_s} B/s\n"


def started(partitions: Iterable[TopicPartition]) -> str:
    """Return the last line of --execute."""
    tps = sorted(partitions)
    return f"Successfully started partition reassignment{_s(tps)} for {_joined(tps)}\n"


def log_dir_moves_started(compat: str, targets: LogDirTargets) -> str:
    """Return the line of --execute about log directories; empty if there are none."""
    replicas = sorted(targets, key=lambda replica: (replica[1], replica[0]))
    if not replicas:
        return ""
    if compat != KAFKA_28:
        return "".join(
            f"Successfully started moving log directory to {targets[to]} for replica {to[1]} with broker {to[0]} \n"
            for to in replicas
        )
    names = ",".join(f"{tp}-{broker}" for broker, tp in replicas)
    return f"Successfully started log directory move{_s(replicas)} for: {names}\n"


def states(
    compat: str,
    found: Sequence[tuple[TopicPartition, MoveState, tuple[int, ...], tuple[int, ...]]],
    log_dirs: LogDirTargets,
    sizes: ReplicaSizes,
) -> str:
    """Return the lines of --verify: partition, state, current replicas, target; then the log directories of the
    replicas.
    """
    lines = ["Status of partition reassignment:"]
    for tp, state, replicas, target in found:
        match state:
            case MoveState.IN_PROGRESS:
                lines.append(f"Reassignment of partition {tp} is still in progress.")
            case MoveState.COMPLETE:
                lines.append(f"Reassignment of partition {tp} is complete{'' if compat == KAFKA_28 else 'd'}.")
            case MoveState.DIFFERENT | MoveState.UNKNOWN:
                lines.append(
                    f"There is no active reassignment of partition {tp}, but replica set is {_numbers(replicas)} "
                    f"rather than {_numbers(target)}."
                )
    moved = sorted(log_dirs, key=lambda replica: (replica[1], replica[0]))
    # Kafka prints an empty line if there are no log directories.
    lines += [_replica_line(tp, broker, log_dirs[broker, tp], sizes) for broker, tp in moved] or [""]
    return "\n".join(lines) + "\n"


def _replica_line(tp: TopicPartition, broker: int, path: str, sizes: ReplicaSizes) -> str:
    place, copy = sizes.places.get((broker, tp)), sizes.copies.get((broker, tp))
    if copy is not None and copy[0] == path:
        return f"Reassignment of replica {tp}-{broker} is still in progress."
    if copy is not None:
        return f"Partition {tp} on broker {broker} is being moved to log dir {copy[0]} instead of {path}."
    if place == path:
        return f"Reassignment of replica {tp}-{broker} completed successfully."
    if place is not None:
        return f"Partition {tp} on broker {broker} is not being moved from log dir {place} to {path}."
    return f"Partition {tp} cannot be found in any live log directory on broker {broker}."


def throttles_cleared(brokers: Sequence[int], topics: Sequence[str]) -> str:
    """Return the last lines of --verify and --cancel; unlike Kafka, only if there were throttles to remove."""
    lines = []
    if brokers:
        lines.append(f"Clearing broker-level throttles on broker{_s(brokers)} {_numbers(brokers)}")
    if topics:
        lines.append(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
    return "".join(f"{line}\n" for line in lines)


def listed(ongoing: Mapping[TopicPartition, Ongoing]) -> str:
    """Return the lines of --list."""
    if not ongoing:
        return "No partition reassignments found.\n"
    lines = ["Current partition reassignments:"]
    for tp, reassignment in sorted(ongoing.items()):
        adding = f" adding: {_numbers(reassignment.adding)}." if reassignment.adding else ""
        removing = f" removing: {_numbers(reassignment.removing)}." if reassignment.removing else ""
        lines.append(f"{tp}: replicas: {_numbers(reassignment.replicas)}.{adding}{removing}")
    return "\n".join(lines) + "\n"


def cancelled(compat: str, partitions: Iterable[TopicPartition], copies: LogDirTargets | None = None) -> str:
    """Return the lines of --cancel; the second is about log directories, and since 3.9 has no line feed.

    For a replica that is moving to another directory, Kafka prints that it is moved to its current one.
    """
    tps = sorted(partitions)
    first = "None of the specified partition reassignments are active."
    if tps:
        first = f"Successfully cancelled partition reassignment{_s(tps)} for: {_joined(tps)}"
    if copies:
        return f"{first}\n{log_dir_moves_started(compat, copies)}"
    second = "None of the specified partition moves are active."
    return f"{first}\n{second}" + ("\n" if compat == KAFKA_28 else "")


def start_refused(problems: Iterable[tuple[TopicPartition, str]]) -> str:
    """Return the lines of --execute if the controller refuses some partitions."""
    return "".join(["Error reassigning partition(s):\n", *(f"{tp}: {why}\n" for tp, why in sorted(problems))])


def cancel_refused(problems: Iterable[tuple[TopicPartition, str]]) -> str:
    """Return the lines of --cancel if the controller refuses some partitions."""
    known = sorted(problems)
    lines = [f"{tp}: {why}\n" for tp, why in known]
    return "".join([f"Error cancelling partition reassignment{_s(known)} for:\n", *lines])


def _s(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _joined(tps: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, tps))
