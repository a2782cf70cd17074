"""Rows that several verbs of `kctl zookeeper` show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.zookeeper.operations import ZnodeStat


def stat_row(stat: ZnodeStat) -> dict[str, Any]:
    owner = stat.ephemeral_owner
    return {**stat._asdict(), "ephemeral_owner": f"0x{owner & (1 << 64) - 1:x}" if owner else None}
