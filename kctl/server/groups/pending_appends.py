"""What of a group is on its way to the log, and what has to be known when the log has taken or refused it.

Invariant: each is ended by exactly one AppendDone; what is not in the log yet nobody has been told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kctl.model import TopicPartition
from kctl.server.groups.events import Protocols, Token
from kctl.server.groups.offsets import OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class AssignmentAppend:
    """A leader's assignment on its way to the log."""

    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class ReplacementAppend:
    """A static member's new id on its way to the log; what to go back to if the log refuses."""

    token: Token
    old_member_id: str
    new_member_id: str
    old_protocols: Protocols
    leader_before: str


@dataclass(frozen=True, slots=True)
class EmptyAppend:
    """A group without members on its way to the log; nobody waits for it."""


@dataclass(frozen=True, slots=True)
class CommitAppend:
    """Commits on their way to the log.  Those in `refused` were too large and did not go."""

    token: Token
    offsets: dict[TopicPartition, OffsetAndMetadata]
    refused: tuple[TopicPartition, ...]
    producer_id: int | None = None
    """Whose transaction they belong to, if any."""


Append: TypeAlias = AssignmentAppend | ReplacementAppend | EmptyAppend | CommitAppend
