"""Records of a group that are being written to the log, with the data needed when the write ends.

Invariant: each is ended by exactly one AppendDone; no client gets a success response for data that is not in the log
yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kctl.model import TopicPartition
from kctl.server.groups.events import Protocols, Token
from kctl.server.groups.offsets import OffsetAndMetadata


@dataclass(frozen=True, slots=True)
class AssignmentAppend:
    """A leader's assignment that is being written."""

    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class ReplacementAppend:
    """A static member's new id that is being written, and the state to revert to if the log refuses it."""

    token: Token
    old_member_id: str
    new_member_id: str
    old_protocols: Protocols
    leader_before: str


@dataclass(frozen=True, slots=True)
class EmptyAppend:
    """A group without members that is being written; no request waits for it."""


@dataclass(frozen=True, slots=True)
class CommitAppend:
    """Commits that are being written.  Those in `refused` were too large and are not written."""

    token: Token
    offsets: dict[TopicPartition, OffsetAndMetadata]
    refused: tuple[TopicPartition, ...]
    producer_id: int | None = None
    """The producer, if the commits are part of its transaction."""


Append: TypeAlias = AssignmentAppend | ReplacementAppend | EmptyAppend | CommitAppend
