"""Rows that several verbs of `kctl quotas` show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.security.quotas import name_text

if TYPE_CHECKING:
    from kctl.commands.invocation import Invocation


def shown_name(entity: dict[str, str | None], kind: str) -> str | None:
    """The name of a part in a table: None for a part that the entity does not have."""
    return name_text(entity[kind]) if kind in entity else None


def number_text(value: float) -> float | int:
    """The value as an integer if it is whole, so that a rate of bytes is not shown as 1048576.0."""
    return int(value) if value.is_integer() else value


def warn_if_throttled(run: Invocation, throttle_ms: int) -> None:
    """Warns if a quota throttled the requests of this command."""
    if throttle_ms:
        run.console.warn(f"the broker throttles this user and client id for {throttle_ms} ms")
