"""One member of a group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kctl.server.groups.events import Protocols, Token


@dataclass(slots=True, kw_only=True)
class Member:
    """What the coordinator knows of a member.

    A join or a sync that cannot be answered yet is parked here by its token; there is at most one of each.
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
    """Not answered yet since it came: it has no id to send heartbeats with, so its parked join does not prove life."""
    session_deadline_ms: int = 0
    timer_due_ms: int | None = None
    """When its session timer fires; heartbeats move the deadline only, and the timer looks again when it fires."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_joining(self) -> bool:
        return self.join_token is not None

    @property
    def is_parked(self) -> bool:
        """Whether it waits for us, so that it cannot be expected to send heartbeats."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """What it said for this protocol, which it must support."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that it likes best."""
        return next(name for name, _ in self.protocols if name in candidates)
