"""Mismatches between indexes and logs, which kafka-dump-log lists after the last file.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kctl.commands.compat.hash_order import ScalaHashTable
from kctl.model import java_hash

Pairs = list[tuple[int, int]]


class Misfits:
    """The mismatches by file, in the order in which they were found."""

    def __init__(self) -> None:
        self.offset_mismatches: dict[str, Pairs] = {}
        self.time_mismatches: dict[str, Pairs] = {}
        self.out_of_order: dict[str, Pairs] = {}
        self.not_found: dict[str, Pairs] = {}
        self.gaps: dict[str, Pairs] = {}

    @property
    def is_wrong(self) -> bool:
        """Whether an index does not match its log; gaps are not errors."""
        return bool(self.offset_mismatches or self.time_mismatches or self.out_of_order or self.not_found)

    def write(self, write_line: Callable[[str], None]) -> None:
        """Writes the lists, in Kafka's order of kinds."""
        for path, found in _in_order(self.offset_mismatches):
            write_line(f"Mismatches in :{path}")
            for index_offset, log_offset in reversed(found):
                write_line(f"  Index offset: {index_offset}, log offset: {log_offset}")
        for path, found in _in_order(self.time_mismatches):
            write_line(f"Found timestamp mismatch in :{path}")
            for index_time, log_time in found:
                write_line(f"  Index timestamp: {index_time}, log timestamp: {log_time}")
        for path, found in _in_order(self.out_of_order):
            write_line(f"Found out of order timestamp in :{path}")
            for index_time, before in found:
                write_line(f"  Index timestamp: {index_time}, Previously indexed timestamp: {before}")
        for _, found in _in_order(self.not_found):
            write_line("The following indexed offsets are not found in the log.")
            for indexed, log_offset in found:
                write_line(f"Indexed offset: {indexed}, found log offset: {log_offset}")
        for path, found in _in_order(self.gaps):
            write_line(f"Non-consecutive offsets in {path}")
            for first, second in reversed(found):
                write_line(f"  {first} is followed by {second}")


def _in_order(found: dict[str, Pairs]) -> Iterator[tuple[str, Pairs]]:
    """The files in the iteration order of Kafka's map."""
    table = ScalaHashTable()
    for path, pairs in found.items():
        table.add(path, java_hash(path), (path, pairs))
    return iter(table)
