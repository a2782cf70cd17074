"""Creates logs in a thread, so that the event loop does not wait for a disk.

    1. loop     LogManager.plan_creation: choose a directory for each log
    2. thread   CreationPlan.run: create the files, including those with the topic id and the first leader epoch
    3. loop     LogManager.take_created: directories that failed go offline
    4. loop     LogManager.get_or_create: adopt each log when its partition gets its role
    5. loop     LogManager.discard_created: forget those that were not adopted

Nothing is served before step 4.  A log that was not adopted is empty, and is opened again when it is needed.  The
caller creates and deletes no other logs of these partitions meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from kctl.model import TopicPartition
from kctl.storage.config import LogConfig
from kctl.storage.log import Log
from kctl.storage.log_directory import LogDirectory


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log to create."""

    topic_partition: TopicPartition
    config: LogConfig
    topic_id: UUID | None = None
    leader_epoch: int | None = None
    """The epoch in which this broker leads the partition; None if it follows."""
    is_new: bool = True
    """False if the partition may have a log in a directory that is offline."""


class CreationPlan:
    """Step 2.  `run` never raises; errors are in `failures`."""

    __slots__ = ("_works", "created", "failures")

    def __init__(self, works: Sequence[tuple[NewLog, LogDirectory, Callable[[], Log]]]) -> None:
        """`works`: the log, its directory and the function that opens it."""
        self._works = works
        self.created: list[Log] = []
        self.failures: list[tuple[LogDirectory, OSError]] = []

    def __len__(self) -> int:
        return len(self._works)

    def run(self) -> None:
        """Create the files."""
        for new, directory, open_ in self._works:
            try:
                log = open_()
                log.write_first_metadata(new.topic_id, new.leader_epoch)
            except OSError as error:
                self.failures.append((directory, error))
            else:
                self.created.append(log)
