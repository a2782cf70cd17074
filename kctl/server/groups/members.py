"""One member of a group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kctl.server.groups.events import Protocols, Token

_BYTES = 1_000
"""The memory for a member or a member id without the strings of the client."""


def memory_of(*texts: str | None) -> int:
    """About the memory for a member with these ids, or for a member id with which no client has joined, in bytes."""
    return _BYTES + sum(len(text) for text in texts if text is not None)


@dataclass(slots=True, kw_only=True)
class Member:
    """The state of a member.

    A join or a sync that cannot be completed yet is parked here by its token; there is at most one of each.
    """

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False
    """No response was sent since it joined: it cannot send heartbeats, so a parked join does not keep it alive."""
    session_deadline_ms: int = 0
    timer_due_ms: int | None = None
    """When its session timer fires; heartbeats only move the deadline, which is checked when the timer fires."""

    @property
    def memory_bytes(self) -> int:
        """About its memory without protocols."""
        return memory_of(self.member_id, self.group_instance_id, self.client_id)

    @property
    def is_static(self) -> bool:
        """True for a member with an instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_joining(self) -> bool:
        """True if the member has a parked join."""
        return self.join_token is not None

    @property
    def is_parked(self) -> bool:
        """True if it has a parked request, so that it cannot be expected to send heartbeats."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """Its metadata for this protocol.  Raises KeyError if it does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that is first in its order of preference."""
        return next(name for name, _ in self.protocols if name in candidates)
