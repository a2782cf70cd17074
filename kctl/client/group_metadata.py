"""The identity of a group member and the generation in which it has read records."""

from __future__ import annotations

from typing import NamedTuple

from kctl.client.assignment import NO_GENERATION


class GroupMetadata(NamedTuple):
    """A group, and the member and generation in whose name offsets are committed (KIP-447)."""

    group_id: str
    generation: int = NO_GENERATION
    """NO_GENERATION for a commit that is not checked against the members of the group."""
    member_id: str = ""
    group_instance_id: str | None = None
