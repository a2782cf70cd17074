"""The output of Kafka's GetOffsetShell, byte for byte.  Pure.

GetOffsetShell of 2.8, 3.9 and 4.3; tests compare with the tools themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from kctl.commands.compat.versions import KAFKA_28
from kctl.model import TopicPartition


def offsets(compat: str, found: Mapping[TopicPartition, int | None]) -> str:
    """A line per partition, since 3.0 in the order of their names as texts.

    One without an offset for the time is empty in 2.8 and left out later.
    """
    order = sorted(found) if compat == KAFKA_28 else sorted(found, key=str)
    return "".join(
        f"{tp.topic}:{tp.partition}:{'' if found[tp] is None else found[tp]}\n"
        for tp in order
        if found[tp] is not None or compat == KAFKA_28
    )
