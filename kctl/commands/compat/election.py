"""The output of Kafka's kafka-leader-election, byte for byte.  Pure.

LeaderElectionCommand of 2.8, 3.9 and 4.3; tests compare with the tools themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from kctl.admin.election import Election, ElectionType
from kctl.commands.compat.hash_order import java_order, scala_mutable_order
from kctl.commands.compat.java_errors import java_class
from kctl.commands.compat.versions import KAFKA_28
from kctl.model import TopicPartition


def elected(compat: str, kind: ElectionType, elections: Sequence[Election]) -> str:
    """The lines about elected partitions, those that needed no election, and failures.

    The second line of 2.8 has the elected partitions in place of those that needed no election.
    """
    order = scala_mutable_order if compat == KAFKA_28 else java_order
    by_tp = {one.tp: one for one in elections}
    done = order(tp for tp in by_tp if by_tp[tp].is_elected)
    noop = order(tp for tp in by_tp if not by_tp[tp].is_needed)
    lines = []
    if done:
        lines.append(f"Successfully completed leader election ({kind.name}) for partitions {_joined(done)}")
    if noop:
        shown = done if compat == KAFKA_28 else noop
        lines.append(f"Valid replica already elected for partitions {_joined(shown)}")
    for tp in order(tp for tp, one in by_tp.items() if one.is_needed and not one.is_elected):
        outcome = by_tp[tp].outcome
        reason = f"{java_class(outcome.error)}: {outcome.message}"
        lines.append(f"Error completing leader election ({kind.name}) for partition: {tp}: {reason}")
    return "".join(f"{line}\n" for line in lines)


def _joined(tps: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, tps))
