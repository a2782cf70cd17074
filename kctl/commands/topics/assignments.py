"""The value of --replica-assignment."""

from __future__ import annotations

from kctl.integers import parse_integer


def parse_assignment(text: str) -> list[list[int]]:
    """Read `1:2,2:3`: the replicas of each partition.  Raises UsageError."""
    what = f"a broker in '{text}', which is to be like 1:2,2:3,"
    return [[parse_integer(replica, what) for replica in part.split(":")] for part in text.split(",")]
