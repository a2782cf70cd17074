"""Rows of `kctl zookeeper`.  The fields of a stat have ZooKeeper's names and order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kctl.zookeeper.operations import ZnodeStat


class StatRow(NamedTuple):
    """The stat of a znode."""

    path: str
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: str | None
    data_length: int
    num_children: int
    pzxid: int


class ZnodeRow(NamedTuple):
    """A znode with its data and its stat."""

    path: str
    data: str
    encoding: str
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: str | None
    data_length: int
    num_children: int
    pzxid: int


def stat_row(path: str, stat: ZnodeStat) -> StatRow:
    """The stat with the owner in hexadecimal, as ZooKeeper's own tools print it; None for a persistent znode."""
    owner = f"0x{stat.ephemeral_owner & (1 << 64) - 1:x}" if stat.ephemeral_owner else None
    return StatRow(path, **(stat._asdict() | {"ephemeral_owner": owner}))


def znode_row(path: str, data: str, encoding: str, stat: ZnodeStat) -> ZnodeRow:
    """`encoding` is the encoding of `data`: utf-8 or base64."""
    return ZnodeRow(data=data, encoding=encoding, **stat_row(path, stat)._asdict())
