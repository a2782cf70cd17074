"""Immutable views of a group: the record in `__consumer_offsets`, and the description for DescribeGroups."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.server.groups.states import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """One member of a stored generation."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Its metadata for the protocol of the generation."""
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One generation of a group, as it is stored."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group entered its state; -1 if unknown (records before value version 2)."""
    members: tuple[MemberSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member for DescribeGroups; metadata and assignment only if the group is Stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group for DescribeGroups."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group for ListGroups."""

    group_id: str
    protocol_type: str
    state: GroupState
