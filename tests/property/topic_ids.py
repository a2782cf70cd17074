"""Ids of topics for frames of versions that have ids instead of names."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import NAMESPACE_DNS, UUID, uuid5


def id_of(topic: str) -> UUID:
    """The id of a topic."""
    return uuid5(NAMESPACE_DNS, topic)


def names_by_id(topics: Iterable[str]) -> dict[bytes, str]:
    """The names of topics by the bytes of their ids."""
    return {id_of(topic).bytes: topic for topic in topics}
